"""Share out a step's tokens among streams and the prompts under way.

Prompts share by deficit round robin. Each is entitled to an equal part of every step; what it got
less, or more, is carried over. The unit is seconds by the cost model, or tokens where there is
none, so a prompt deep in a long context can't take more than its part. A prompt that can end within
its part goes first. The rest goes to the prompts that are owed most, in large chunks, for many
small ones would take longer. So how long a prompt waits for its first token depends on its own
length and on the number of prompts, but not on the length of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.step_cost import StepCostModel, StepWork

# A step that a stream waits for takes at most so long, or so many times what the streams alone
# take, whichever is longer. (--step-target-ms auto)
AUTO_TARGET_SECONDS = 0.25
AUTO_TARGET_RATIO = 4.0

# Deep in a context a step takes at most so many times what one with as many tokens takes at a
# prompt's beginning: a newcomer waits for the step under way. It may be longer if what each step
# costs once, or its streams cost, would take more than such a share of it. Without streams prompts
# are to lose a hundredth of their speed at most; steps without a bound have such costs too.
_MOST_STRETCH = 2.0
_LEAST_OVERHEADS, _LEAST_OVERHEADS_ALONE = 30.0, 60.0
_LEAST_STREAMS = 10.0


@dataclass(frozen=True, slots=True)
class StepBound:
    """The time that a step may take.

    target_seconds  the bound where a stream runs; None for "auto", 0 for no bound at all.
    full_step       tokens of a full step.
    """

    costs: StepCostModel
    target_seconds: float | None
    full_step: int

    def seconds(self, streams: StepWork, *, has_streams: bool) -> float | None:
        """Return the seconds of a step that computes these tokens of streams; None: no bound."""
        alone = self.costs.expect(streams)
        if self.target_seconds == 0 or alone is None:
            return None
        full = self.costs.expect(StepWork(streams.window).with_chunk(0, self.full_step)) or 0.0
        num_overheads = _LEAST_OVERHEADS if has_streams else _LEAST_OVERHEADS_ALONE
        longest = max(_MOST_STRETCH * full, num_overheads * self.costs.overhead)
        if not has_streams:
            return longest
        target = self.target_seconds or max(AUTO_TARGET_SECONDS, AUTO_TARGET_RATIO * alone)
        return min(target, max(longest, _LEAST_STREAMS * alone))


class StepRoom:
    """The room that is left in a step: tokens, and seconds if they are bounded.

    work        the work that the step has already.
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

    def price(self, sequence: SequenceState, num_tokens: int) -> float:
        """Return how much of the room so many tokens of a sequence would take."""
        if self._seconds is None:
            return float(num_tokens)
        more = self._work.with_chunk(sequence.num_planned_tokens, num_tokens)
        return (self._costs.expect(more) or 0.0) - self._taken

    def most(self, sequence: SequenceState) -> int:
        """Return how many of the sequence's uncomputed tokens still fit into the step."""
        num_tokens = min(sequence.num_uncomputed_tokens, self.num_tokens)
        if self._seconds is None or not num_tokens:
            return num_tokens
        return self._costs.most_tokens(
            self._work, sequence.num_planned_tokens, num_tokens, self._seconds
        )

    def take(self, sequence: SequenceState, num_tokens: int) -> float:
        """Give tokens to a sequence; returns their price."""
        price = self.price(sequence, num_tokens)
        self._work.add(sequence.num_planned_tokens, num_tokens)
        self._taken = self._costs.expect(self._work) or 0.0
        self.num_tokens -= num_tokens
        return price


