"""Choose how many proposals pay, by their cost and by how likely each is to stand.

A proposal stands if the model draws the same token. A proposer's rate is how likely its next
proposal stands if the earlier ones did. It is learnt for each sequence, and for all together, from
which new sequences start. So the first proposal of a sequence is worth `rate` tokens, the second
`rate` squared, and so on. A step takes the proposals that are worth most, as long as they give more
tokens a second by the cost model's prices.

`speculation.py` goes by this: `_to_ask` asks the proposers whose balance isn't negative, and
`_that_pay` takes of their proposals what `choose` says, or a few as a trial.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

# How much of what was learnt is left after a further proposal was tried.
_SEQUENCE_DECAY, _PROPOSER_DECAY = 0.96, 0.998
# What is known of all sequences counts like so many proposals of the one in question; before
# anything is known, such a rate does.
_PRIOR_WEIGHT, _FIRST_RATE = 4.0, 0.7
_MOST_RATE = 0.995  # nothing is certain

# A proposer that doesn't pay for a sequence is tried again after so many further tokens of it: the
# first number after proposals of which some stood, twice as many as before where none did, up to
# the longest wait. So where the first trial fails, the wait is 16.
_FIRST_WAIT, _LONGEST_WAIT = 8, 512
TRIAL_TOKENS, TRIAL_PASSES = 4, 2  # tokens that are there, and those that take passes

# Balances are in steps: 1 is the time of a step's streams without proposals. A cost is its seconds
# over that time; a proposal that stands gains a stream's share of a step, 1 / number of streams.
# Credit is what proposers may cost before they gain anything: all together for each step, and for
# each new sequence, divided by the number of sequences; and each one at first. Balances are
# bounded, for nothing counts for ever.
STEP_CREDIT, SEQUENCE_CREDIT = 0.005, 0.125
FIRST_CREDIT, FIRST_PASS_CREDIT = 1.0, 4.0
_MOST_DEBT, _MOST_CREDIT = -5.0, 50.0

_PASS_DECAY = 0.8  # how much an earlier time of a proposer's pass counts beside a new one

# Proposals must promise so much more speed, since prices are not known better.
_LEAST_GAIN = 1.03
_LEAST_WORTH = 0.02  # tokens; proposals deeper than that are not looked at


@dataclass(slots=True)
class Rate:
    """The likelihood that a proposal stands, learnt from earlier proposals."""

    decay: float = _PROPOSER_DECAY
    tried: float = 0.0
    stood: float = 0.0

    def learn(self, num_proposed: int, num_stood: int) -> None:
        """Learn that, of so many proposals in a row, the first so many stood."""
        num_tried = min(num_stood + 1, num_proposed)
        left: float = self.decay**num_tried
        self.tried = self.tried * left + num_tried
        self.stood = self.stood * left + num_stood

    def estimate(self, before: float = _FIRST_RATE) -> float:
        """Return the rate; `before` is the rate expected before anything was learnt."""
        rate = (self.stood + _PRIOR_WEIGHT * before) / (self.tried + _PRIOR_WEIGHT)
        return min(rate, _MOST_RATE)


@dataclass(slots=True)
class Account:
    """The worth of one proposer, over all sequences.

    balance         the gain of its proposals, less the cost to make and compute them, in steps. The
                    proposer is asked while this isn't negative.
    pass_seconds    how long a pass of the proposer takes; None if unknown, or if it takes no
                    passes.
    """

    balance: float
    rate: Rate = field(default_factory=Rate)
    pass_seconds: float | None = None
    num_proposed: int = 0
    num_stood: int = 0

    def add(self, steps: float) -> None:
        """Add a gain, or a cost, which is negative."""
        self.balance = max(_MOST_DEBT, min(self.balance + steps, _MOST_CREDIT))

    def learn(self, num_proposed: int, num_stood: int) -> None:
        """Learn how many of some proposals stood."""
        self.num_proposed += num_proposed
        self.num_stood += num_stood
        self.rate.learn(num_proposed, num_stood)

    def time(self, num_passes: int, seconds: float) -> None:
        """Learn how long a pass takes."""
        each = seconds / num_passes
        before = each if self.pass_seconds is None else self.pass_seconds
        each = min(each, 2 * before)  # it was held up, or had much to catch up with
        self.pass_seconds = _PASS_DECAY * before + (1 - _PASS_DECAY) * each


@dataclass(slots=True)
class Trials:
    """The knowledge of one proposer's proposals for one sequence, and when its next trial is due.

    A trial is of proposals that don't pay, made to learn whether they would by now.

    next_trial  the length of the sequence at which the proposer is tried again though it doesn't
                pay.
    """

    next_trial: int = 0
    wait: int = _FIRST_WAIT
    rate: Rate = field(default_factory=lambda: Rate(_SEQUENCE_DECAY))

    def learn(self, num_proposed: int, num_stood: int, length: int) -> None:
        """Learn how many proposals stood; `length` is the sequence's length now."""
        self.rate.learn(num_proposed, num_stood)
        if num_stood:
            self.wait = _FIRST_WAIT
        else:
            self.wait = min(2 * self.wait, _LONGEST_WAIT)
        self.next_trial = length + self.wait


