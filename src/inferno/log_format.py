"""Format log lines, as JSON objects or text, whatever a client put into a header."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Mapping
from enum import StrEnum

MAX_BYTES = 512
_MAX_FRAMES = 20
_WORD = re.compile(r"[\w./:@%+\[\]-]+")


class LogFormat(StrEnum):
    """The format of log lines: JSON for programs, or text for people."""

    JSON = "json"
    TEXT = "text"


def usual_format() -> LogFormat:
    """Return the default format: text where standard error is a terminal, else JSON."""
    is_read = sys.stderr is not None and sys.stderr.isatty()
    return LogFormat.TEXT if is_read else LogFormat.JSON


def make_formatter(
    log_format: LogFormat, *, process: str, with_messages: bool
) -> logging.Formatter:
    """Return the formatter of one process's log lines, which writes text or JSON."""
    kind = TextFormatter if log_format is LogFormat.TEXT else JsonFormatter
    return kind(process=process, with_messages=with_messages)


class JsonFormatter(logging.Formatter):
    """A formatter of JSON lines, with keys for `extra`'s `fields` and for the `process`.

    An exception is told by its type and where it was raised. Its message may quote a prompt, so it
    is written only with `with_messages`.
    """

    def __init__(self, *, process: str, with_messages: bool) -> None:
        super().__init__()
        self._process = process
        self._with_messages = with_messages

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": shorten(record.getMessage()),
            **{key: _safe(value) for key, value in _fields(record).items()},
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            line |= self._describe(record.exc_info[1])
        return json.dumps(line)  # ASCII: control characters and lone surrogates are escaped

    def _describe(self, error: BaseException) -> dict[str, object]:
        frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
        at = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        said = {"error": shorten(str(error))} if self._with_messages else {}
        return {"exception": type(error).__name__, "at": at, **said}


class TextFormatter(JsonFormatter):
    """A formatter for people: time, level, message, and the fields after it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = json.loads(super().format(record))
        for key in ("time", "logger", "process"):
            del line[key]
        level, message = str(line.pop("level")).upper(), line.pop("message")
        if message == "request" and {"method", "route", "status"} <= line.keys():
            route = line.pop("route")  # where there is none, the path is told
            said = (line.pop("method"), line.pop("path", route), line.pop("status"))
            message = " ".join(map(_plain, said))
        time_ = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        fields = " ".join(f"{key}={_plain(value)}" for key, value in line.items())
        return _printable(f"{time_} {level:7} {message} {fields}".rstrip())


def shorten(text: str) -> str:
    """Return the beginning of a text, as many bytes as a log line takes."""
    raw = text[:MAX_BYTES].encode("utf-8", errors="replace")
    if len(text) <= MAX_BYTES and len(raw) <= MAX_BYTES:
        return text
    return raw[: MAX_BYTES - 3].decode("utf-8", errors="ignore") + "..."


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


def _safe(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_safe(item) for item in value[:16]]
    return shorten(str(value))


def _plain(value: object) -> str:
    """Return a value without quotes, where it needs none to be told from what follows."""
    if isinstance(value, list):
        return ",".join(map(_plain, value))
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    return json.dumps(value)


def _timestamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
