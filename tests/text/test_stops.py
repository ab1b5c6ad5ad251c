"""Tests of inferno.text.stops against a search through the whole text."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno.text.stops import StopStrings

SHORT = st.text("abc", max_size=30)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def first_stop(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Where the first stop string to be complete ends, and the longest that ends there."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end, max(found, key=len)
    return None


def run(stops: list[str], parts: list[str], *, include: bool = False) -> tuple[str, str | None]:
    sought = StopStrings(stops, include=include)
    shown, found = "", None
    for part in parts:
        text, stop = sought.feed(part)
        shown += text
        found = found or stop
    return shown + sought.finish(), found


@given(text=SHORT, stops=STOPS, cuts=st.lists(st.integers(0, 30)), include=st.booleans())
def test_text_ends_at_the_first_stop_string_however_it_is_cut(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    parts = [text[start:end] for start, end in pairwise([0, *sorted(cuts), len(text)])]
    expected: tuple[str, str | None] = (text, None)
    if (match := first_stop(text, stops)) is not None:
        end, stop = match
        expected = (text[:end] if include else text[: end - len(stop)], stop)
    assert run(stops, parts, include=include) == expected


@given(text=SHORT, stops=STOPS)
def test_only_what_may_become_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    sought = StopStrings(stops)
    shown = ""
    for end, character in enumerate(text, start=1):
        piece, stop = sought.feed(character)
        if stop is not None:
            return
        shown += piece
        beginnings = [
            stop[:length]
            for stop in stops
            for length in range(1, len(stop))
            if text[:end].endswith(stop[:length])
        ]
        assert shown + max(beginnings, key=len, default="") == text[:end]


def test_nothing_passes_after_a_stop_string() -> None:
    sought = StopStrings(["END"])
    assert sought.feed("one END two") == ("one ", "END")
    assert sought.feed("three END") == ("", None)
    assert sought.finish() == ""


def test_without_stop_strings_everything_passes_at_once() -> None:
    assert StopStrings([]).feed("text") == ("text", None)


@pytest.mark.parametrize("include", [False, True])
def test_of_stop_strings_that_end_together_the_longest_counts(include: bool) -> None:
    shown, stop = run(["b", "ab", "aab"], ["xa", "ab!"], include=include)
    assert (shown, stop) == ("xaab" if include else "x", "aab")


def test_the_work_does_not_grow_with_the_length_of_a_stop_string() -> None:
    text = "a" * 20_000

    def seconds(length: int) -> float:
        sought = StopStrings(["a" * length + "b"] * 16)
        start = time.process_time()
        for character in text:
            sought.feed(character)
        return time.process_time() - start

    assert min(seconds(500) for _ in range(3)) < 5 * min(seconds(5) for _ in range(3))
