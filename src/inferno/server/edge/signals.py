"""Signals as events: the first asks for a gentle end, the second for an end, the third ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Whether and how the server was asked to stop; made before its event loop is."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()
        self._urged = asyncio.Event()

    def attach(self) -> None:
        """From now on the running loop is woken; it also learns of what came before."""
        self._loop = asyncio.get_running_loop()
        self._tell()

    async def asked(self) -> None:
        """Until the first signal."""
        await self._asked.wait()

    async def urged(self) -> None:
        """Until the second."""
        await self._urged.wait()

    @property
    def is_urged(self) -> bool:
        return self._urged.is_set()

    def request(self, number: int = signal.SIGTERM) -> None:
        """As if that signal had come."""
        self.signals.append(number)
        if len(self.signals) > 2:
            os._exit(128 + number)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for number, event in enumerate((self._asked, self._urged), 1):
            if len(self.signals) >= number:
                event.set()


@contextlib.contextmanager
def stopping_by_signal(stop: Stop) -> Iterator[None]:
    """SIGTERM and SIGINT go to `stop` while this is open."""

    def handle(number: int, _frame: FrameType | None) -> None:
        stop.request(number)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
