"""An answer's head goes out with what follows it: one call of the system, one wake-up there."""

from __future__ import annotations

import asyncio
import weakref
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class JoinedTransport:
    """A stand-in for a connection's transport, through which one request's cycle writes."""

    __slots__ = ("_cycle", "_has_begun", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.proxy(cycle)  # as it holds us: see Pieces
        self._transport = cycle.transport
        self._has_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write, but for the head: that waits for the next piece, or the loop's next turn."""
        if self._cycle.response_started and not self._has_begun:
            self._has_begun = True
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._transport.write(self._head + data if self._head else data)
            self._head = b""

    def close(self) -> None:
        """Close the connection, once all is out; it lingers by itself while a body still comes."""
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


def join_head(cycle: RequestResponseCycle) -> None:
    """Let this answer's head wait for what follows it."""
    cycle.transport = cast(asyncio.Transport, JoinedTransport(cycle))
