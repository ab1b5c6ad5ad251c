"""Log lines: one JSON object each, and nothing secret in them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import threading
import time
import warnings
from typing import Any

import pytest

from inferno.log_format import MAX_BYTES, JsonFormatter, TextFormatter, shorten
from inferno.server.api_keys import read_keys
from inferno.server.http.log_writer import logging_to_stderr
from inferno.server.settings import ServerSettings
from tests.server.http.direct import JSON, LOCAL, ask, in_middleware

NASTY = ["a\nb", "\x1b[31mred", "\x00", "\u202edrow", "\ud800", "é" * 400, "x" * 10_000_000, "\x7f"]


def _logged(**settings: Any) -> contextlib.AbstractContextManager[io.StringIO]:
    @contextlib.contextmanager
    def capture() -> Any:
        stream = io.StringIO()
        before, sys.stderr = sys.stderr, stream
        try:
            with logging_to_stderr(ServerSettings(**settings)):
                yield stream
        finally:
            sys.stderr = before

    return capture()


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_whatever_is_logged_is_one_short_line(text: str, kind: type[JsonFormatter]) -> None:
    record = logging.LogRecord("inferno", logging.INFO, "f", 1, "%s", (text,), None)
    record.fields = {"path": text, "list": [text]}
    line = kind(process="server", with_messages=False).format(record)
    assert len(line.splitlines()) == 1
    assert line.isascii() or kind is TextFormatter
    assert line.isprintable() or "\x7f" in line
    assert len(line) < 12 * MAX_BYTES
    if kind is JsonFormatter:
        assert json.loads(line)["path"] == shorten(text)


def test_lines_for_people_are_plain_and_begin_with_what_matters() -> None:
    record = logging.LogRecord("inferno", logging.WARNING, "f", 1, "request", (), None)
    record.fields = {
        "request_id": "req-1",
        "method": "GET",
        "route": "none",
        "path": "/a b",
        "status": 404,
        "at": ["http://127.0.0.1:80"],
        "why": "two words",
        "none": None,
    }
    line = TextFormatter(process="server", with_messages=False).format(record)
    assert line[19:] == (
        ' WARNING GET "/a b" 404 request_id=req-1 at=http://127.0.0.1:80 why="two words" none=null'
    )
    assert time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_a_long_text_is_cut_within_its_bytes(text: str) -> None:
    cut = shorten(text)
    assert len(cut.encode("utf-8", errors="replace")) <= MAX_BYTES
    assert cut == text or cut.endswith("...")


def test_a_request_is_one_line_without_key_prompt_or_query() -> None:
    middleware = in_middleware(api_keys=read_keys(["secret-key"], None, {}))
    headers = [LOCAL, JSON, (b"authorization", b"Bearer secret-key"), (b"x-request-id", b"mine")]
    with _logged() as stream:
        body = [b'{"max_tokens": 2, "prompt": 3, "text": "secret-prompt"}']
        ask(middleware, "POST", "/v1/completions", headers, body)
        ask(middleware, "GET", "/health")
    (line,) = _lines(stream)
    assert "secret" not in stream.getvalue()
    assert line.items() >= {
        *(("request_id", "mine"), ("method", "POST"), ("status", 200), ("prompt_tokens", 3)),
        *(("completion_tokens", 2), ("key", "key-1"), ("level", "info")),
    }
    assert line["duration_ms"] >= line["ttft_ms"] > 0


def test_what_others_say_in_the_servers_process_is_a_line_too() -> None:
    with _logged() as stream:
        warnings.warn("an old way\nof two lines", stacklevel=1)
        logging.getLogger("asyncio").error("a task failed")
        logging.getLogger("uvicorn.error").warning("hm")
        logging.getLogger("asyncio").info("chatter")
    lines = _lines(stream)
    told = [(line["process"], line["level"], line["logger"]) for line in lines]
    assert told == [
        ("server", "warning", "py.warnings"),
        ("server", "error", "asyncio"),
        ("server", "warning", "uvicorn.error"),
    ]
    assert "UserWarning: an old way\nof two lines" in lines[0]["message"]


def test_a_mistake_is_told_by_its_place_and_not_by_its_words() -> None:
    with _logged() as stream:
        ask(in_middleware(), "POST", "/broken")
    (line,) = _lines(stream)
    assert line["exception"] == "ValueError"
    assert line["at"][-1].endswith(" small_app")
    assert "secret" not in stream.getvalue()
    with _logged(log_level="debug") as stream:
        ask(in_middleware(), "POST", "/broken")
    assert _lines(stream)[0]["error"] == "secret prompt"


class _Stuck(io.StringIO):
    """Nobody reads it until somebody does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = threading.Event()

    def write(self, text: str) -> int:
        self.is_read.wait()
        return super().write(text)


def test_a_reader_that_is_stuck_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferno.server.http.log_writer._MAX_WAITING", 10)
    stuck = _Stuck()
    monkeypatch.setattr(sys, "stderr", stuck)
    with logging_to_stderr(ServerSettings()):
        for number in range(1000):
            logging.getLogger("inferno.server").info("line %d", number)
        stuck.is_read.set()
    assert 10 <= len(_lines(stuck)) <= 20  # those on their way, and those that wait


def test_a_reader_that_stays_stuck_does_not_keep_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inferno.server.http.log_writer._LAST_LINES_SECONDS", 0.05)
    stuck = _Stuck()
    monkeypatch.setattr(sys, "stderr", stuck)
    with logging_to_stderr(ServerSettings()):
        logging.getLogger("inferno.server").info("line")
    stuck.is_read.set()
