"""Lets few requests begin in each turn of the event loop, so that a turn is short for a crowd too.

Who asks how the server is, and does not stand in this line, waits for a turn or two: milliseconds,
however many others are there to be served or sent away.
"""

from __future__ import annotations

import asyncio
from collections import deque

_AT_ONCE = 4  # to send them away takes a millisecond


class Turns:
    """First come, first served, so many in each turn of the loop."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._num_begun = 0  # in this turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Until it is one's turn; at once while few are there."""
        loop = asyncio.get_running_loop()
        if not self._num_begun and not self._waiting:
            loop.call_soon(self._begin_turn)
        if self._num_begun < self._at_once and not self._waiting:
            self._num_begun += 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _begin_turn(self) -> None:
        self._num_begun = 0
        while self._waiting and self._num_begun < self._at_once:
            first = self._waiting.popleft()
            if not first.done():  # else its request was cancelled
                first.set_result(None)
                self._num_begun += 1
        if self._num_begun:
            asyncio.get_running_loop().call_soon(self._begin_turn)
