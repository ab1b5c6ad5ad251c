"""An event loop in a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from inferno.errors import EngineDied

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of an iteration, with what ended it."""

    problem: BaseException | None = None


class BlockingLoop:
    """Runs coroutines for threads that wait: works inside notebooks and from several threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # Held while something is handed to the loop, so that nothing is after it was told to stop.
        self._handing_over = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="inferno-engine", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine's result; an interrupt cancels it."""
        future = self._submit(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise _closed_meanwhile() from None
        finally:
            future.cancel()

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """The items as they come; leaving the iteration closes their generator."""
        queue: SimpleQueue[T | _Ended] = SimpleQueue()
        future = self._submit(_pump(items, queue))
        try:
            while not isinstance(item := queue.get(), _Ended):
                yield item
            if item.problem is not None:
                raise item.problem
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what runs, and end the thread; whoever waits gets EngineDied."""
        with self._handing_over:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:  # the collector may call from anywhere
            self._thread.join()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._handing_over:
            if self._is_closed:
                coroutine.close()
                raise EngineDied("this LLM is closed; make a new one")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # What was handed over last becomes a task only in one more turn; tasks may start others.
        self._loop.run_until_complete(asyncio.sleep(0))
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


async def _pump(items: AsyncGenerator[T, None], queue: SimpleQueue[T | _Ended]) -> None:
    ended = _Ended()
    try:
        async for item in items:
            queue.put(item)
    except asyncio.CancelledError:
        ended = _Ended(_closed_meanwhile())
        raise
    except BaseException as problem:
        ended = _Ended(problem)
    finally:
        try:
            await items.aclose()
        finally:
            queue.put(ended)


def _closed_meanwhile() -> EngineDied:
    return EngineDied("this LLM was closed while a request was under way")
