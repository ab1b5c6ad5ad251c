"""Numbers by their values: which spellings a set has, against exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno.grammar.decide import matches
from inferno.grammar.json_numbers import (
    ALL_NUMBERS,
    Bound,
    Kind,
    Numbers,
    TooCostly,
    decimal_text,
    meet_numbers,
    other_numbers,
    spelled_numbers,
)

# JSON's grammar of numbers (RFC 8259), without exponents.
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")

_VALUES = st.builds(
    lambda digits, places: Fraction(digits, 10**places), st.integers(-1500, 1500), st.integers(0, 3)
)
_BOUNDS = st.none() | st.builds(Bound, _VALUES, st.booleans())
_DIVISORS = st.frozensets(
    st.sampled_from([Fraction(each) for each in ("1", "2", "3", "5", "12", "1.5", "0.25", "0.01")]),
    max_size=1,
)
_SETS = st.builds(
    Numbers, st.sampled_from(Kind), _BOUNDS, _BOUNDS, _DIVISORS, st.just(frozenset()),
    st.frozensets(_VALUES, max_size=2),
)  # fmt: skip
_TEXTS = st.one_of(
    _VALUES.map(decimal_text),
    st.from_regex(r"-?[0-9]{0,4}(\.[0-9]{0,4})?", fullmatch=True),
    st.builds(lambda value, zeros: f"{float(value)}{zeros}", _VALUES, st.sampled_from(["", "00"])),
)


@given(_SETS, st.lists(_TEXTS, min_size=20, max_size=20))
def test_a_set_has_the_spellings_of_its_members_alone(numbers: Numbers, texts: list[str]) -> None:
    numbers = meet_numbers(numbers, numbers)
    if numbers == ALL_NUMBERS:
        return
    spelled = spelled_numbers(numbers)
    for text in texts:
        is_number = _JSON_NUMBER.fullmatch(text) is not None
        is_member = is_number and Fraction(text) in numbers
        if matches(spelled, text):
            assert is_member, text
        elif is_member:
            assert text != decimal_text(Fraction(text))


@given(_SETS, _SETS, st.lists(_VALUES, min_size=20, max_size=20))
def test_sets_meet_and_have_others(one: Numbers, two: Numbers, values: list[Fraction]) -> None:
    common = meet_numbers(one, two)
    others = other_numbers(one)
    for value in values:
        assert (value in common) == (value in one and value in two)
        assert any(value in each for each in others) == (value not in one)


def test_all_numbers_are_those_of_json_within_a_double() -> None:
    spelled = spelled_numbers(ALL_NUMBERS)
    good = ("0", "-0.0", "1e5", "1.5E-289", "9" * 309, "-1.25e+9")
    bad = ("01", "1.", ".5", "+1", "1e400", "9" * 310, "NaN", "Infinity", "0x1", "1e", "")
    assert all(matches(spelled, text) for text in good)
    assert not any(matches(spelled, text) for text in bad)


def test_a_divisor_with_many_remainders_is_refused_unless_bounds_leave_few_multiples() -> None:
    numbers = Numbers(Kind.INTEGER, divisors=frozenset([Fraction(7)]))
    with pytest.raises(TooCostly):
        spelled_numbers(numbers)
    bounded = Numbers(Kind.INTEGER, Bound(Fraction(-20)), Bound(Fraction(20)), numbers.divisors)
    members = [str(each) for each in range(-30, 30) if matches(spelled_numbers(bounded), str(each))]
    assert members == ["-14", "-7", "0", "7", "14"]
