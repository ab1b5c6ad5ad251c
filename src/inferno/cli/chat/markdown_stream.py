"""Markdown that appears on a terminal while it is being written.

Blocks that are finished are printed once and for all. Only the last one is drawn again as it grows;
while it is taller than the screen its end is shown, and all of it once it is finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from inferno.cli.chat.live_lines import LiveLines
from inferno.cli.chat.markdown import EMPTY, Line, last_block_start, rendered_lines
from inferno.cli.word_wrap import printable

_MIN_SECONDS = 0.03  # between two drawings: nobody sees more
_MOST_SHARE = 0.1  # of the time goes into drawing: the model needs the processor
_WAITING = Line("\x1b[2m…\x1b[0m", 1)


class MarkdownStream:
    """Markdown drawn as it grows: feed it pieces, then finish it; `write` gets the output.

    size    asks for the terminal's size, which may change meanwhile.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._live = LiveLines(write, size)
        self._size = size
        self._text = ""  # what is not printed for good
        self._has_printed = False
        self._next_drawing = 0.0
        self._live.draw([], [_WAITING])

    def feed(self, text: str) -> None:
        """Add text, and draw it unless the last drawing was a moment ago."""
        self._text += printable(text)
        start = time.perf_counter()
        if start >= self._next_drawing:
            self._draw(last_block_start(self._text))
            took = time.perf_counter() - start
            self._next_drawing = start + max(_MIN_SECONDS, took / _MOST_SHARE)

    def finish(self) -> None:
        """Print what is left for good, as no more text comes."""
        self._draw(len(self._text))

    def _draw(self, num_finished: int) -> None:
        width = self._size().columns - 1  # a character in the last column makes terminals differ
        final = self._block(self._text[:num_finished], width)
        self._has_printed = self._has_printed or bool(final)
        self._text = self._text[num_finished:]
        self._live.draw(final, self._block(self._text, width))

    def _block(self, text: str, width: int) -> list[Line]:
        """Return the text's lines, and an empty one between them and what was printed."""
        lines = rendered_lines(text, width)
        return [EMPTY, *lines] if lines and self._has_printed else lines
