"""The steps that were planned and whose results are still to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from inferno.engine.kv.offload import Offload
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.step_plan import ScheduledChunk, StepPlan


class PlannedStep(NamedTuple):
    """A plan, its chunks, and whose they are."""

    plan: StepPlan
    sequences: list[SequenceState]
    chunks: Sequence[ScheduledChunk]


class PlannedSteps:
    """The steps in flight, in the order in which they were planned."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._steps: deque[PlannedStep] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def newest(self) -> PlannedStep:
        """Return the step that was planned last."""
        return self._steps[-1]

    def add(self, step: PlannedStep) -> StepPlan:
        """Count a step as planned, and return its plan."""
        self._steps.append(step)
        return step.plan

    def end(self, plan: StepPlan) -> PlannedStep:
        """Return the oldest step, whose plan this is, and count it no more."""
        if not plan.num_chunks:
            return PlannedStep(plan, [], ())
        oldest = self._steps.popleft()
        assert oldest.plan is plan, "plans are retired in the order in which they were made"
        self._offload.settle(plan.copies)
        return oldest

    def clear(self) -> None:
        """Forget all steps, whatever comes of them."""
        self._steps.clear()


def retire(step: PlannedStep) -> list[SequenceState]:
    """Note that chunks are in flight no more, whatever their results; return their sequences."""
    for sequence, chunk in zip(step.sequences, step.chunks, strict=True):
        sequence.num_in_flight -= 1
        if chunk.proposed_token_ids:
            sequence.has_proposals = False
        elif chunk.wants_token:
            sequence.num_pending_tokens -= 1
    return step.sequences
