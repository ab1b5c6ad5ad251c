"""Regular expressions as trees: the constructors keep what matches, and find simple forms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from inferno.grammar.printing import to_llguidance
from inferno.grammar.regex import (
    ANY,
    ANY_TEXT,
    EMPTY,
    MAX_DEPTH,
    NOTHING,
    Chars,
    Regex,
    Repeat,
    Seq,
    alt,
    both,
    can_be_empty,
    char_set,
    chars,
    complement_of,
    depth_of,
    literal,
    repeat,
    seq,
    size_of,
    without,
)
from tests.grammar.languages import language, simplified, trees

A, B, AB = literal("a"), literal("b"), literal("ab")


@given(trees())
@settings(max_examples=300, deadline=None)
def test_the_constructors_keep_the_language(tree: Regex) -> None:
    assert language(simplified(tree)) == language(tree)
    assert can_be_empty(tree) == ("" in language(tree))


@pytest.mark.parametrize(
    ("built", "simple"),
    [
        (chars((5, 9), (1, 3), (4, 6)), Chars(((1, 9),))),
        (chars((0xD000, 0xE000)), Chars(((0xD000, 0xD7FF), (0xE000, 0xE000)))),
        (chars((0xD800, 0xDFFF)), NOTHING),
        (char_set("cab"), chars((97, 99))),
        (complement_of(NOTHING), ANY),
        (complement_of(ANY), NOTHING),
        (complement_of(complement_of(char_set("a\U0001f600"))), char_set("a\U0001f600")),
        (literal(""), EMPTY),
        (seq(A, seq(B, EMPTY), seq(AB)), literal("abab")),
        (seq(A, NOTHING, B), NOTHING),
        (seq(AB), AB),
        (alt(), NOTHING),
        (alt(A, AB, B, AB, NOTHING), alt(char_set("ab"), AB)),
        (alt(AB, alt(A, alt(B))), alt(AB, char_set("ab"))),
        (alt(EMPTY, AB), Repeat(AB, 0, 1)),
        (alt(repeat(AB, 0, 1), A), repeat(alt(AB, A), 0, 1)),
        (alt(AB, ANY_TEXT), ANY_TEXT),
        (repeat(A, 1, 1), A),
        (repeat(AB, 0, 0), EMPTY),
        (repeat(EMPTY, 3, None), EMPTY),
        (repeat(NOTHING, 0, 5), EMPTY),
        (repeat(NOTHING, 1, 5), NOTHING),
        (repeat(repeat(A, 0, None), 2, 3), repeat(A, 0, None)),
        (repeat(repeat(A, 1, 100), 1, 100), repeat(A, 1, 10_000)),
        (repeat(repeat(A, 2, 2), 3, 3), repeat(A, 6, 6)),
        (repeat(alt(EMPTY, AB), 2, 5), repeat(AB, 0, 5)),
        (both(), ANY_TEXT),
        (both(ANY_TEXT, AB), AB),
        (both(repeat(ANY, 2, 5), repeat(A, 0, 3)), repeat(A, 2, 3)),
        (both(repeat(ANY, 4, 5), repeat(A, 0, 3)), NOTHING),
        (both(A, B), NOTHING),
        (without(without(AB)), AB),
        (without(NOTHING), ANY_TEXT),
        (without(ANY_TEXT), NOTHING),
    ],
)
def test_simple_forms_are_found(built: Regex, simple: Regex) -> None:
    assert built == simple


def test_counts_between_which_some_are_missing_stay_as_they_are() -> None:
    assert repeat(repeat(A, 2, 2), 0, 3) == Repeat(Repeat(A, 2, 2), 0, 3)
    assert repeat(repeat(A, 2, None), 0, 3) == Repeat(Repeat(A, 2, None), 0, 3)


@pytest.mark.parametrize("bounds", [(5, 3), (-1, 3), (0, 0x110000)])
def test_what_is_no_range_of_characters_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="range of code points"):
        chars(bounds)


def test_what_is_no_text_or_no_count_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        literal("a\ud800")
    with pytest.raises(ValueError, match="number of times"):
        repeat(A, 3, 2)


def test_depth_and_size_are_those_of_the_tree_whatever_is_shared() -> None:
    tree: Regex = A
    for _ in range(20):
        tree = Seq((tree, tree))
    assert depth_of(tree) == 21
    assert size_of(tree) == 2**21 - 1


def test_a_tree_that_is_too_deep_is_refused_without_deep_calls() -> None:
    tree: Regex = A
    for _ in range(100_000):
        tree = Seq((tree, B))
    assert depth_of(tree) > MAX_DEPTH
    with pytest.raises(ValueError, match="levels deep"):
        to_llguidance(tree)
