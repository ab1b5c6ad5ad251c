"""Write streams of server-sent events, as chunks come, with their usage."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from inferno.server.generation.call import completion_details, usage, while_connected
from inferno.server.http import (
    ApiError,
    ChunkWriter,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    api_error_of,
    chunk_writer_of,
    context_of,
    log_failure,
)
from inferno.server.openai.request_types import GenerateFields
from inferno.server.openai.response_types import Usage
from inferno.text.completion import Chunk
from inferno.text.completion import Usage as SequenceUsage

_DONE = b"data: [DONE]\n\n"
_COMMENT = b": keep-alive\n\n"
_encode = msgspec.json.Encoder().encode


def event(data: bytes, name: str = "") -> bytes:
    """Return the bytes of a server-sent event with some data, and perhaps a name."""
    first = f"event: {name}\n".encode() if name else b""
    return first + b"data: " + data + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """Return the event that ends a failed stream."""
    return event(error.body)


class SseResponse(Response):
    """A stream of events, which begins with the first of them.

    So an error before the first event has the status of that error; a later error is the last
    event, without [DONE].

    keep_alive      seconds of silence after which a comment is sent.
    done            bytes to write after the last event; write_error: makes the last event of a
                    failed stream.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        keep_alive: float,
        done: bytes = _DONE,
        write_error: Callable[[ApiError], bytes] = error_event,
    ) -> None:
        super().__init__(
            headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._events = events
        self._keep_alive = keep_alive
        self._done = done
        self._write_error = write_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream; when the client leaves, the request ends."""
        output = _EventWriter(send, self.raw_headers, chunk_writer_of(scope))
        try:
            await while_connected(receive, self._write(output, context_of(scope).request_id))
        except ClientDisconnected:
            if not output.has_begun:
                raise

    async def _write(self, output: _EventWriter, request_id: str) -> None:
        keeping_alive = asyncio.create_task(output.send_keep_alives(self._keep_alive))
        try:
            async with aclosing(self._events) as events:
                async for each in events:
                    await output.write(each)
            await output.write(self._done)
        except Exception as problem:
            if not output.has_begun:
                raise
            error = api_error_of(problem, request_id)
            if error.status == 500:
                log_failure(problem, request_id)
            await output.write(self._write_error(error))
        finally:
            keeping_alive.cancel()
        await output.end()


class _EventWriter:
    """The answer's bytes on their way to the client.

    writer      a shorter way than `send`, if there is one.
    """

    def __init__(
        self, send: Send, headers: list[tuple[bytes, bytes]], writer: ChunkWriter | None
    ) -> None:
        self.has_begun = False
        self._send = send
        self._headers = headers
        self._writer = writer
        self._is_writing = False
        self._now = asyncio.get_running_loop().time
        self._written_at = self._now()

    async def write(self, data: bytes) -> None:
        """Send a piece, after the headers; returns when the client takes more."""
        if not data:
            return
        self._is_writing = True
        if not self.has_begun:
            self.has_begun = True
            start = {"type": "http.response.start", "status": 200, "headers": self._headers}
            await self._send(start)
        if self._writer is not None:
            if self._writer.needs_drain:
                await self._writer.drain()
            self._writer.write(data)
        else:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._written_at = self._now()
        self._is_writing = False

    async def end(self) -> None:
        """Send the end of the answer."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send_keep_alives(self, keep_alive: float) -> None:
        """Send a comment whenever nothing was sent for so long, so that nobody hangs up."""
        while True:
            await asyncio.sleep(max(0.001, self._written_at + keep_alive - self._now()))
            if not self._is_writing and self._now() - self._written_at >= keep_alive:
                await self.write(_COMMENT)
            elif self._is_writing:
                await asyncio.sleep(keep_alive)  # the client doesn't read


class StreamUsage:
    """The usage of a stream; a choice's cached tokens and details are added when it ends."""

    def __init__(self, fields: GenerateFields, num_prompt_tokens: int) -> None:
        self._fields = fields
        self._prompt = num_prompt_tokens
        self._completion = 0
        self._cached = 0
        self._done: list[SequenceUsage] = []

    def add(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self._completion += len(chunk.token_ids)
        if (done := chunk.completion) is not None:
            self._done.append(done.usage)
            self._cached += done.usage.cached_tokens if done.sequence_index == 0 else 0

    @property
    def of_event(self) -> Usage | UnsetType | None:
        """Return an event's usage: so far; None if only the last event has it; or UNSET."""
        if self._fields.repeats_usage:
            return self.usage
        return None if self._fields.includes_usage else UNSET

    @property
    def usage(self) -> Usage:
        """Return the usage so far; a choice's cached tokens and details count at its end."""
        return usage(
            prompt=self._prompt,
            completion=self._completion,
            cached=self._cached,
            details=completion_details(self._done),
        )


class StreamInterval:
    """A filter that holds chunks back until a choice has `interval` new tokens, or is done."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._held: dict[tuple[int, int], list[Chunk]] = {}

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunk, or all waiting chunks merged into one once they are enough."""
        if self._interval == 1:
            yield chunk
            return
        choice = chunk.prompt_index, chunk.sequence_index
        held = self._held.setdefault(choice, [])
        held.append(chunk)
        num_tokens = sum(len(each.token_ids) for each in held)
        if chunk.completion is not None or num_tokens >= self._interval:
            del self._held[choice]
            yield _merged(held)


def _merged(chunks: list[Chunk]) -> Chunk:
    return chunks[-1]._replace(
        pieces=tuple(piece for chunk in chunks for piece in chunk.pieces),
        token_ids=tuple(token_id for chunk in chunks for token_id in chunk.token_ids),
        logprobs=tuple(entry for chunk in chunks for entry in chunk.logprobs),
    )


class TextTemplate:
    """An event encoded once, into which each new text is filled; `make` encodes it for a text."""

    __slots__ = ("_parts",)

    def __init__(self, make: Callable[[str], bytes]) -> None:
        mark = secrets.token_hex(16)  # a word that no other field holds
        self._parts = make(mark).split(_encode(mark))

    def fill(self, text: str) -> bytes:
        """Return the event with a text filled in."""
        return _encode(text).join(self._parts)
