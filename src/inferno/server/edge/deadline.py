"""A request's deadline before it has a slot: while its body is read and its prompt is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from inferno.server.edge.record import Record
from inferno.server.edge.refusal import DeadlineExceeded

T = TypeVar("T")


async def in_time(work: Awaitable[T], record: Record, seconds: float) -> T:
    """What the work returns; DeadlineExceeded when the request has had its seconds."""
    try:
        async with asyncio.timeout(record.left(seconds)) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
    raise DeadlineExceeded(seconds)
