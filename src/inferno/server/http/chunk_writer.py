"""Write to the client in the shortest way: an answer's many chunks, and its head."""

from __future__ import annotations

import asyncio
import weakref
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from inferno.server.http.context import Scope

_NAME = "inferno.chunk_writer"


class ChunkWriter:
    """A writer of one answer's chunks; the answer's start and end are sent by ASGI as usual."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        # Weakly, as it holds us: thousands of such rings would wait for the garbage collector, and
        # then everybody for it.
        self._cycle = weakref.proxy(cycle)

    @property
    def is_request_whole(self) -> bool:
        """Return whether the client has sent its whole request, whether or not it was read."""
        return not cast(bool, self._cycle.more_body)

    @property
    def needs_drain(self) -> bool:
        """Return whether so much is unsent that the caller should await `drain` before writing."""
        return bool(self._cycle.flow.write_paused and not self._cycle.disconnected)

    async def drain(self) -> None:
        """Wait until the client has read enough, or left."""
        await self._cycle.flow.drain()

    def write(self, data: bytes) -> None:
        """Write a chunk of data, not an empty one, unless the client has left."""
        if not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def offer_chunk_writer(cycle: RequestResponseCycle) -> None:
    """Offer the application of a request a ChunkWriter, in the request's scope."""
    scope = cast(Scope, cycle.scope)
    scope["extensions"] = {**scope.get("extensions", {}), _NAME: ChunkWriter(cycle)}


def chunk_writer_of(scope: Scope) -> ChunkWriter | None:
    """Return the writer of an answer's chunks, or None if the server offers none.

    The writer is only for answers without a content-length, for it writes HTTP chunks.
    """
    writer = scope.get("extensions", {}).get(_NAME)
    return writer if isinstance(writer, ChunkWriter) else None


class HeadBufferingTransport:
    """A replacement of a connection's transport, which delays the head of one answer."""

    __slots__ = ("_cycle", "_has_begun", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.proxy(cycle)  # as it holds us: see ChunkWriter
        self._transport = cycle.transport
        self._has_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write data; the head waits for the first chunk, or for the loop's next iteration."""
        if self._cycle.response_started and not self._has_begun:
            self._has_begun = True
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._transport.write(self._head + data if self._head else data)
            self._head = b""

    def close(self) -> None:
        """Close the connection once all is written, or later if a body still comes."""
        self._flush()
        if not (self._cycle.response_complete and self._cycle.more_body):
            self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


def buffer_head(cycle: RequestResponseCycle) -> None:
    """Have an answer's head wait for the first chunk, so that both are sent together."""
    cycle.transport = cast(asyncio.Transport, HeadBufferingTransport(cycle))
