"""Lines at the bottom of a terminal that are drawn again and again until they are final."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from inferno.cli.chat.markdown import Line


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
        """Put `final` in the place of what is live now, for good, and `live` below it.

        Of live lines that the screen can't hold only the last are shown.
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


def _num_rows(line: Line, columns: int) -> int:
    return max(1, -(-line.width // columns))
