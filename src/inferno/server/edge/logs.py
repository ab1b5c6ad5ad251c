"""Where log lines go: to standard error, by a thread, so that a stuck reader stops nobody."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from inferno.log_format import LogFormat, make_formatter
from inferno.server.settings import ServerSettings

_MAX_WAITING = 10_000
_LAST_LINES_SECONDS = 1.0
_OWN_LOGGER = "inferno"
_LOGGERS = (_OWN_LOGGER, "uvicorn", "asyncio", "py.warnings")


@contextlib.contextmanager
def logging_to_stderr(settings: ServerSettings) -> Iterator[None]:
    """Our lines, uvicorn's, asyncio's and Python's warnings, in the settings' format."""
    lines: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
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
        with contextlib.suppress(queue.Full):
            lines.put(None, timeout=_LAST_LINES_SECONDS)
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


class _ToQueue(logging.Handler):
    """Loses lines that come faster than they can be written, rather than wait or grow."""

    def __init__(self, lines: queue.Queue[str | None]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(self.format(record))


def _write(lines: queue.Queue[str | None], stream: TextIO) -> None:
    while (line := lines.get()) is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            stream.write(line + "\n")
            stream.flush()
