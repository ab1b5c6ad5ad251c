"""A sampler that is right passes, and one that draws otherwise than it is asked does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferno import ops
from inferno.engine.execution import local
from inferno.engine.sampling import logits_processors, sampler
from inferno.ops import Purpose, SamplingSpec
from inferno.ops.reference import philox
from inferno.requests import SamplingParams
from inferno.verify.oracles.plain_sampler import Draw, uniform
from inferno.verify.outcome import Row
from tests.verify.planted import Folders
from tests.verify.tiny_models import verified

Patch = pytest.MonkeyPatch


def sampling(folder: Path) -> Row:
    report = verified(folder)
    [row] = [row for row in report.rows if row.number == "13"]
    if not row.passed:
        assert report.first_failure is row, report.verdict
        assert "look at engine/sampling/" in report.diagnosis.advice
        assert "transformers" not in report.diagnosis.advice  # which draws nothing
    return row


def test_a_right_sampler_passes(folders: Folders) -> None:
    row = sampling(folders["llama"])
    assert row.passed, row.problems
    assert "drawn in 8 ways are those due" in row.findings[0]


def with_spec(**factors: float) -> Callable[[Patch], None]:
    """Rules whose numbers are some times what they should be."""

    def plant(patch: Patch) -> None:
        right = SamplingSpec.of

        def rule(params: SamplingParams, vocab_size: int) -> Any:
            made = right(params, vocab_size)
            return made._replace(**{name: getattr(made, name) * x for name, x in factors.items()})

        patch.setattr(SamplingSpec, "of", rule)

    return plant


def without_top_k(patch: Patch) -> None:
    right = SamplingSpec.of
    patch.setattr(SamplingSpec, "of", lambda *args: right(*args)._replace(top_k=0))


def without_penalties(patch: Patch) -> None:
    patch.setattr(logits_processors.LogitsProcessors, "penalize", lambda *_: None)


def without_biases(patch: Patch) -> None:
    patch.setattr(
        logits_processors, "is_processed", lambda row: logits_processors.has_penalty(row.params)
    )
    patch.setattr(sampler, "is_processed", lambda row: logits_processors.has_penalty(row.params))


def at_another_position(patch: Patch) -> None:
    right = ops.uniform

    def uniform(seeds: Any, indices: Any, positions: Any, *others: Any) -> Any:
        return right(seeds, indices, [position + 1 for position in positions], *others)

    patch.setattr(ops, "uniform", uniform)


def logits_divided_before(patch: Patch) -> None:
    """Temperature counts twice: where the sampler is called, and in it."""
    right = local.LocalExecutor._logits

    def scaled(self: Any, *args: Any) -> Any:
        return right(self, *args) / 0.9

    patch.setattr(local.LocalExecutor, "_logits", scaled)


FAULTS = {
    "temperature x1.25": with_spec(temperature=1.25),
    "temperature x0.98": with_spec(temperature=0.98),
    "top-p x0.9": with_spec(top_p=0.9),
    "min-p x2": with_spec(min_p=2),
    "no top-k": without_top_k,
    "no penalties": without_penalties,
    "no biases": without_biases,
    "another position's random number": at_another_position,
    "logits scaled on their way": logits_divided_before,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sampler_that_draws_otherwise_is_found(
    folders: Folders, monkeypatch: Patch, fault: str
) -> None:
    FAULTS[fault](monkeypatch)
    row = sampling(folders["llama"])
    assert not row.passed
    assert row.problems[0].startswith(("at temp", "with", "greedily"))


def no_spec_for_top_p(patch: Patch) -> None:
    """A sampler that fails, and its step with it, where it is asked for top-p 0.8."""
    right = SamplingSpec.of

    def rule(params: SamplingParams, vocab_size: int) -> Any:
        if params.top_p == 0.8:
            raise RuntimeError("no such rule")
        return right(params, vocab_size)

    patch.setattr(SamplingSpec, "of", rule)


def no_token_for_top_p(patch: Patch) -> None:
    right = sampler.result_of

    def result(row: Any, *peaks: Any) -> Any:
        refusal = sampler.Sampled(0, None, "no token is chosen")
        return refusal if row.params.top_p == 0.8 else right(row, *peaks)

    patch.setattr(sampler, "result_of", result)


@pytest.mark.parametrize(
    ("plant", "said"),
    [(no_spec_for_top_p, "no such rule"), (no_token_for_top_p, "no token is chosen")],
)
def test_a_sampler_that_fails_in_one_way_is_found(
    folders: Folders, monkeypatch: Patch, plant: Callable[[Patch], None], said: str
) -> None:
    plant(monkeypatch)
    row = sampling(folders["llama"])
    assert not row.passed
    assert row.problems[0].startswith("with top-p 0.8: 0 of 4 tokens were drawn: ")
    assert said in row.problems[0]


def test_its_random_numbers_are_those_of_philox() -> None:
    for seed in (0, 5, -7, 2**40 + 3):
        for position in (0, 1, 77):
            expected = philox.uniform([seed], [0], [position], Purpose.SAMPLE)[0]
            assert uniform(seed, position) == expected


def test_shares_are_probabilities() -> None:
    row = np.array([2.0, 0.0, 1.0, -1.0], dtype=np.float32)
    draw = Draw.of(row, SamplingParams(temperature=0.5))
    expected = np.exp(row / 0.5) / np.exp(row / 0.5).sum()
    numbers = (np.arange(100_000) + 0.5) / 100_000
    found = np.bincount([draw.due(number) for number in numbers], minlength=4) / len(numbers)
    assert np.abs(found - expected).max() < 2e-5
    for number in numbers[::997]:
        assert [draw.allows(token, number) for token in range(4)].count(True) == 1
