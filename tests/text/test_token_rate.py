"""Tests of TokenRate: tokens per second, where that can be known."""

from __future__ import annotations

import pytest

from inferno.text.completion import TokenRate


def rate_of(*arrivals: tuple[int, float]) -> float | None:
    rate = TokenRate()
    for num_tokens, now in arrivals:
        rate.note(num_tokens, now)
    return rate.per_second


def test_tokens_that_come_one_by_one_have_their_pace() -> None:
    assert rate_of(*((1, 5 + i / 50) for i in range(11))) == pytest.approx(50)


def test_tokens_that_come_with_the_first_tell_nothing() -> None:
    assert rate_of((30, 5.0), (1, 5.02), (9, 5.2)) == pytest.approx(10 / 0.2)


def test_tokens_that_come_often_in_a_short_time_are_fast() -> None:
    assert rate_of(*((1, 5 + i / 8192) for i in range(9))) == pytest.approx(8192)


@pytest.mark.parametrize(
    "arrivals", [[], [(1, 5.0)], [(64, 5.0)], [(1, 5.0), (63, 5.000_01)], [(1, 5.0), (1, 5.0)]]
)
def test_what_can_not_be_known_is_none(arrivals: list[tuple[int, float]]) -> None:
    assert rate_of(*arrivals) is None
