"""`inferno` in a terminal of its own: a person's keys go in, and a screen shows what comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType

import pyte

from tests.forked import Program, forker
from tests.patience import PATIENCE

INFERNO = [sys.executable, "-m", "inferno"]
ENTER, CTRL_C, CTRL_D, ESCAPE, UP = "\r", "\x03", "\x04", "\x1b", "\x1b[A"


class Terminal:
    """A program in a pseudo-terminal; leaving the context kills it.

    program     and its arguments; where none is given, Python forked with its modules imported.
    start       what that Python runs.
    variables   change its environment; None takes one away.
    """

    def __init__(
        self,
        *arguments: str,
        program: Sequence[str] | None = None,
        start: Sequence[str] = ("-m", "inferno"),
        columns: int = 80,
        rows: int = 24,
        variables: Mapping[str, str | None] | None = None,
    ) -> None:
        changes: dict[str, str | None] = {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
        changes |= {"COLUMNS": None, "LINES": None}  # of another terminal, if there
        changes |= variables or {}
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1.0)
        self._stream = pyte.ByteStream(self._screen)
        self._num_bytes = 0
        self._fd, inside = pty.openpty()
        self.resize(columns, rows)
        if program is None:
            self._program: Program | subprocess.Popen[bytes] = forker().start(
                [*start, *arguments], [inside] * 3, variables=changes, is_terminal=True
            )
        else:
            merged: dict[str, str | None] = {**os.environ, **changes}
            self._program = subprocess.Popen(
                [*program, *arguments],
                preexec_fn=partial(os.login_tty, inside),
                env={name: value for name, value in merged.items() if value is not None},
            )
        os.close(inside)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._fd)

    def type(self, keys: str) -> None:
        """Press keys, one after the other."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller; the system tells the program."""
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, text: str, *, times: int = 1, seconds: float = PATIENCE) -> None:
        """Go on until the text is to be seen so often, words wrapped or not."""
        deadline = time.monotonic() + seconds
        while " ".join(self.text.split()).count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.text}"
            assert self.read(0.1), f"it ended without {text!r}:\n{self.text}"

    def wait_for_more(self, num_bytes: int = 200) -> None:
        """Go on until so much more has come."""
        enough = self._num_bytes + num_bytes
        deadline = time.monotonic() + PATIENCE
        while self._num_bytes < enough:
            assert time.monotonic() < deadline, f"no more than:\n{self.text}"
            assert self.read(0.1), f"it ended with:\n{self.text}"

    def wait_for_end(self, *, seconds: float = PATIENCE) -> int:
        """Go on until the program ends; returns its exit code."""
        deadline = time.monotonic() + seconds
        while self.read(0.1):
            assert time.monotonic() < deadline, f"it goes on after:\n{self.text}"
        return self._program.wait(PATIENCE)

    def ends_within(self, seconds: float) -> bool:
        """Go on until the program ends, or for so long; whether it has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.read(0.1):
                return True
        return False

    @property
    def text(self) -> str:
        """Everything from the first line on, lines that scrolled off included."""
        above = [
            "".join(line[column].data for column in range(self._screen.columns))
            for line in self._screen.history.top
        ]
        lines = [*above, *self._screen.display]
        return "\n".join(line.rstrip() for line in lines).rstrip()

    @property
    def colours(self) -> set[str]:
        """Of the letters on the screen, beside the default."""
        lines = self._screen.buffer.values()
        return {letter.fg for line in lines for letter in line.values()} - {"default"}

    @property
    def is_at_line_start(self) -> bool:
        """Whether what comes next begins a line, as a shell's prompt must."""
        return self._screen.cursor.x == 0

    @property
    def is_echoing(self) -> bool:
        """Whether the terminal shows what is typed, as it must when a program has ended."""
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def read(self, seconds: float) -> bool:
        """Take in what comes within the time; False at the program's end."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if ready:
            try:
                content = os.read(self._fd, 65536)
            except OSError:  # on Linux, the other side is closed
                return False
            self._stream.feed(content)
            self._num_bytes += len(content)
            return bool(content)
        return True
