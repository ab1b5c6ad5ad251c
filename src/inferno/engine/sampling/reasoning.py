"""Constrain an output that begins with free reasoning and ends with an answer of some shape."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from inferno.engine.sampling.constraints import (
    MAX_ROLLBACK,
    Constraint,
    Mask,
    empty_mask,
    set_bit,
)
from inferno.requests import Reasoning, Request

_ALL = np.int32(-1)


def after_reasoning(
    request: Request, answer: Constraint | None, vocab_size: int
) -> Constraint | None:
    """Return the constraint of an output whose answer has a shape, and which may reason first."""
    if request.reasoning is None:
        return answer
    return ReasoningConstraint(
        request.reasoning,
        answer,
        budget=request.params.thinking_token_budget,
        never=request.eos_token_ids,
        vocab_size=vocab_size,
    )


class _Phase(Enum):
    BEFORE = auto()  # of tokens that begin the reasoning or the answer
    REASONING = auto()
    CLOSING = auto()  # of tokens between the two
    ANSWER = auto()


class _Place(NamedTuple):
    """The progress of an output: so many tokens in its phase.

    runs    what may come next before the reasoning or the answer: what is left of either run.
    """

    phase: _Phase
    num_tokens: int = 0
    runs: tuple[tuple[bool, tuple[int, ...]], ...] = ()  # whether it begins reasoning; its rest


class ReasoningConstraint:
    """A constraint that lets a model reason, ends that in time, and then constrains the answer.

    answer      the constraint of the answer; None allows any.
    budget      tokens of reasoning at most; None: as many as leave room for the answer.
    never       tokens that would end the output; they are banned while it reasons if the answer has
                a shape.
    """

    def __init__(
        self,
        reasoning: Reasoning,
        answer: Constraint | None,
        *,
        budget: int | None,
        never: frozenset[int],
        vocab_size: int,
    ) -> None:
        self._reasoning = reasoning
        self._answer = answer
        self._budget = budget
        self._free = empty_mask(vocab_size)
        self._free[:] = _ALL
        self._inside = self._free.copy()
        for token_id in (never if answer is not None else frozenset()) | reasoning.marks:
            if token_id != reasoning.closes[0]:
                set_bit(self._inside, token_id, is_allowed=False)
        if reasoning.is_open:
            first = _Place(_Phase.REASONING)
        else:
            runs = ((True, reasoning.opens), (False, reasoning.skips))
            first = _Place(_Phase.BEFORE, runs=runs)
        self._places = [first]

    def mask_into(self, mask: Mask) -> None:
        place = self._places[-1]
        match place.phase:
            case _Phase.BEFORE:
                if any(not rest for _, rest in place.runs):
                    self._answer_into(mask)  # first, for it owns all bits
                for _, rest in place.runs:
                    if rest:
                        set_bit(mask, rest[0], is_allowed=True)
            case _Phase.REASONING if self._is_spent(place):
                set_bit(mask, self._reasoning.closes[0], is_allowed=True)
            case _Phase.REASONING:
                mask |= self._inside
            case _Phase.CLOSING:
                following = self._reasoning.closes[place.num_tokens]
                set_bit(mask, following, is_allowed=True)
            case _Phase.ANSWER:
                self._answer_into(mask)

    def forced(self, most: int) -> Sequence[int]:
        place, closes = self._places[-1], self._reasoning.closes
        match place.phase:
            case _Phase.REASONING if self._is_spent(place):
                return closes[:most]
            case _Phase.CLOSING:
                return closes[place.num_tokens :][:most]
            case _Phase.ANSWER if self._answer is not None:
                return self._answer.forced(most)
        return ()

    def accept(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            place = self._after(self._places[-1], token_id)
            is_answer = place.phase is _Phase.ANSWER and place.num_tokens > 0
            if is_answer and self._answer is not None:
                self._answer.accept((token_id,))
            self._places.append(place)
        del self._places[: -MAX_ROLLBACK - 1]

    def rollback(self, num_tokens: int) -> None:
        gone = self._places[len(self._places) - num_tokens :]
        del self._places[len(self._places) - num_tokens :]
        of_answer = sum(each.phase is _Phase.ANSWER and each.num_tokens > 0 for each in gone)
        if of_answer and self._answer is not None:
            self._answer.rollback(of_answer)

    @property
    def is_complete(self) -> bool:
        is_answer = self._places[-1].phase is _Phase.ANSWER
        return is_answer and self._answer is not None and self._answer.is_complete

    @property
    def num_to_end(self) -> int | None:
        if self._answer is None or (inner := self._answer.num_to_end) is None:
            return None
        return inner + len(self._way_to_answer())

    def fits(self, num_tokens: int) -> bool:
        rest = num_tokens - len(self._way_to_answer())
        return self._answer is None or self._answer.fits(rest)

    def next_to_end(self) -> int:
        assert self._answer is not None, "who asks knows that it didn't fit"
        way = self._way_to_answer()
        return way[0] if way else self._answer.next_to_end()

    def _is_spent(self, place: _Place) -> bool:
        return self._budget is not None and place.num_tokens >= self._budget

    def _answer_into(self, mask: Mask) -> None:
        if self._answer is None:
            mask |= self._free
        else:
            self._answer.mask_into(mask)

    def _after(self, place: _Place, token_id: int) -> _Place:
        match place.phase:
            case _Phase.BEFORE:
                runs = tuple(
                    (opens, rest[1:]) for opens, rest in place.runs if rest[:1] == (token_id,)
                )
                if not runs:
                    return _Place(_Phase.ANSWER, 1)  # a run before the answer had ended
                if len(runs) == 1 and not runs[0][1]:
                    return _Place(_Phase.REASONING if runs[0][0] else _Phase.ANSWER)
                return _Place(_Phase.BEFORE, runs=runs)
            case _Phase.REASONING if token_id == self._reasoning.closes[0]:
                return self._closing(1)
            case _Phase.CLOSING if token_id == self._reasoning.closes[place.num_tokens]:
                return self._closing(place.num_tokens + 1)
            case _Phase.CLOSING:
                raise ValueError(f"{token_id} doesn't follow the end of the reasoning")
            case _:
                return place._replace(num_tokens=place.num_tokens + 1)

    def _closing(self, num_tokens: int) -> _Place:
        is_done = num_tokens == len(self._reasoning.closes)
        return _Place(_Phase.ANSWER) if is_done else _Place(_Phase.CLOSING, num_tokens)

    def _way_to_answer(self) -> tuple[int, ...]:
        """Return the fewest tokens that lead to the answer's first."""
        place = self._places[-1]
        match place.phase:
            case _Phase.BEFORE:
                ways = [
                    rest + (self._reasoning.closes if opens else ()) for opens, rest in place.runs
                ]
                return min(ways, key=len)
            case _Phase.REASONING:
                return self._reasoning.closes
            case _Phase.CLOSING:
                return self._reasoning.closes[place.num_tokens :]
        return ()