class Shares:
    """Shares out each step's tokens: to streams first, then to prompts, by level of priority.

    num_tokens      that a step may have.
    priority_aging  levels that a second without tokens is worth.
    """

    def __init__(
        self,
        costs: StepCostModel,
        bound: StepBound,
        *,
        num_tokens: int,
        block_size: int,
        longest_window: int | None,
        priority_aging: float,
    ) -> None:
        self._costs = costs
        self._bound = bound
        self._num_tokens = num_tokens
        self._block_size = block_size
        self._longest_window = longest_window
        self._aging = priority_aging
        self._is_timed = False  # whether what is due to prompts is counted in seconds

    def share(
        self, lacking: Sequence[SequenceState], now: float, *, has_streams: bool
    ) -> dict[SequenceState, int]:
        """Return how many tokens each of these sequences, given by rank, computes in a step.

        has_streams     whether any streams wait for the step, given here or not.
        """
        num_tokens = self._num_tokens
        shares: dict[SequenceState, int] = {}
        for stream in _in_turn([each for each in lacking if each.is_stream], num_tokens):
            shares[stream] = min(stream.num_uncomputed_tokens, num_tokens)
            num_tokens -= shares[stream]
            if not num_tokens:
                return shares
        if len(shares) < len(lacking):
            prompts = [each for each in lacking if not each.is_stream]
            work = StepWork(self._longest_window)
            for stream, share in shares.items():
                work.add(stream.num_planned_tokens, share)
            room = StepRoom(
                self._costs, work, num_tokens, self._bound.seconds(work, has_streams=has_streams)
            )
            if room.is_timed != self._is_timed:
                self._is_timed = room.is_timed
                for prompt in prompts:
                    prompt.due = 0.0  # it was counted in something else
            self._share_among(prompts, room, shares, now)
        return shares

    def _share_among(
        self,
        prompts: Sequence[SequenceState],
        room: StepRoom,
        shares: dict[SequenceState, int],
        now: float,
    ) -> None:
        """Let each level of priority take what it can use of the room that those above it left."""

        def level(sequence: SequenceState) -> int:
            return sequence.request.priority + int(self._aging * (now - sequence.served))

        is_first = True
        for _, members in groupby(sorted(prompts, key=level, reverse=True), level):
            given = share_out(list(members), room, self._block_size, is_first=is_first)
            shares |= given
            is_first = is_first and not given
            if not room.num_tokens or (given and not room.size):
                return


def share_out(
    prompts: Sequence[SequenceState], room: StepRoom, block_size: int, *, is_first: bool
) -> dict[SequenceState, int]:
    """Return how many tokens each of these prompts, given by rank, computes in a step.

    is_first    whether no other prompt was given tokens: then the first one gets at least a block,
                or the rest of one, even if there is no time for it.
    """
    whole = room.size
    part = whole / len(prompts)
    left_over = sum(sequence.due for sequence in prompts) / len(prompts)  # by those who have ended
    for sequence in prompts:
        sequence.due -= left_over
    ending = {
        sequence
        for sequence in prompts
        if sequence.num_uncomputed_tokens <= room.num_tokens
        and room.price(sequence, sequence.num_uncomputed_tokens) <= part + sequence.due
    }

    def turn(sequence: SequenceState) -> tuple[bool, bool, float]:
        return sequence.due < whole, sequence not in ending, -sequence.due

    shares: dict[SequenceState, int] = {}
    prices: dict[SequenceState, float] = {}
    for sequence in sorted(prompts, key=turn):
        wanted = min(sequence.num_uncomputed_tokens, room.num_tokens)
        num_tokens = room.most(sequence)
        if is_cut := num_tokens < wanted:
            num_tokens -= num_tokens % block_size
            if is_first and not shares:
                num_tokens = max(num_tokens, min(block_size, wanted))
        if num_tokens:
            shares[sequence] = num_tokens
            prices[sequence] = room.take(sequence, num_tokens)
        if is_cut or not room.num_tokens:
            break
    due = sum(prices.values()) / len(prompts)
    for sequence in prompts:
        sequence.due += due - prices.get(sequence, 0.0)
    return shares


def _in_turn(streams: list[SequenceState], num_tokens: int) -> list[SequenceState]:
    """Return streams by rank; where a step can't hold them all, those that waited longest first."""
    if sum(sequence.num_uncomputed_tokens for sequence in streams) <= num_tokens:
        return streams
    return sorted(streams, key=lambda sequence: (-sequence.request.priority, sequence.served))
