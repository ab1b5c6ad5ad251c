"""Text that breaks between words, however it is cut into pieces."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from inferno.cli.word_wrap import DIM, WordWrap


def wrapped(*pieces: str, columns: int = 20) -> str:
    written: list[str] = []
    wrap = WordWrap(written.append, lambda: os.terminal_size((columns, 24)))
    for piece in pieces:
        wrap.feed(piece)
    wrap.finish()
    return "".join(written)


def test_lines_break_between_words() -> None:
    said = wrapped("The quick brown fox jumps over the lazy dog.")
    assert said == "The quick brown fox\njumps over the lazy\ndog."


def test_a_word_that_comes_in_pieces_stays_whole() -> None:
    assert (
        wrapped("A very long conver", "sation", " follows") == "A very long\nconversation\nfollows"
    )


def test_lines_of_the_text_and_their_indentation_stay() -> None:
    assert wrapped("def f():\n    return 1\n\n\tx") == "def f():\n    return 1\n\n        x"


def test_a_word_longer_than_a_line_is_cut() -> None:
    assert (
        wrapped("a " + "x" * 25, columns=11) == "a\n" + "x" * 10 + "\n" + "x" * 10 + "\n" + "x" * 5
    )


def test_wide_letters_break_anywhere_and_fit() -> None:
    lines = wrapped("漢字" * 10, columns=10).split("\n")
    assert "".join(lines) == "漢字" * 10
    assert {cell_len(line) for line in lines[:-1]} == {8}


def test_wide_letters_do_not_wait_for_the_end_of_a_word() -> None:
    written: list[str] = []
    wrap = WordWrap(written.append, lambda: os.terminal_size((80, 24)))
    wrap.feed("漢字")
    assert "".join(written) == "漢字"


def test_a_style_ends_with_its_text_even_within_a_word() -> None:
    written: list[str] = []
    wrap = WordWrap(written.append, lambda: os.terminal_size((80, 24)))
    wrap.feed("Once upon a ti", DIM)
    wrap.feed("me, there")
    wrap.end_line()
    said = "".join(written)
    assert f"{DIM}ti\x1b[0mme," in said
    assert re.sub(r"\x1b\[\d*m", "", said) == "Once upon a time, there\n"
    assert said.count(DIM) == said.count("\x1b[0m")


def test_nothing_steers_the_terminal() -> None:
    assert wrapped("a\x1b[2Jb\rc\x07") == "a\ufffd[2Jbc\ufffd"


LETTERS = st.sampled_from(["a", "b", " ", "\n", "漢", "e\u0301"])
TEXTS = st.lists(LETTERS, max_size=60).map("".join)


@given(TEXTS, st.integers(4, 12), st.lists(st.integers(0, 80)))
def test_no_word_is_lost_and_no_line_too_long(text: str, columns: int, cuts: list[int]) -> None:
    ends = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(ends)]
    said = wrapped(*pieces, columns=columns)
    assert said == wrapped(text, columns=columns)  # whatever the pieces
    assert "".join(said.split()) == "".join(text.split())
    for line in said.split("\n"):
        assert cell_len(line.rstrip()) < columns or not line.strip()
    given, shown = Counter(text.split()), Counter(said.split())
    for word, count in given.items():
        if "漢" not in word and cell_len(word) < columns:
            assert shown[word] >= count
