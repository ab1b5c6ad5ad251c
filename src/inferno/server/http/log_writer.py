"""Write log lines to standard error in a thread, so that a stuck reader blocks no request.

The thread is woken a few times a second, not for each line: waking takes Python's lock from the
event loop, which on busy cores costs more than the rest of an error's answer.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import TextIO

from inferno.log_format import LogFormat, make_formatter
from inferno.server.settings import ServerSettings

_MAX_WAITING = 10_000
_PAUSE_SECONDS = 0.03
_LAST_LINES_SECONDS = 1.0
_OWN_LOGGER = "inferno"
_LOGGERS = (_OWN_LOGGER, "uvicorn", "asyncio", "py.warnings")


@contextlib.contextmanager
def logging_to_stderr(settings: ServerSettings) -> Iterator[None]:
    """Write our log, uvicorn's, asyncio's and Python's warnings, in the settings' format."""
    lines = _Lines()
    handler = _ToQueue(lines)
    formatter = make_formatter(
        LogFormat(settings.log_format),
        process="server",
        with_messages=settings.log_level == "debug",
    )
    handler.setFormatter(formatter)
    writer = threading.Thread(target=_write, args=(lines, sys.stderr), name="log", daemon=True)
    writer.start()
    try:
        with _handled_by(handler, settings.log_level.upper()):
            yield
    finally:
        lines.close()
        writer.join(_LAST_LINES_SECONDS)


@contextlib.contextmanager
def _handled_by(handler: logging.Handler, level: str) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(_level_of(logger.name, level))
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, (handlers, old_level, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(old_level)


def _level_of(name: str, level: str) -> str:
    """Others inform of what nobody needs, uvicorn of each start and stop, which we do ourselves."""
    if name == _OWN_LOGGER or (name == "uvicorn" and level == "DEBUG"):
        return level
    return "ERROR" if level == "ERROR" else "WARNING"


class _Lines:
    """Lines that wait to be written; some are lost where they come faster than they can be."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._are_there = threading.Event()
        self._is_closed = threading.Event()

    def put(self, line: str) -> None:
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(line)
            if not self._are_there.is_set():
                self._are_there.set()

    def close(self) -> None:
        """Let `take` give what is left and then None: no line follows."""
        self._is_closed.set()
        self._are_there.set()

    def take(self) -> list[str] | None:
        """Wait for lines, and a moment for more; return all that are there, or None at the end."""
        self._are_there.wait()
        self._is_closed.wait(_PAUSE_SECONDS)
        if not self._is_closed.is_set():
            self._are_there.clear()
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return None if self._is_closed.is_set() and not taken else taken


class _ToQueue(logging.Handler):
    """A handler that loses lines which come faster than they can be written, rather than wait."""

    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(self.format(record))


def _write(lines: _Lines, stream: TextIO) -> None:
    while (taken := lines.take()) is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            stream.write("".join(f"{line}\n" for line in taken))
            stream.flush()
