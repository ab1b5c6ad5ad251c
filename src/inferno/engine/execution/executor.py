"""The protocols of who runs the engine's steps: in this process, in another, or on many devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from inferno.engine.execution.footprint import Footprint
from inferno.engine.sampling.constraints import Mask, MaskKey
from inferno.engine.step_plan import StepPlan, StepResult


class LaunchedStep(Protocol):
    """A step whose forward pass has begun."""

    @property
    def is_free(self) -> bool:
        """Return whether the step may be sampled before the last one's results are known."""
        ...

    def sample(self, masks: Mapping[MaskKey, Mask]) -> None:
        """Begin to choose tokens; a row without a mask may get any token. Call it once."""

    def redraw(self, masks: Mapping[MaskKey, Mask]) -> None:
        """Choose the tokens of some chunks again, with the same random numbers.

        masks   of all rows of the chunks to redraw. Call this before the next step is launched.
        """

    def take_back(self, places: Sequence[int]) -> None:
        """Give the chunks at these places no tokens, as if none had been drawn for them.

        Call this after `sample`, and before the next step is launched.
        """

    def result(self) -> Sequence[StepResult]:
        """Wait for the step's end; return a result per chunk. Call `sample` before."""
        ...


class Executor(Protocol):
    """A runner of steps in the order of their plans; from plans alone it knows of sequences.

    It appends the tokens that it draws to its own record of a sequence, so that the next step can
    begin before anybody has read the tokens of this one.
    """

    @property
    def depth(self) -> int:
        """Return how many steps may be in flight while the next one is planned."""
        ...

    @property
    def footprint(self) -> Footprint:
        """Return the device, and how much memory the model and the cache take there."""
        ...

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Begin the forward pass of a plan with chunks.

        The step before must have been sampled, or have failed; then the plan has a new epoch.
        """
        ...

    def widen_tables(self, num_tokens: int) -> None:
        """Have block tables reach at least so many tokens, as in long requests.

        Then steps of short requests are recorded as long requests will need them; 0 ends this.
        """

    def release_memory(self) -> None:
        """Give memory that only steps need back to the system; call it between two steps.

        All sequences are forgotten: the next plan must have another epoch.
        """

    def capture_logits(self, request_id: str, positions: Iterable[int]) -> None:
        """Keep the logits at the given positions of a request that is about to be added."""

    def take_logits(self, request_id: str) -> list[Tensor]:
        """Return the kept logits [V], float32 on the CPU, in the order asked for."""
        ...
