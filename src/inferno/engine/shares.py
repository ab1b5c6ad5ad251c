"""Share out a step's tokens among the prompts under way.

They share by deficit round robin. Each is entitled to an equal part of every step, and what it was
given less, or more, is carried over. The measure is seconds by the cost model, or tokens where
there is none, so those that are deep in a long context can't take more than their part. Whoever can
end within what is due to it goes first. The rest goes to those that most is due to, in large
chunks, for many small ones would take longer. So how long a prompt waits for its first token
depends on its own length and on how many prompts there are, but not on how long the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferno.engine.state import SampleState
from inferno.engine.step_cost import StepCostModel, StepWork

# A step that a stream waits for takes at most so long, or so many times what the streams alone
# take, whichever is longer. (--step-target-ms auto)
AUTO_TARGET_SECONDS = 0.25
AUTO_TARGET_RATIO = 4.0

# Deep in a context a step takes at most so many times what one with as many tokens takes at a
# prompt's beginning: a newcomer waits for the step under way. It may be longer if what each step
# costs once, or its streams cost, would take more than a thirtieth, or a tenth, of it.
_MOST_STRETCH = 2.0
_LEAST_OVERHEADS = 30.0
_LEAST_STREAMS = 10.0


@dataclass(frozen=True, slots=True)
class StepBound:
    """The time that a step may take.

    target_seconds  where a stream runs; None for "auto", 0 for no bound at all, with or without
                    streams.
    full_step       tokens of a full step.
    """

    costs: StepCostModel
    target_seconds: float | None
    full_step: int

    def seconds(self, streams: StepWork) -> float | None:
        """Seconds for a step in which these tokens of streams are computed; None for no bound."""
        alone = self.costs.expect(streams)
        if self.target_seconds == 0 or alone is None:
            return None
        full = self.costs.expect(StepWork(streams.window).with_chunk(0, self.full_step)) or 0.0
        longest = max(_MOST_STRETCH * full, _LEAST_OVERHEADS * self.costs.overhead)
        if not streams.num_tokens:
            return longest
        target = self.target_seconds or max(AUTO_TARGET_SECONDS, AUTO_TARGET_RATIO * alone)
        return min(target, max(longest, _LEAST_STREAMS * alone))


class StepRoom:
    """The room that is left in a step: tokens, and seconds if they are bounded.

    work        what the step computes already.
    """

    def __init__(
        self, costs: StepCostModel, work: StepWork, num_tokens: int, seconds: float | None
    ) -> None:
        self.num_tokens = num_tokens
        self._work = work
        self._costs = costs
        self._seconds = seconds
        self._taken = costs.expect(work) or 0.0

    @property
    def is_timed(self) -> bool:
        """Return whether the room is shared by seconds, and not by tokens."""
        return self._seconds is not None

    @property
    def size(self) -> float:
        """Return how much room is left: seconds where they are bounded, else tokens."""
        if self._seconds is None:
            return float(self.num_tokens)
        return max(0.0, self._seconds - self._taken)

    def price(self, sample: SampleState, num_tokens: int) -> float:
        """Return how much of the room so many tokens of a sample would take."""
        if self._seconds is None:
            return float(num_tokens)
        more = self._work.with_chunk(sample.num_computed_tokens, num_tokens)
        return (self._costs.expect(more) or 0.0) - self._taken

    def most(self, sample: SampleState) -> int:
        """Tokens of a sample for which there is room."""
        num_tokens = min(sample.gap, self.num_tokens)
        if self._seconds is None or not num_tokens:
            return num_tokens
        return self._costs.most_tokens(
            self._work, sample.num_computed_tokens, num_tokens, self._seconds
        )

    def take(self, sample: SampleState, num_tokens: int) -> float:
        """Give tokens to a sample; returns their price."""
        price = self.price(sample, num_tokens)
        self._work.add(sample.num_computed_tokens, num_tokens)
        self._taken = self._costs.expect(self._work) or 0.0
        self.num_tokens -= num_tokens
        return price


def share_out(
    prompts: Sequence[SampleState], room: StepRoom, block_size: int, *, is_first: bool
) -> dict[SampleState, int]:
    """Return how many tokens each of these prompts, given by rank, computes in a step.

    is_first    no other prompts were given any: then one of these gets a block, or what is missing
                of it, even if there is no time for that.
    """
    whole = room.size
    part = whole / len(prompts)
    left_over = sum(sample.due for sample in prompts) / len(prompts)  # by those who have ended
    for sample in prompts:
        sample.due -= left_over
    ending = {
        sample
        for sample in prompts
        if sample.gap <= room.num_tokens and room.price(sample, sample.gap) <= part + sample.due
    }

    def turn(sample: SampleState) -> tuple[bool, bool, float]:
        return sample.due < whole, sample not in ending, -sample.due

    shares: dict[SampleState, int] = {}
    prices: dict[SampleState, float] = {}
    for sample in sorted(prompts, key=turn):
        wanted = min(sample.gap, room.num_tokens)
        num_tokens = room.most(sample)
        if is_cut := num_tokens < wanted:
            num_tokens -= num_tokens % block_size
            if is_first and not shares:
                num_tokens = max(num_tokens, min(block_size, wanted))
        if num_tokens:
            shares[sample] = num_tokens
            prices[sample] = room.take(sample, num_tokens)
        if is_cut or not room.num_tokens:
            break
    due = sum(prices.values()) / len(prompts)
    for sample in prompts:
        sample.due += due - prices.get(sample, 0.0)
    return shares
