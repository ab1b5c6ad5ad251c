"""Tests of inferno.cli.chat.answer_view on an emulated terminal."""

from __future__ import annotations

import pytest

from inferno.cli.chat.answer_view import AnswerView
from inferno.text.parsers.parser import Part, Piece
from tests.cli.chat.test_markdown_stream import Screen


def show(*pieces: tuple[Part, str]) -> tuple[list[str], str]:
    """The lines of the screen, and all that was written to it."""
    screen, written = Screen(), list[str]()

    def write(text: str) -> None:
        written.append(text)
        screen.write(text)

    view = AnswerView(write, screen.size)
    for part, text in pieces:
        for character in text:
            view.feed(Piece(part, character))
    view.finish()
    return screen.lines, "".join(written)


def test_reasoning_is_dim_and_stands_above_the_answer() -> None:
    lines, written = show((Part.REASONING, "Two and *two*."), (Part.CONTENT, "It is **four**."))
    assert lines == ["Two and *two*.", "", "It is four."]
    assert "\x1b[2mTwo\x1b[0m" in written


def test_an_answer_without_reasoning_is_markdown_alone() -> None:
    lines, written = show((Part.CONTENT, "It is **four**."))
    assert lines == ["It is four."]
    assert "\x1b[2mI" not in written


@pytest.mark.parametrize("part", Part)
def test_nothing_is_lost_where_a_part_follows_the_answer(part: Part) -> None:
    lines, _ = show((Part.CONTENT, "One."), (part, "Two."), (Part.CONTENT, "Three."))
    assert "".join(lines).replace(" ", "") == "One.Two.Three."


def test_an_answer_that_ends_while_it_reasons_ends_its_line() -> None:
    lines, written = show((Part.REASONING, "Hm, two"))
    assert lines == ["Hm, two"]
    assert written.endswith("\n")


def test_reasoning_cannot_steer_the_terminal() -> None:
    _, written = show((Part.REASONING, "\x1b[31mred"))
    assert "\x1b[31m" not in written
