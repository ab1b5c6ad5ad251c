"""Where log lines go: to standard error, by a thread, so that a stuck reader stops nobody."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from inferno.server.edge.log_format import JsonFormatter, TextFormatter
from inferno.server.settings import ServerSettings

_MAX_WAITING = 10_000
_LAST_LINES_SECONDS = 1.0
_LOGGERS = ("inferno", "uvicorn")


@contextlib.contextmanager
def logging_to_stderr(settings: ServerSettings) -> Iterator[None]:
    """Our lines and uvicorn's, in the settings' format, while this is open."""
    lines: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
    handler = _ToQueue(lines)
    formatter = TextFormatter if settings.log_format == "text" else JsonFormatter
    handler.setFormatter(formatter(with_messages=settings.log_level == "debug"))
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
        # uvicorn informs of each start and stop, which we do ourselves.
        logger.setLevel("WARNING" if level == "INFO" and logger.name == "uvicorn" else level)
    try:
        yield
    finally:
        for logger, (handlers, old_level, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(old_level)


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
