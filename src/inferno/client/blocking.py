"""Run an event loop in a thread of its own, for callers that block or have other loops."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from inferno.errors import EngineDied

MOST_WAITING = 64  # items that a reader has yet to take, before their maker waits for it

T = TypeVar("T")


class BlockingLoop:
    """An event loop for callers that wait, also in notebooks and from several threads.

    After a fork the child has no such thread. There every call raises EngineDied at once, and
    touches no lock, for another thread of the parent may have held it.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        # Held while something is handed to the loop, so that nothing is after it was told to stop.
        self._handing_over = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="inferno-engine", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._is_closed

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the loop's thread is in the process that this was forked from."""
        return os.getpid() != self._pid

    def check_open(self) -> None:
        """Raise EngineDied if the loop is closed or in another process."""
        if self.is_elsewhere:
            raise EngineDied(
                "this LLM was made before this process was forked and works only in the process "
                "that made it; make a new one here"
            )
        if self._is_closed:
            raise EngineDied("this LLM is closed; make a new one")

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Wait for a coroutine's result; an interrupt cancels it."""
        [result] = self.iterate(_only(function))
        return result

    async def run_from(self, function: Callable[[], Awaitable[T]]) -> T:
        """Wait for a coroutine's result as `run` does, without blocking the caller's own loop."""
        async with aclosing(self.iterate_from(_only(function))) as results:
            [result] = [each async for each in results]
        return result

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield a generator's items as they come; leaving the iteration closes the generator."""
        passage = _Passage(items, self._loop)
        try:
            self._hand_over(passage)
            while not isinstance(item := passage.items.get(), _Ended):
                passage.note_taken()
                yield item
                self._check_here()
            if item.problem is not None:
                raise item.problem
        finally:
            self._leave(passage)

    async def iterate_from(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yield items as `iterate` does, without blocking the caller's own loop."""
        news = asyncio.Event()
        passage = _Passage(items, self._loop, reader=(asyncio.get_running_loop(), news))
        try:
            self._hand_over(passage)
            while True:
                try:
                    item = passage.items.get_nowait()
                except Empty:
                    await passage.news(news)
                    continue
                if isinstance(item, _Ended):
                    break
                passage.note_taken()
                yield item
                self._check_here()
            if item.problem is not None:
                raise item.problem
        finally:
            self._leave(passage)

    def close(self) -> None:
        """Cancel what runs, and end the thread; waiting callers get EngineDied."""
        if self.is_elsewhere:
            self._forget_tasks()
            return
        with self._handing_over:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._end.set_result, None)
        if threading.current_thread() is not self._thread:  # the collector may call from anywhere
            self._thread.join()

    def _check_here(self) -> None:
        """Raise EngineDied in a process that was forked in the midst of an iteration."""
        if self.is_elsewhere:
            self.check_open()

    def _hand_over(self, passage: _Passage[T]) -> None:
        self._check_here()
        with self._handing_over:
            self.check_open()
            brought = asyncio.run_coroutine_threadsafe(passage.bring(), self._loop)
        brought.add_done_callback(passage.end)

    def _leave(self, passage: _Passage[T]) -> None:
        if self.is_elsewhere:
            self._forget_tasks()
        else:
            passage.leave()

    def _forget_tasks(self) -> None:
        """Let no copy of a task complain, in a forked process, that it never ends."""
        for task in asyncio.all_tasks(self._loop):
            copy: Any = task
            copy._log_destroy_pending = False

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._end.done():
            # A SystemExit of a task leaves the loop too; who waits for the task gets it.
            with suppress(BaseException):
                self._loop.run_until_complete(self._end)
        # The last call becomes a task only in one more turn; tasks may start others.
        self._take_turn()
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._take_turn()  # a task that ended in the turn before has yet to tell who waits for it
        self._loop.close()

    def _take_turn(self) -> None:
        """Run what the loop is ready to run."""
        self._loop.run_until_complete(asyncio.sleep(0))


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of an iteration, with what ended it."""

    problem: BaseException | None = None


class _Passage(Generic[T]):
    """The items on their way from the loop that makes them to one reader in another thread.

    items   what the reader has yet to take: MOST_WAITING at most, and the end.
    reader  the reader's own event loop and what is set there when there are new items, if it has
            one; another reader waits for `items`.
    """

    def __init__(
        self,
        source: AsyncGenerator[T, None],
        loop: asyncio.AbstractEventLoop,
        reader: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None,
    ) -> None:
        self.items: SimpleQueue[T | _Ended] = SimpleQueue()
        self._source = source
        self._loop = loop
        self._reader = reader
        self._is_awaited = False  # whether the reader waits for news
        self._room: asyncio.Event | None = None  # set when the reader has taken some
        self._task: asyncio.Task[None] | None = None
        self._is_left = False
        self._has_ended = False

    async def bring(self) -> None:
        """Take the source's items to the reader, in the loop that makes them."""
        self._task = asyncio.current_task()
        try:
            if not self._is_left:
                async for item in self._source:
                    self._put(item)
                    await self._wait_for_room()
        finally:
            await self._source.aclose()

    def end(self, brought: Future[None]) -> None:
        """Tell the reader how `bring` ended, however that was."""
        self._has_ended = True
        problem = _closed_meanwhile() if brought.cancelled() else brought.exception()
        with suppress(RuntimeError):  # the reader's loop is closed
            self._put(_Ended(problem))

    def leave(self) -> None:
        """Stop bringing items; the reader calls it, from its own thread."""
        self._is_left = True
        if not self._has_ended:
            with suppress(RuntimeError):  # the loop is closed, and so is the source
                self._loop.call_soon_threadsafe(self._cancel)

    def note_taken(self) -> None:
        """Wake who waits for room; the reader calls it when it has taken an item."""
        room = self._room
        if room is not None and self.items.qsize() <= MOST_WAITING // 2:
            self._room = None
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(room.set)

    async def news(self, news: asyncio.Event) -> None:
        """Wait until there is something to take, in the reader's own loop."""
        news.clear()
        self._is_awaited = True
        if self.items.empty():  # asked after it was said that we wait
            await news.wait()
        self._is_awaited = False

    def _put(self, item: T | _Ended) -> None:
        self.items.put(item)
        if self._reader is not None and self._is_awaited:
            loop, news = self._reader
            loop.call_soon_threadsafe(news.set)

    async def _wait_for_room(self) -> None:
        if self.items.qsize() < MOST_WAITING:
            return
        self._room = room = asyncio.Event()
        if self.items.qsize() > MOST_WAITING // 2:  # asked after it was said that we wait
            await room.wait()

    def _cancel(self) -> None:
        if self._task is not None and not self._has_ended:
            self._task.cancel()


def _closed_meanwhile() -> EngineDied:
    return EngineDied("this LLM was closed while a request was under way")


async def _only(function: Callable[[], Awaitable[T]]) -> AsyncGenerator[T, None]:
    yield await function()
