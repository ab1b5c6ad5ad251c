"""One streamed request to a server, timed as its text comes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from inferno.bench.load import Load, RequestResult
from inferno.http_post import Answer, post

_MAX_ERROR = 64 << 10
_MAX_EVENT = 4 << 20
_MAX_WORDS = 200
_MOST_COUNTED = 1 << 53


async def run_request(load: Load, body: bytes) -> RequestResult:
    """Send a request and time its answer; a failure is told as the result's `problem`."""
    seen = _Seen()
    begun, problem = time.perf_counter(), None
    limit = asyncio.timeout(load.timeout)
    try:
        async with limit, post(load.target, body, load.headers) as answer:
            problem = await _read(answer, seen)
    except OSError as error:  # a TimeoutError is one, and the system has its own
        problem = str(error) or type(error).__name__
        if limit.expired():
            problem = f"not done within {load.timeout:g} seconds"
    return RequestResult(
        begun=begun,
        ended=time.perf_counter(),
        arrivals=tuple(seen.arrivals),
        prompt_tokens=seen.usage.get("prompt_tokens"),
        completion_tokens=seen.usage.get("completion_tokens"),
        problem=None if problem is None else problem[:_MAX_WORDS],
    )


class _Seen:
    """The events of a stream so far: arrivals of text, token counts, and whether it is done."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.usage: dict[str, int] = {}
        self.is_done = False

    def note(self, data: bytes) -> str | None:
        """Take one event's data; returns what is wrong, if it says so."""
        now = time.perf_counter()
        if data == b"[DONE]":
            self.is_done = True
            return None
        match _parse(data):
            case {"error": error} if error is not None:
                return _words(error)
            case {"choices": list(choices), **others}:
                if any(map(_has_text, choices)):
                    self.arrivals.append(now)
                self._count(others.get("usage"))
                return None
        return "an event is not what OpenAI's are"

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.usage = {
                name: num
                for name, num in usage.items()
                if type(num) is int and 0 <= num < _MOST_COUNTED
            }


async def _read(answer: Answer, seen: _Seen) -> str | None:
    if answer.status != 200:
        match _parse(await answer.read(_MAX_ERROR)):
            case {"error": error}:
                return f"status {answer.status}: {_words(error)}"
        return f"status {answer.status}"
    async with aclosing(answer.pieces()) as pieces:
        async for data in _events(pieces):
            problem = seen.note(data)
            if problem is not None or seen.is_done:
                return problem
    return "the stream ended without [DONE]"


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event; OpenAI's have one line of it."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _MAX_EVENT:
            raise ConnectionError("an event is larger than 4 MiB")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _has_text(choice: Any) -> bool:
    match choice:
        case {"text": str(text)}:
            return bool(text)
        case {"delta": {"content": str(text)}} if text:
            return True
        case {"delta": {"reasoning_content": str(text)} | {"reasoning": str(text)}}:
            return bool(text)
    return False


def _parse(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _words(error: object) -> str:
    """Return what an error says, without what would steer a terminal."""
    match error:
        case {"message": str(words)} | str(words):
            return "".join(each if each.isprintable() else "\ufffd" for each in words)
    return "an error without a message"
