"""Lets an idle engine wait a moment, so that its first step serves many requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class FirstBatch:
    """Holds the first requests back until `seconds` have passed or enough of them are there.

    enough      how many fill a batch, asked for each time.
    """

    def __init__(self, seconds: float, enough: Callable[[], int]) -> None:
        self._seconds = seconds
        self._enough = enough
        self._num_running = 0
        self._num_gathered = 0
        self._go: asyncio.Event | None = None  # there while requests are gathered

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Enter when the request may go to the engine; leave when it is done there."""
        if self._seconds and not self._num_running:
            await self._gather()
        else:
            self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1

    async def _gather(self) -> None:
        if self._go is None:
            self._go = asyncio.Event()
            asyncio.get_running_loop().call_later(self._seconds, self._release, self._go)
        go = self._go
        self._num_gathered += 1
        if self._num_gathered >= self._enough():
            self._release(go)
        try:
            await go.wait()
        except asyncio.CancelledError:
            if go.is_set():
                self._num_running -= 1
            else:
                self._num_gathered -= 1
            raise

    def _release(self, go: asyncio.Event) -> None:
        if go is self._go:  # else that batch has left already
            go.set()
            self._num_running += self._num_gathered
            self._num_gathered = 0
            self._go = None
