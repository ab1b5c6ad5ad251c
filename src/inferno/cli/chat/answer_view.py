"""An answer on a terminal, drawn while it is written: reasoning dimmed, the rest as Markdown.

Blocks that are finished are printed once and for all. Only the last one is drawn again as it grows;
while it is taller than the screen its end is shown, and all of it once it is finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from inferno.cli.chat.markdown import EMPTY, Line, last_block_start, rendered_lines
from inferno.cli.chat.tools import argument_lines
from inferno.cli.word_wrap import DIM, WordWrap, printable
from inferno.text.parsers.parser import Call, Part, Piece

_MIN_SECONDS = 0.03  # between two drawings: nobody sees more
_MOST_SHARE = 0.1  # of the time goes into drawing: the model needs the processor
_BOLD = "\x1b[1m"
_WAITING = Line("\x1b[2m…\x1b[0m", 1)


class AnswerView:
    """An answer on a terminal: call `feed` with pieces, then `finish`; `write` gets the output."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._write = write
        self._size = size
        self._reasoning = WordWrap(write, size)
        self._markdown: MarkdownStream | None = MarkdownStream(write, size)  # shows that we wait
        self._call: CallView | None = None
        self._has_printed = False

    def feed(self, piece: Piece) -> None:
        """Show one more piece of the answer; of a call its name, and its arguments once whole."""
        if piece.call is not None:
            self._of_call(piece.call).arguments += piece.text
        elif piece.part is Part.CONTENT:
            self._content().feed(piece.text)
        else:
            self._end_markdown()
            self._end_call()
            self._reasoning.feed(piece.text, DIM)
        self._has_printed = True

    def finish(self) -> None:
        """Show all that is left, as no more pieces come."""
        if self._call is not None:
            self._end_others()
        elif self._markdown is None:
            self._reasoning.finish()
            self._write("\n")
        self._end_markdown()

    def _content(self) -> MarkdownStream:
        if self._markdown is None:
            self._end_others()
            self._markdown = MarkdownStream(self._write, self._size)
        return self._markdown

    def _of_call(self, call: Call) -> CallView:
        if self._call is None or self._call.index != call.index:
            if self._markdown is None:
                self._end_others()
            self._end_markdown()
            self._call = CallView(call, self._write, self._size)
        return self._call

    def _end_others(self) -> None:
        """End reasoning or a call, and leave an empty line."""
        if self._call is not None:
            self._end_call()
            self._write("\n")
            return
        self._reasoning.finish()
        self._write("\n\n")
        self._reasoning = WordWrap(self._write, self._size)

    def _end_call(self) -> None:
        if self._call is not None:
            self._call.finish()
            self._call = None

    def _end_markdown(self) -> None:
        if self._markdown is not None:
            self._markdown.finish()
            if self._has_printed:
                self._write("\n")
            self._markdown = None


class CallView:
    """A call of a tool: its name at once, its arguments when they are whole."""

    def __init__(
        self, call: Call, write: Callable[[str], None], size: Callable[[], os.terminal_size]
    ) -> None:
        self.index = call.index
        self.arguments = ""
        self._live = LiveLines(write, size)
        self._live.draw([_line(f"call {call.name}", style=_BOLD)], [_WAITING])

    def finish(self) -> None:
        """Print the arguments, which are whole now."""
        self._live.draw([_line(f"  {line}") for line in argument_lines(self.arguments)], [])


class MarkdownStream:
    """Markdown, drawn piece by piece: call `feed`, then `finish`; `write` gets the output.

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
        """Print the rest of the text, which is whole now."""
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


class LiveLines:
    """Lines that are drawn over those drawn before, in one write, so that nothing flickers.

    size    asks for the terminal's size. When it has become narrower, terminals have wrapped the
            lines anew.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._write = write
        self._size = size
        self._shown: list[Line] = []  # the cursor stands behind the last of them

    def draw(self, final: Sequence[Line], live: Sequence[Line]) -> None:
        """Replace the live lines by `final`, for good, and draw `live` below.

        If the screen can't hold all live lines, only the last are shown.
        """
        columns, rows = self._size()
        shown = list(live[-max(1, rows - 1) :])
        lines = [*final, *shown]
        num_same = self._num_same(lines)
        up = sum(_num_rows(line, columns) for line in self._shown[num_same:]) - 1
        back = f"\x1b[{up}A" if up > 0 else ""
        body = "\n".join(f"{line.text}\x1b[K" for line in lines[num_same:])
        end = "\n" if lines and not shown else ""
        if lines or self._shown:
            self._write(f"\r{back}{body}\x1b[J{end}")
        self._shown = shown

    def _num_same(self, lines: Sequence[Line]) -> int:
        """Return how many lines at the top need no drawing; the cursor's line always does."""
        num_same = 0
        for old, new in zip(self._shown[:-1], lines[:-1], strict=False):
            if old != new:
                break
            num_same += 1
        return num_same


def _line(text: str, *, style: str = "") -> Line:
    text = printable(text)
    return Line(f"{style}{text}\x1b[0m" if style else text, len(text))


def _num_rows(line: Line, columns: int) -> int:
    return max(1, -(-line.width // columns))
