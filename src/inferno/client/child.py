"""Handle one engine in a process of its own, and the socket to it, from start to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, cast

from inferno.client.spawned import Spawned
from inferno.client.wire import (
    BrokenWire,
    FrameReader,
    FrameWriter,
    FromEngine,
    ToEngine,
    decode_from_engine,
)
from inferno.out_of_memory import EXIT_CODE

_POLL_SECONDS = 0.01
_REAP_SECONDS = 10.0  # a killed process can be held up only by the kernel


class Child:
    """A running engine's process; call `end` whatever happens."""

    def __init__(self, process: subprocess.Popen[bytes], connection: _Connection) -> None:
        self._process = process
        self._connection = connection

    @classmethod
    async def start(cls, spawned: Spawned, take: Callable[[FromEngine], None]) -> Self:
        """Connect to a process that was started; `take` gets its messages."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(
                lambda: _Connection(take), sock=spawned.connection
            )
        except BaseException:  # even a cancellation: a process that nobody knows would stay
            spawned.connection.close()
            spawned.process.kill()
            raise
        return cls(spawned.process, connection)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToEngine) -> None:
        """Send a message, unless the process is gone; raise ValueError if it can't be encoded."""
        self._connection.send(message)

    async def ended(self, seconds: float) -> bool:
        """Wait up to so many seconds; return whether the socket closed, so no more will come."""
        await asyncio.wait({self._connection.lost}, timeout=seconds)
        return self._connection.lost.done()

    @property
    def lacked_memory(self) -> bool:
        """Return whether the process ended for lack of memory, before it could say so."""
        return self._process.returncode == EXIT_CODE

    def kill(self) -> None:
        """Kill the process at once.

        Await `end` afterwards all the same: it closes the connection and reaps the process.
        """
        self._process.kill()

    async def end(self, patience: float = 0.0) -> str:
        """Wait `patience` seconds for an exit, else kill the process; return how it ended."""
        self._connection.close()
        if not await self._exits(patience):
            self.kill()
            await self._exits(_REAP_SECONDS)
        return self._connection.problem or _words(self._process.returncode)

    async def _exits(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


class _Connection(asyncio.Protocol):
    """The parent's end of the socket."""

    def __init__(self, take: Callable[[FromEngine], None]) -> None:
        self._take = take
        self._pid = os.getpid()
        self._frames = FrameReader()
        self._writer = FrameWriter()
        self._transport: asyncio.WriteTransport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.problem: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:

        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is not of that class

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._take(decode_from_engine(body))
        except BrokenWire as problem:
            self.problem = f"the engine's process sent nonsense: {problem}"
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, message: ToEngine) -> None:
        frame = self._writer.frame(message)
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        # A forked process shares its parent's epoll: what it stops to watch, the parent misses.
        if self._transport is not None and self._pid == os.getpid():
            self._transport.abort()


def _words(code: int | None) -> str:
    if code is None:
        return "its process can't be ended"
    if code == EXIT_CODE:
        return "memory ran out while its process started"
    if code >= 0:
        return f"its process exited with code {code}"
    name = str(-code)
    with suppress(ValueError):
        name = signal.Signals(-code).name
    hint = ", as systems do that run out of memory" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
