"""The logits of a step, tens of megabytes with a large vocabulary, go when the next are made."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.engine.execution.local import LocalStep
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.engine.local import executor_of


def test_one_step_at_a_time_has_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build_engine(EngineOptions(model=MODEL_FOLDERS["demo"], threads=1, num_blocks=64))
    executor = executor_of(engine)
    launch = executor.launch
    steps: list[LocalStep] = []  # which hold what nobody else does any more

    def noted(plan: Any) -> LocalStep:
        steps.append(launch(plan))
        return steps[-1]

    monkeypatch.setattr(executor, "launch", noted)
    params = SamplingParams(temperature=0.0, max_tokens=6, logprobs=2, presence_penalty=0.5)
    for name in ("one", "other"):
        engine.add_request(Request(request_id=name, prompt_token_ids=(1, 2, 3), params=params))
    while engine.has_work:
        engine.step()
        assert sum(step.processed is not None for step in steps) == 1
    assert len(steps) >= 6
