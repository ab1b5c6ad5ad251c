"""Expect a step's time by the prices of its parts, learnt from earlier steps.

A step costs a fixed part (each weight is read once), a part per row of logits and its draw, a part
per token, and attention: a part per key that a token sees, and one per key that a chunk reads.
Tokens have three prices, for the first of a step hide behind the reading of weights, and the last
fill the processor. Prices are never negative, and fit the measured times with the least relative
error. So a step that was held up for once, by a page fault or a busy machine, counts little.

Observations are kept apart by the size of steps, so a long time with nothing but small steps
doesn't make the model forget the cost of prompts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from operator import mul

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Where a further token of a step begins to have another price.
_FEW, _SOME = 16, 64
# Before anything is known of a price: how it compares with the fixed part of a small step, as
# measured for a model of 0.6 billion weights. In the order of StepWork's figures.
_FIRST_GUESS = (1.0, 1 / 64, 1 / 8, 1 / 8, 1 / 8, 1 / 40_000, 1 / 4_000)
_NUM_PRICES = len(_FIRST_GUESS)

_SIZES = (4, _FEW, _SOME, 4 * _SOME)  # tokens at most in the classes of steps; the last has none
_MEMORY = 16  # steps of a class that count
# A fit takes 0.1 ms, so it is worth while after so many seconds of steps, or so many steps.
_FIT_SECONDS, _FIT_STEPS = 0.05, 256
_NUM_SWEEPS = 8
_RIDGE = 1e-4  # what holds a price where it was, beside what was seen


@dataclass(slots=True)
class StepWork:
    """The work of a step, as counts that have prices.

    window      the longest window of the model's layers; None where one of them sees everything.
    num_rows    of logits: one per chunk, and one per proposal.
    num_pairs   the keys that each token sees, summed; num_keys: the keys that each chunk reads,
                summed.
    """

    window: int | None = None
    num_rows: int = 0
    num_tokens: int = 0
    num_pairs: int = 0
    num_keys: int = 0

    def add(self, start: int, num_tokens: int, proposed: int = 0) -> None:
        """Count a chunk of so many tokens from position `start` on, and proposals after them."""
        self.num_rows += 1
        self.num_tokens += num_tokens
        window = self.window
        if window is None or start + num_tokens <= window:
            self.num_pairs += num_tokens * start + num_tokens * (num_tokens + 1) // 2
            self.num_keys += start + num_tokens
        else:
            num_growing = max(0, window - start)  # tokens that don't see a whole window yet
            self.num_pairs += num_growing * start + num_growing * (num_growing + 1) // 2
            self.num_pairs += (num_tokens - num_growing) * window
            self.num_keys += min(start, window) + num_tokens
        for position in range(start + num_tokens, start + num_tokens + proposed):
            self.widen(position)

    def widen(self, position: int) -> None:
        """Count a proposal at a position: one more token of a chunk, with logits of its own."""
        self.num_rows += 1
        self.num_tokens += 1
        self.num_pairs += position + 1 if self.window is None else min(position + 1, self.window)
        self.num_keys += 1

    def with_chunk(self, start: int, num_tokens: int) -> StepWork:
        """Return the work of the same step with one more chunk."""
        more = StepWork(self.window)
        more.num_rows, more.num_tokens = self.num_rows, self.num_tokens
        more.num_pairs, more.num_keys = self.num_pairs, self.num_keys
        more.add(start, num_tokens)
        return more

    def with_proposal(self, *positions: int) -> StepWork:
        """Return the work of the same step with proposals at the given positions."""
        more = replace(self)
        for position in positions:
            more.widen(position)
        return more

    @property
    def figures(self) -> tuple[int, ...]:
        """Return the counts in the order of the prices."""
        tokens = self.num_tokens
        few, some = min(tokens, _FEW), min(max(tokens - _FEW, 0), _SOME - _FEW)
        more = tokens - few - some
        return (1, self.num_rows, few, some, more, self.num_pairs, self.num_keys)


class StepCostModel:
    """A model of a step's time, which learns from each step within microseconds."""

    def __init__(self) -> None:
        self._prices: list[float] | None = None
        self._seen: list[tuple[tuple[int, ...], float]] = []  # figures and seconds, not fitted yet
        self._seen_seconds = 0.0
        # Of each class: how many steps count, and the mean of the outer products of their figures
        # for each second that they took.
        self._weights = np.zeros(len(_SIZES) + 1)
        self._products = np.zeros((len(_SIZES) + 1, _NUM_PRICES, _NUM_PRICES))
        self._sums = np.zeros((len(_SIZES) + 1, _NUM_PRICES))

    def observe(self, work: StepWork, seconds: float) -> None:
        """Take in how long a step took."""
        if not work.num_tokens or not 0 < seconds < math.inf:
            return
        self._seen.append((work.figures, seconds))
        self._seen_seconds += seconds
        is_due = self._seen_seconds >= _FIT_SECONDS or len(self._seen) >= _FIT_STEPS
        if is_due or self._prices is None:
            self._fit()

    def expect(self, work: StepWork) -> float | None:
        """Return the seconds that a step will take; None before anything is known."""
        if self._prices is None:
            return None
        seconds: float = sum(map(mul, self._prices, work.figures))
        return seconds

    def expect_more(self, num_tokens: int, window: int | None) -> float | None:
        """Return the seconds that a chunk of a sequence's first tokens adds to a step.

        What the step costs anyway is left out. Returns None before any step.
        """
        if self._prices is None:
            return None
        work = StepWork(window)
        fixed = self.expect(work) or 0.0
        return (self.expect(work.with_chunk(0, num_tokens)) or 0.0) - fixed

    @property
    def overhead(self) -> float:
        """Return the seconds of a large step that its tokens would not add to another step."""
        if self._prices is None:
            return 0.0
        fixed, _, few, some, more, *_ = self._prices
        return max(0.0, fixed + _FEW * (few - more) + (_SOME - _FEW) * (some - more))

    def most_tokens(self, work: StepWork, start: int, most: int, seconds: float) -> int:
        """Return how many of a chunk's next tokens, at most `most`, fit into a step's time."""
        if self._prices is None or self._takes(work, start, most) <= seconds:
            return most
        low, high = 0, most  # `low` fits, `high` may
        while low < high:
            middle = (low + high + 1) // 2
            if self._takes(work, start, middle) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low

    def _takes(self, work: StepWork, start: int, num_tokens: int) -> float:
        return self.expect(work.with_chunk(start, num_tokens)) or 0.0

    def _fit(self) -> None:
        figures = np.array([each for each, _ in self._seen], np.float64)
        seconds = np.array([each for _, each in self._seen])
        classes = np.array([bisect_left(_SIZES, sum(each[2:5])) for each, _ in self._seen])
        self._seen.clear()
        self._seen_seconds = 0.0
        rates = figures / seconds[:, None]
        if self._prices is None:
            guess = np.array(_FIRST_GUESS)
            self._prices = (guess / (rates[0] @ guess)).tolist()
        for kind in set(classes.tolist()):
            self._remember(kind, rates[classes == kind])
        products: Floats = np.tensordot(self._weights, self._products, 1)
        sums: Floats = self._weights @ self._sums
        self._prices = _sweep(products.tolist(), sums.tolist(), self._prices)

    def _remember(self, kind: int, rates: Floats) -> None:
        """Add steps to their class, where they push the oldest out."""
        num_old = max(0.0, min(self._weights[kind], _MEMORY - len(rates)))
        num_all = num_old + len(rates)
        old = num_old / num_all
        self._products[kind] = old * self._products[kind] + rates.T @ rates / num_all
        self._sums[kind] = old * self._sums[kind] + rates.sum(0) / num_all
        self._weights[kind] = min(num_all, _MEMORY)


def _sweep(products: list[list[float]], sums: list[float], prices: list[float]) -> list[float]:
    """Return better prices: each in turn is made the best beside the others, and at least 0.

    The sum of (1 - rates @ prices) squared is to be small, over all steps that count.
    Plain lists, for numpy takes longer to be called than so few products take.
    """
    found = list(prices)
    seen = [index for index in range(_NUM_PRICES) if products[index][index] > 0]
    for _ in range(_NUM_SWEEPS):
        for index in seen:
            row, own = products[index], products[index][index]
            missing = sums[index] - sum(map(mul, row, found))
            # (1 + _RIDGE) own x = sums - (row @ others) + _RIDGE own x_before
            best = found[index] + (missing - _RIDGE * own * (found[index] - prices[index])) / (
                own * (1 + _RIDGE)
            )
            found[index] = max(0.0, best)
    return found
