"""Text for a terminal while it is being written: lines break between words, not inside them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from rich.cells import cell_len

DIM = "\x1b[2m"
_RESET = "\x1b[0m"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TAB = 8


def printable(text: str) -> str:
    """Return the text without what would steer the terminal."""
    return _CONTROL.sub("\ufffd", text.replace("\r", ""))


class WordWrap:
    """Text wrapped for the terminal: feed it pieces, then finish it; `write` gets the lines.

    A word is held back until its end has come, as only then it is known whether it fits. Letters
    as wide as two columns, as in Chinese, may end a line each.

    size    asks for the terminal's size, which may change meanwhile.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._write = write
        self._size = size
        self._column = 0
        self._spaces = ""
        self._word: list[tuple[str, str]] = []  # letters, each with its style
        self._word_width = 0
        self._out: list[str] = []

    def feed(self, text: str, style: str = "") -> None:
        """Add text, in a style given as an escape code."""
        width = max(1, self._size().columns - 1)  # the last column makes terminals differ
        for letter in printable(text):
            if letter == "\n":
                self._end_word(width)
                self._out.append(letter)
                self._spaces, self._column = "", 0
            elif letter.isspace():
                self._end_word(width)
                column = self._column + len(self._spaces)
                self._spaces += " " * (_TAB - column % _TAB) if letter == "\t" else " "
            else:
                self._add(letter, style, width)
        self._send()

    def finish(self) -> None:
        """Write the last word, as no more text comes."""
        self._end_word(max(1, self._size().columns - 1))
        self._send()

    def end_line(self) -> None:
        """Write the last word, and end the line if it is not ended, as no more text comes."""
        self.finish()
        if self._column or self._spaces:
            self._write("\n")
            self._column, self._spaces = 0, ""

    def _add(self, letter: str, style: str, width: int) -> None:
        cells = cell_len(letter)
        if cells > 1 or self._word_width + cells > width:
            self._end_word(width)
        self._word.append((style, letter))
        self._word_width += cells
        if cells > 1:
            self._end_word(width)

    def _end_word(self, width: int) -> None:
        if not self._word:
            return
        if self._column and self._column + len(self._spaces) + self._word_width > width:
            self._out.append("\n")
            self._column = 0
        else:
            spaces = self._spaces[: max(0, width - self._column - self._word_width)]
            self._out.append(spaces)
            self._column += len(spaces)
        self._out += [
            f"{style}{letter}{_RESET}" if style else letter for style, letter in _runs(self._word)
        ]
        self._column += self._word_width
        self._word, self._word_width, self._spaces = [], 0, ""

    def _send(self) -> None:
        if self._out:
            self._write("".join(self._out))
            self._out = []


def _runs(letters: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join neighbouring letters of one style."""
    runs: list[tuple[str, str]] = []
    for style, letter in letters:
        if runs and runs[-1][0] == style:
            runs[-1] = (style, runs[-1][1] + letter)
        else:
            runs.append((style, letter))
    return runs
