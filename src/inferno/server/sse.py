"""Server-sent events: written as they come, with a comment where nothing comes for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.responses import Response

from inferno.server.edge import Pieces, Refusal, pieces_of, record_of
from inferno.server.edge.asgi import Receive, Scope, Send
from inferno.server.errors import ClientLeft, log_failure, refusal_of
from inferno.server.running import while_connected

_DONE = b"data: [DONE]\n\n"
_COMMENT = b": keep-alive\n\n"


def event(data: bytes) -> bytes:
    """Return the bytes of one event with these data."""
    return b"data: " + data + b"\n\n"


def error_event(refusal: Refusal) -> bytes:
    """Return the event that ends a stream which failed."""
    return event(refusal.body)


class SseResponse(Response):
    """A stream of events. It begins with the first of them, so that what is refused before has
    the status of its refusal; later it ends with an error event, and without [DONE].

    silence         seconds after which a comment is sent.
    done            what is written after the last event; write_error: what is, where they fail.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        silence: float,
        done: bytes = _DONE,
        write_error: Callable[[Refusal], bytes] = error_event,
    ) -> None:
        super().__init__(
            headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._events = events
        self._silence = silence
        self._done = done
        self._write_error = write_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream; a client that leaves ends its request."""
        output = _Output(send, self.raw_headers, pieces_of(scope))
        try:
            await while_connected(receive, self._write(output, record_of(scope).request_id))
        except ClientLeft:
            if not output.has_begun:
                raise

    async def _write(self, output: _Output, request_id: str) -> None:
        breathing = asyncio.create_task(output.breathe(self._silence))
        try:
            async with aclosing(self._events) as events:
                async for each in events:
                    await output.write(each)
            await output.write(self._done)
        except Exception as problem:
            if not output.has_begun:
                raise
            refusal = refusal_of(problem, request_id)
            if refusal.status == 500:
                log_failure(problem, request_id)
            await output.write(self._write_error(refusal))
        finally:
            breathing.cancel()
        await output.end()


class _Output:
    """The answer's bytes on their way to the client.

    pieces      a shorter way than `send`, if there is one.
    """

    def __init__(
        self, send: Send, headers: list[tuple[bytes, bytes]], pieces: Pieces | None
    ) -> None:
        self.has_begun = False
        self._send = send
        self._headers = headers
        self._pieces = pieces
        self._is_writing = False
        self._now = asyncio.get_running_loop().time
        self._written_at = self._now()

    async def write(self, data: bytes) -> None:
        """Send it, after the headers; returns when the client takes more."""
        if not data:
            return
        self._is_writing = True
        if not self.has_begun:
            self.has_begun = True
            start = {"type": "http.response.start", "status": 200, "headers": self._headers}
            await self._send(start)
        if self._pieces is not None:
            if self._pieces.are_unread:
                await self._pieces.drain()
            self._pieces.write(data)
        else:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._written_at = self._now()
        self._is_writing = False

    async def end(self) -> None:
        """Tell the client that nothing more comes."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def breathe(self, silence: float) -> None:
        """Send a comment whenever nothing was sent for so long, so that nobody hangs up."""
        while True:
            await asyncio.sleep(max(0.001, self._written_at + silence - self._now()))
            if not self._is_writing and self._now() - self._written_at >= silence:
                await self.write(_COMMENT)
            elif self._is_writing:
                await asyncio.sleep(silence)  # the client doesn't read