@dataclass(slots=True)
class Candidate:
    """Proposals that a sequence could have.

    rate            see Rate.
    most            the number of proposals.
    position        of the first proposal.
    proposer        the proposer that makes each by a pass of a model, which takes pass_seconds for
                    all its sequences together; None if the proposals exist already.
    """

    rate: float
    most: int
    position: int
    proposer: Hashable | None = None
    pass_seconds: float = 0.0


def choose(
    candidates: Sequence[Candidate],
    num_streams: int,
    seconds: Callable[[Iterable[int]], Iterable[float]],
    most: int,
    marginal_seconds: float = 0.0,
) -> list[int]:
    """Return how many proposals of each candidate let a step give the most tokens a second.

    num_streams         tokens that the step gives without proposals.
    seconds             the time of the step without proposals, and with a proposal at each of these
                        positions added.
    most                the most proposals, of all candidates together.
    marginal_seconds    the least cost of a proposal where the step has prompts too.
    """
    order = _by_worth(candidates, most)
    chosen = [0] * len(candidates)
    taken = seconds(candidates[index].position + depth - 1 for _, index, depth in order)
    times = iter(taken)
    seconds_without = next(times)
    if not seconds_without:  # prices that were learnt from long prompts alone may say so
        return chosen
    base = best = num_streams / seconds_without
    tokens, passes = float(num_streams), 0.0
    deepest: dict[Hashable, int] = {}
    num_best = 0
    for number, ((worth, index, depth), step_seconds) in enumerate(
        zip(order, times, strict=True), start=1
    ):
        candidate = candidates[index]
        if candidate.proposer is not None and depth > deepest.get(candidate.proposer, 0):
            deepest[candidate.proposer] = depth
            passes += candidate.pass_seconds
        tokens += worth
        speed = tokens / (step_seconds + passes)
        if speed > best:
            best, num_best = speed, number
    if best < _LEAST_GAIN * base:
        return chosen
    for worth, index, depth in order[:num_best]:
        if worth >= best * marginal_seconds:
            chosen[index] = depth
    return chosen


def _by_worth(candidates: Sequence[Candidate], most: int) -> list[tuple[float, int, int]]:
    """List the proposals that are worth most: tokens that each gives, whose, and its place."""
    numbers = count()
    heap = [
        (-candidate.rate, next(numbers), index, 1)
        for index, candidate in enumerate(candidates)
        if candidate.most > 0
    ]
    heapq.heapify(heap)
    order: list[tuple[float, int, int]] = []
    while heap and len(order) < most and -heap[0][0] >= _LEAST_WORTH:
        worth, number, index, depth = heap[0]
        order.append((-worth, index, depth))
        candidate = candidates[index]
        if depth < candidate.most:
            heapq.heapreplace(heap, (worth * candidate.rate, number, index, depth + 1))
        else:
            heapq.heappop(heap)
    return order
