"""Markdown on a terminal while it is written, as a terminal emulator shows it."""

from __future__ import annotations

import os

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.cli.chat import answer_view
from inferno.cli.chat.answer_view import MarkdownStream
from inferno.cli.chat.markdown import last_block_start, rendered_lines
from inferno.cli.word_wrap import printable

DOCUMENT = """# A title

Some **bold** text and `code`, in a paragraph that is long enough to be wrapped.
A second line with <b>tags</b> & more.

- one
- two
  - nested

```python
def f(x):
    return x + 1
```

| a | b |
|---|---|
| 1 | 2 |

> quoted

1. first

2. second

The end.
"""


class Screen:
    """A terminal emulator, its scrolled-off lines included; counts what it is asked to do."""

    def __init__(self, columns: int = 60, rows: int = 12) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1.0)
        self._stream = pyte.Stream(self._screen)
        self.num_writes = 0

    def write(self, text: str) -> None:
        self.num_writes += 1
        self._stream.feed(text.replace("\n", "\r\n"))  # as a terminal's driver does

    def size(self) -> os.terminal_size:
        return os.terminal_size((self._screen.columns, self._screen.lines))

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    @property
    def lines(self) -> list[str]:
        """All lines, from the first that ever was to the last that is not empty."""
        above = [
            "".join(line[column].data for column in range(self._screen.columns))
            for line in self._screen.history.top
        ]
        return (
            "\n".join(line.rstrip() for line in [*above, *self._screen.display])
            .rstrip()
            .split("\n")
        )


@pytest.fixture(autouse=True)
def _draw_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_view, "_MIN_SECONDS", 0.0)
    monkeypatch.setattr(answer_view, "_MOST_SHARE", 1e9)


def show(screen: Screen, text: str, *, step: int = 1) -> list[str]:
    stream = MarkdownStream(screen.write, screen.size)
    for start in range(0, len(text), step):
        stream.feed(text[start : start + step])
    stream.finish()
    return screen.lines


def test_a_document_looks_as_it_should() -> None:
    assert show(Screen(), DOCUMENT) == [
        "A title",
        "",
        "Some bold text and code, in a paragraph that is long enough",
        "to be wrapped.",
        "A second line with <b>tags</b> & more.",
        "",
        " • one",
        " • two",
        "    • nested",
        "",
        " def f(x):",
        "     return x + 1",
        "",
        " a  b",
        " ────",
        " 1  2",
        "",
        "▌ quoted",
        "",
        " 1 first",
        " 2 second",
        "",
        "The end.",
    ]


@pytest.mark.parametrize("step", [1, 7, 50])
@pytest.mark.parametrize("rows", [4, 12, 50])
def test_neither_the_pieces_nor_the_screen_change_what_is_left(step: int, rows: int) -> None:
    assert show(Screen(60, rows), DOCUMENT, step=step) == show(Screen(60, 50), DOCUMENT, step=10**4)


def test_a_block_taller_than_the_screen_is_whole_in_the_end() -> None:
    code = "\n".join(f"line {number}" for number in range(100))
    lines = show(Screen(40, 10), f"Look:\n\n```\n{code}\n```\n\nDone.", step=20)
    assert lines == ["Look:", "", *(f" line {number}" for number in range(100)), "", "Done."]


def test_while_it_grows_the_end_of_a_tall_block_is_in_sight() -> None:
    screen = Screen(40, 10)
    stream = MarkdownStream(screen.write, screen.size)
    for number in range(50):
        stream.feed(f"- item {number}\n")
        assert screen.lines[-1] == f" • item {number}"
        assert len(screen.lines) < 10


def test_what_was_there_before_stays() -> None:
    screen = Screen(40, 8)
    screen.write("".join(f"before {number}\n" for number in range(20)))
    lines = show(screen, DOCUMENT, step=4)
    assert lines[:20] == [f"before {number}" for number in range(20)]
    assert lines[20] == "A title"


def test_each_drawing_is_one_write_that_clears_nothing_first() -> None:
    written: list[str] = []
    stream = MarkdownStream(written.append, lambda: os.terminal_size((60, 12)))
    for char in "some words that\n\nare written":
        before = len(written)
        stream.feed(char)
        assert len(written) - before <= 1
    assert not any(text.startswith(("\r\x1b[J", "\r\x1b[K")) for text in written)


@pytest.mark.parametrize("columns", [24, 100])
def test_a_resize_leaves_one_answer(columns: int) -> None:
    text = " ".join(f"word{number}" for number in range(30))
    screen = Screen(60, 24)
    stream = MarkdownStream(screen.write, screen.size)
    for number, word in enumerate(text.split(" ")):
        if number == 15:
            screen.resize(columns, 24)
        stream.feed(word + " ")
    stream.finish()
    assert " ".join(" ".join(screen.lines).split()) == text
    assert max(map(len, screen.lines)) < columns


def test_nothing_in_a_text_steers_the_terminal() -> None:
    screen = Screen()
    lines = show(screen, "a\x1b[2Jb\x07c\rd\x9b1me\r\nf")
    assert lines == ["a\ufffd[2Jb\ufffdcd\ufffd1me", "f"]


def test_an_answer_without_text_leaves_nothing() -> None:
    assert show(Screen(), "") == [""]
    assert show(Screen(), "\n\n") == [""]


def test_a_waiting_mark_is_there_until_the_first_word() -> None:
    screen = Screen()
    stream = MarkdownStream(screen.write, screen.size)
    assert screen.lines == ["…"]
    stream.feed("hello")
    assert screen.lines == ["hello"]


markdown = st.lists(
    st.sampled_from(
        [*"#*_-`>|~![]()<&1.:\\", "\n", "\n\n", "    ", "```", "word ", "ä日本🙂", "|-|-|\n", "\t"]
    ),
    max_size=40,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(markdown, st.integers(1, 5), st.integers(1, 40), st.integers(2, 12))
def test_any_text_ends_as_if_it_came_at_once(text: str, step: int, columns: int, rows: int) -> None:
    """What is printed for good never has to change: pieces and whole texts leave the same words."""
    width = max(columns, 10)
    in_pieces = show(Screen(width, rows), text, step=step)
    at_once = show(Screen(width, rows), text, step=10**6)
    assert "".join("".join(in_pieces).split()) == "".join("".join(at_once).split())


@settings(max_examples=100, deadline=None)
@given(markdown, st.integers(0, 50))
def test_no_line_is_wider_than_asked(text: str, width: int) -> None:
    assert all(line.width <= max(width, 8) for line in rendered_lines(text, width))


@settings(max_examples=100, deadline=None)
@given(markdown)
def test_the_last_block_begins_at_a_line(text: str) -> None:
    start = last_block_start(printable(text))
    assert start == 0 or text[start - 1] == "\n"
