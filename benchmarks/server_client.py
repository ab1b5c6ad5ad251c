"""A client of a server under load that costs little: it keeps bytes, and reads them later."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, cast

from server_process import KEY

_END_OF_STREAM = b"0\r\n\r\n"
_USUAL = {
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "ignore_eos": True,
    "skip_special_tokens": False,  # so that every token has a text to send
}


class Exchange(asyncio.Protocol):
    """One request on a connection of its own, and all that came back, piece by piece.

    leave_after     hang up after so many pieces.
    """

    def __init__(self, request: bytes, leave_after: int | None = None) -> None:
        self.begun = time.perf_counter()
        self.arrivals: list[float] = []
        self.received = bytearray()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._leave_after = leave_after
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.arrivals.append(time.perf_counter())
        self.received += data
        if len(self.arrivals) == self._leave_after or self._is_whole(data):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def status(self) -> int:
        """Of the answer; 0 where none came."""
        return int(self.received[9:12] or b"0")

    @property
    def head(self) -> bytes:
        """Of the answer, in lower case."""
        return bytes(self.received.partition(b"\r\n\r\n")[0].lower())

    @property
    def seconds(self) -> float:
        """From the request to the last piece."""
        return self.arrivals[-1] - self.begun if self.arrivals else float("inf")

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of a stream, but for [DONE]."""
        lines = self.received.split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]

    @property
    def text(self) -> str:
        """Of a stream of a completion."""
        return "".join(choice["text"] for event in self.events for choice in event["choices"])

    @property
    def num_tokens(self) -> int:
        """Those that the server counted; 0 of a stream that was left."""
        usages = [event.get("usage") for event in self.events]
        return sum(usage["completion_tokens"] for usage in usages if usage)

    def _is_whole(self, data: bytes) -> bool:
        if data.endswith(_END_OF_STREAM):
            return True
        head, separator, body = self.received.partition(b"\r\n\r\n")
        _, name, rest = head.lower().partition(b"content-length: ")
        return bool(separator and name) and len(body) >= int(rest.split(b"\r\n")[0])


async def ask(port: int, request: bytes, leave_after: int | None = None) -> Exchange:
    """Send one request and wait for the end; OSError where nobody listens."""
    loop = asyncio.get_running_loop()
    _, exchange = await loop.create_connection(
        lambda: Exchange(request, leave_after), "127.0.0.1", port
    )
    await exchange.over
    return exchange


async def ask_all(port: int, requests: Iterable[bytes], concurrency: int) -> list[Exchange]:
    """Send all requests, so many at a time."""
    waiting, done = iter(requests), list[Exchange]()

    async def work() -> None:
        for request in waiting:
            done.append(await ask(port, request))

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return done


def completion(prompt: list[int], **fields: Any) -> bytes:
    """A streamed completion that goes on to its end, and tells how many tokens it had."""
    return post("/v1/completions", {"prompt": prompt, **_USUAL, **fields})


def post(path: str, fields: dict[str, Any]) -> bytes:
    """The bytes of a request."""
    body = json.dumps(fields).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str) -> bytes:
    """The bytes of a request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()


def prompts(num_tokens: int, vocab_size: int) -> Iterator[list[int]]:
    """Random ones, without end, so that no prefix cache knows them."""
    random = Random()
    while True:
        yield random.choices(range(vocab_size), k=num_tokens)
