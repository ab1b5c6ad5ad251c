"""An answer on a terminal, part by part: reasoning dimmed, the rest as Markdown."""

from __future__ import annotations

import os
from collections.abc import Callable

from inferno.cli.chat.markdown_stream import MarkdownStream
from inferno.cli.word_wrap import DIM, WordWrap
from inferno.text.parsers.parser import Part, Piece


class AnswerView:
    """An answer on a terminal: feed it the pieces, then finish it; `write` gets the output."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._write = write
        self._size = size
        self._reasoning = WordWrap(write, size)
        self._markdown: MarkdownStream | None = MarkdownStream(write, size)  # shows that we wait
        self._has_printed = False

    def feed(self, piece: Piece) -> None:
        """Show one more piece of the answer; a call of a tool is shown as part of the reasoning."""
        if piece.part is Part.CONTENT:
            self._content().feed(piece.text)
        else:
            self._end_markdown()
            self._reasoning.feed(piece.text, DIM)
        self._has_printed = True

    def finish(self) -> None:
        """Show all that is left, as no more pieces come."""
        if self._markdown is None:
            self._reasoning.finish()
            self._write("\n")
        self._end_markdown()

    def _content(self) -> MarkdownStream:
        if self._markdown is None:
            self._reasoning.finish()
            self._write("\n\n")
            self._reasoning = WordWrap(self._write, self._size)
            self._markdown = MarkdownStream(self._write, self._size)
        return self._markdown

    def _end_markdown(self) -> None:
        if self._markdown is not None:
            self._markdown.finish()
            if self._has_printed:
                self._write("\n")
            self._markdown = None
