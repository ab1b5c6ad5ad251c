"""How many pieces an answer goes out in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from inferno.server.http.chunk_writer import buffer_head


class _Wire:
    """A transport that notes what reaches it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.pieces.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class _Cycle(SimpleNamespace):
    """Something that can be referred to weakly."""


def _cycle() -> tuple[_Wire, RequestResponseCycle]:
    wire = _Wire()
    state = {"response_started": False, "response_complete": False, "more_body": False}
    cycle = cast(RequestResponseCycle, _Cycle(transport=wire, **state))
    buffer_head(cycle)
    return wire, cycle


def test_the_head_goes_out_with_the_first_piece_of_the_body() -> None:
    async def answer() -> list[bytes]:
        wire, cycle = _cycle()
        cycle.transport.write(b"100 continue,")
        cycle.response_started = True
        for piece in (b"head,", b"one,", b"two"):
            cycle.transport.write(piece)
        await asyncio.sleep(0)
        return wire.pieces

    assert asyncio.run(answer()) == [b"100 continue,", b"head,one,", b"two"]


def test_a_head_that_nothing_follows_goes_out_at_the_next_turn() -> None:
    async def answer() -> list[bytes]:
        wire, cycle = _cycle()
        cycle.response_started = True
        cycle.transport.write(b"head")
        await asyncio.sleep(0)
        return wire.pieces

    assert asyncio.run(answer()) == [b"head"]


def test_a_head_goes_out_before_the_connection_closes() -> None:
    async def answer() -> list[bytes]:
        wire, cycle = _cycle()
        cycle.response_started = True
        cycle.transport.write(b"head")
        cycle.transport.close()
        assert cycle.transport.is_closing()
        await asyncio.sleep(0)
        return wire.pieces

    assert asyncio.run(answer()) == [b"head"]
