"""The shortest way to the client for an answer that has begun and comes in many pieces.

Layers of an application look at the beginning of an answer and let the rest pass, at the price of a
call each. A server may offer more than ASGI asks for, as `extensions` of the scope: ours is this.
"""

from __future__ import annotations

import weakref
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from inferno.server.edge.asgi import Scope

_NAME = "inferno.pieces"


class Pieces:
    """Writes pieces of one answer, once its start was sent; its end is sent as usual."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        # Weakly, as it holds us: thousands of such rings would wait for the garbage collector, and
        # then everybody for it.
        self._cycle = weakref.proxy(cycle)

    @property
    def is_request_whole(self) -> bool:
        """Return whether the client has sent all of its request, read by the application or not."""
        return not cast(bool, self._cycle.more_body)

    @property
    def are_unread(self) -> bool:
        """Return whether so much waits for the client that one should `drain` before writing."""
        return bool(self._cycle.flow.write_paused and not self._cycle.disconnected)

    async def drain(self) -> None:
        """Wait until the client has read enough, or left."""
        await self._cycle.flow.drain()

    def write(self, data: bytes) -> None:
        """Write a piece, which must not be empty, unless the client has left."""
        if not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def offer_pieces(cycle: RequestResponseCycle) -> None:
    """Let the application write to this request's client."""
    scope = cast(Scope, cycle.scope)
    scope["extensions"] = {**scope.get("extensions", {}), _NAME: Pieces(cycle)}


def pieces_of(scope: Scope) -> Pieces | None:
    """Return the writer of this request's pieces, if the server offers one.

    It is only for answers without a content-length, for it writes chunks.
    """
    pieces = scope.get("extensions", {}).get(_NAME)
    return pieces if isinstance(pieces, Pieces) else None
