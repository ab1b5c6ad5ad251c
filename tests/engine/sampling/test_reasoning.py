"""Outputs reason freely, end that in time, and are bound from their answers' first token on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from inferno.engine.sampling.constraints import Mask, empty_mask, set_bit
from inferno.engine.sampling.reasoning import ReasoningConstraint
from inferno.requests import Reasoning

VOCAB_SIZE = 70
END = 0
OPEN, CLOSE, GAP, OTHER_MARK = 1, 2, 3, 4
ANSWER = (10, 11, 12)


class Fixed:
    """Lets an answer be one text, and then the end."""

    def __init__(self) -> None:
        self.num_said = 0

    def mask_into(self, mask: Mask) -> None:
        set_bit(mask, (*ANSWER, END)[self.num_said], is_allowed=True)

    def accept(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            assert token_id == (*ANSWER, END)[self.num_said]
            self.num_said += 1

    def forced(self, most: int) -> Sequence[int]:
        return ANSWER[self.num_said :][:most]

    def rollback(self, num_tokens: int) -> None:
        self.num_said -= num_tokens
        assert self.num_said >= 0

    @property
    def is_complete(self) -> bool:
        return self.num_said == len(ANSWER)

    @property
    def num_to_end(self) -> int:
        return len(ANSWER) - self.num_said

    def fits(self, num_tokens: int) -> bool:
        return self.num_to_end <= num_tokens

    def next_to_end(self) -> int:
        return ANSWER[self.num_said]


THINK = Reasoning((OPEN,), (), (CLOSE, GAP), frozenset((OPEN, CLOSE)), is_open=False)
CHANNELS = Reasoning(
    (5, 6, 7), (5, 8, 7), (CLOSE, 9, 5, 8, 7), frozenset((5, CLOSE, 7, 9)), is_open=False
)
OPENED = Reasoning((OPEN,), (), (CLOSE,), frozenset((OPEN, CLOSE)), is_open=True)


def constraint(
    reasoning: Reasoning, budget: int | None = None, *, is_bound: bool = True
) -> ReasoningConstraint:
    return ReasoningConstraint(
        reasoning,
        Fixed() if is_bound else None,
        budget=budget,
        never=frozenset((END,)),
        vocab_size=VOCAB_SIZE,
    )


def allowed(bound: ReasoningConstraint) -> set[int]:
    mask = empty_mask(VOCAB_SIZE)
    bound.mask_into(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:VOCAB_SIZE]
    return set(np.flatnonzero(bits).tolist())


@pytest.mark.parametrize("reasoning", [THINK, CHANNELS, OPENED])
@pytest.mark.parametrize("budget", [None, 0, 3])
@pytest.mark.parametrize("num_tokens", [12, 20, 60])
def test_a_random_output_ends_with_its_answer_in_time(
    reasoning: Reasoning, budget: int | None, num_tokens: int
) -> None:
    for seed in range(50):
        generator = random.Random(seed)
        bound = constraint(reasoning, budget)
        said: list[int] = []
        while not bound.is_complete:
            token_id = generator.choice(sorted(allowed(bound)))
            if forced := bound.forced(1):
                assert allowed(bound) == {forced[0]}
            bound.accept((token_id,))
            if not bound.fits(num_tokens - len(said) - 1):
                bound.rollback(1)
                token_id = bound.next_to_end()
                assert token_id in allowed(bound)
                bound.accept((token_id,))
            said.append(token_id)
        assert len(said) <= num_tokens
        assert tuple(said[-len(ANSWER) :]) == ANSWER
        assert END not in said
        before = said[: -len(ANSWER)]
        if before:
            closes = reasoning.closes if reasoning.closes[0] in before else reasoning.skips
            assert tuple(before[len(before) - len(closes) :]) == closes
        if budget is not None and CLOSE in before:
            num_reasoned = before.index(CLOSE) - (0 if reasoning.is_open else len(reasoning.opens))
            assert num_reasoned <= budget
        assert allowed(bound) == {END}


def test_reasoning_alone_is_bounded_and_its_answer_is_free() -> None:
    bound = constraint(THINK, 2, is_bound=False)
    assert allowed(bound) == set(range(VOCAB_SIZE))
    bound.accept((OPEN, 20, 21))
    assert allowed(bound) == {CLOSE}
    bound.accept((CLOSE,))
    assert allowed(bound) == {GAP}
    bound.accept((GAP,))
    assert allowed(bound) == set(range(VOCAB_SIZE))
    assert (bound.num_to_end, bound.fits(0), bound.is_complete) == (None, True, False)


def test_a_rollback_leads_back_to_every_place() -> None:
    said = (5, 6, 7, 30, 31, CLOSE, 9, 5, 8, 7, *ANSWER)
    bound = constraint(CHANNELS)
    masks = []
    for token_id in said:
        masks.append(allowed(bound))
        bound.accept((token_id,))
    for num_tokens in range(1, len(said) + 1):
        bound.rollback(num_tokens)
        assert allowed(bound) == masks[-num_tokens]
        bound.accept(said[-num_tokens:])
        assert bound.is_complete


def test_marks_have_no_place_inside_of_reasoning() -> None:
    bound = constraint(CHANNELS)
    bound.accept((5, 6, 7))
    assert allowed(bound) == set(range(VOCAB_SIZE)) - {END, 5, 7, 9}
    bound.accept((CLOSE,))
    with pytest.raises(ValueError, match="doesn't follow"):
        bound.accept((30,))
