"""Define who runs the engine's steps: in this process, in another, or on many devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from inferno.engine.execution.footprint import Footprint
from inferno.engine.sampling.constraints import Mask, MaskKey
from inferno.engine.step_plan import StepPlan, StepResult


class LaunchedStep(Protocol):
    """A step whose forward pass was begun."""

    @property
    def is_free(self) -> bool:
        """Return whether the step may be sampled before the last one's results are known."""
        ...

    def sample(self, masks: Mapping[MaskKey, Mask]) -> None:
        """Begin to choose tokens; rows without a mask may be any token. Called once."""

    def redraw(self, masks: Mapping[MaskKey, Mask]) -> None:
        """Choose the tokens of some chunks again, with the same random numbers.

        masks   of all rows of these chunks. Only before the next step is launched.
        """

    def result(self) -> Sequence[StepResult]:
        """Wait for the step's end and return a result per chunk of its plan; after `sample`."""
        ...


class Executor(Protocol):
    """Runs steps in the order of their plans; of sequences it knows what plans have told it.

    What it draws it appends to its own record of a sequence, so that the next step can begin
    before anybody has read the tokens of this one.
    """

    @property
    def depth(self) -> int:
        """Return how many steps may be in flight while the next one is planned."""
        ...

    @property
    def footprint(self) -> Footprint:
        """Return the device, and the memory that model and cache take there."""
        ...

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Begin the forward pass of a plan with chunks.

        The step before it was sampled, or failed; then the plan is of another epoch.
        """
        ...

    def widen_tables(self, num_tokens: int) -> None:
        """Have tables reach so many tokens at least from now on, as those of long requests do.

        Then steps of short ones are recorded as those of long ones will be; 0 ends it.
        """

    def release_memory(self) -> None:
        """Let the system have memory that only steps need, between two of them.

        All sequences are forgotten: the next plan must have another epoch.
        """

    def capture_logits(self, request_id: str, positions: Iterable[int]) -> None:
        """Keep the logits of these positions of a request that is about to be added."""

    def take_logits(self, request_id: str) -> list[Tensor]:
        """Return the kept logits [V], float32 on the CPU, in the order of the positions asked."""
        ...
