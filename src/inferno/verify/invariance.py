"""Random schedules: does company, chunking, caching or preemption change a request's bits?"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from inferno.engine.assemble import build_engine
from inferno.engine.engine import Engine
from inferno.engine.executor import Executor, StepHandle
from inferno.engine.plan import StepPlan
from inferno.errors import EngineError
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from inferno.verify.compare import max_error
from inferno.verify.options import Tell
from inferno.verify.outcome import Row
from inferno.verify.recorder import Recording, recording

_SUBJECT = "subject"
_NUM_NEW = 8
_BLOCK_SIZE = 8


@dataclass(slots=True)
class Seen:
    """What became of the subject: logits by position, each time it was computed; its new tokens."""

    logits: dict[int, list[Tensor]] = field(default_factory=dict)
    new_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who else runs, and with how much room."""

    tokens_per_step: int
    num_blocks: int | None
    mates: tuple[tuple[int, ...], ...]
    is_cached: bool

    @property
    def words(self) -> str:
        room = "" if self.num_blocks is None else f", {self.num_blocks} blocks"
        cached = ", its prefix cached" if self.is_cached else ""
        return f"{len(self.mates)} others, {self.tokens_per_step} tokens a step{room}{cached}"


def invariance_row(
    options: EngineOptions,
    prompt: Sequence[int],
    num_groups: int,
    num_schedules: int,
    allowed: float,
    tell: Tell,
) -> Row:
    """Compare random schedules with the request alone, in one chunk.

    num_groups  of layers with equal windows, each of which has blocks of its own.
    allowed     the largest difference of a logit that rounding may make.
    """
    alone = _run(options, prompt, Schedule(len(prompt), None, (), False))
    rng = random.Random(0)
    outcomes = []
    for number in range(num_schedules):
        tell(f"schedule {number + 1} of {num_schedules}")
        schedule = _draw(rng, prompt, num_groups)
        outcomes.append(_compare(schedule, _run(options, prompt, schedule), alone))
    return _row(outcomes, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    schedule: Schedule
    num_rows: int
    num_equal: int
    difference: float
    tokens_differ: bool


def _draw(rng: random.Random, prompt: Sequence[int], num_groups: int) -> Schedule:
    """Mates share a random part of the prompt, so that they hit and fill the prefix cache."""
    mates = tuple(
        (*prompt[: rng.randrange(len(prompt))], *rng.choices(prompt, k=rng.randint(1, len(prompt))))
        for _ in range(rng.randint(0, 4))
    )
    longest = max(map(len, (prompt, *mates))) + _NUM_NEW
    least = (-(-longest // _BLOCK_SIZE) + 1) * num_groups
    return Schedule(
        tokens_per_step=rng.randint(1, 2 * len(prompt)),
        num_blocks=rng.choice((None, least, 2 * least)),
        mates=mates,
        is_cached=rng.random() < 0.5,
    )


def _run(options: EngineOptions, prompt: Sequence[int], schedule: Schedule) -> Seen:
    engine = build_engine(
        replace(
            options,
            block_size=_BLOCK_SIZE,
            num_blocks=schedule.num_blocks,
            max_num_seqs=8,
            max_num_batched_tokens=schedule.tokens_per_step,
        )
    )
    seen = Seen()
    if schedule.is_cached:
        _complete(engine, {"before": tuple(prompt)})
    requests = {f"mate {i}": ids for i, ids in enumerate(schedule.mates)}
    names = [*requests]
    names.insert(len(names) // 2, _SUBJECT)
    with _watching(seen):
        events = _complete(engine, {name: requests.get(name, tuple(prompt)) for name in names})
    seen.new_ids = events[_SUBJECT]
    return seen


def _complete(engine: Engine, requests: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    for name, ids in requests.items():
        params = SamplingParams(temperature=0.0, max_tokens=_NUM_NEW, ignore_eos=True)
        engine.add_request(Request(request_id=name, prompt_token_ids=ids, params=params))
    new_ids: dict[str, list[int]] = {name: [] for name in requests}
    while engine.has_work:
        for event in engine.step():
            if event.finish_reason is FinishReason.ERROR:
                raise EngineError(event.error or "a step of the engine failed")
            new_ids[event.request_id] += event.token_ids
    return new_ids


@contextlib.contextmanager
def _watching(seen: Seen) -> Iterator[None]:
    """Keep the subject's logits: plans tell which rows are its own, the model's hook has them."""
    plans: list[StepPlan] = []
    submit = Executor.submit

    def submit_watched(self: Executor, plan: StepPlan) -> StepHandle:
        plans.append(plan)
        return submit(self, plan)

    def on_module(name: str, inputs: Any, output: Any) -> None:
        if name == "":
            _keep(seen, plans[-1], found, output)

    Executor.submit = submit_watched  # type: ignore[method-assign]
    try:
        with recording(lambda op, where: False, lambda call: None, on_module) as found:
            yield
    finally:
        Executor.submit = submit  # type: ignore[method-assign]


def _keep(seen: Seen, plan: StepPlan, found: Recording, hidden: Tensor) -> None:
    assert found.model is not None, "its own hook has called"
    row = 0
    for chunk in plan.chunks:
        if chunk.request_id == _SUBJECT:
            logits = found.model.logits(hidden[row : row + chunk.num_tokens]).cpu()
            for offset, logits_V in enumerate(logits):
                seen.logits.setdefault(chunk.start + offset, []).append(logits_V)
        row += chunk.num_tokens


def _compare(schedule: Schedule, seen: Seen, alone: Seen) -> _Outcome:
    """Position by position, as long as the tokens before it are the same."""
    pairs = zip(seen.new_ids, alone.new_ids, strict=True)
    num_same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(alone.new_ids))
    last = len(alone.logits) - len(alone.new_ids) + num_same
    rows = [
        (logits, alone.logits[position][0])
        for position, times in seen.logits.items()
        if position <= last and position in alone.logits
        for logits in times
    ]
    return _Outcome(
        schedule=schedule,
        num_rows=len(rows),
        num_equal=sum(torch.equal(ours, theirs) for ours, theirs in rows),
        difference=max((max_error(ours, theirs) for ours, theirs in rows), default=0.0),
        tokens_differ=num_same < len(alone.new_ids),
    )


def _row(outcomes: Sequence[_Outcome], allowed: float) -> Row:
    num_rows = sum(outcome.num_rows for outcome in outcomes)
    num_equal = sum(outcome.num_equal for outcome in outcomes)
    worst = max(outcomes, key=lambda outcome: outcome.difference)
    findings = [f"{num_equal} of {num_rows} rows of logits are bit-identical"]
    if num_equal < num_rows:
        findings.append(
            f"the worst difference is {worst.difference:.2g} in a logit ({worst.schedule.words}); "
            f"{allowed:.2g} is what rounding may do"
        )
    if turned := sum(outcome.tokens_differ for outcome in outcomes):
        findings.append(f"{turned} schedules went on with another token of nearly equal logit")
    problems = [
        f"a schedule changes a logit by {outcome.difference:.2g} ({outcome.schedule.words})"
        for outcome in outcomes
        if not outcome.difference <= allowed
    ]
    return Row(
        number="I",
        title="invariance",
        compared=f"one request in {len(outcomes)} random schedules with the request alone",
        findings=tuple(findings),
        problems=tuple(problems[:3]),
    )
