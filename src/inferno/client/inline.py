"""Run an engine in this process, stepped by the event loop that asks for its events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from torch import Tensor

from inferno.client.stream import EventStream
from inferno.engine.engine import Engine
from inferno.engine.sampling.constraints import Constraint
from inferno.errors import EngineDied, EngineError
from inferno.requests import Request, TokenEvent

_logger = logging.getLogger("inferno")


class InlineClient:
    """An engine stepped by a task of the current event loop: use it from one loop only."""

    def __init__(self, engine: Engine) -> None:
        self.vocab_size = engine.vocab_size
        self.max_model_len = engine.max_model_len
        self.footprint = engine.footprint
        self._engine = engine
        self._streams: dict[str, EventStream] = {}
        self._driver: asyncio.Task[None] | None = None
        self._death: EngineDied | None = None  # why it takes no more requests
        self._has_failed = False

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Yield a request's events until each sequence has ended; merge them for a slow reader.

        The request's id must be new.
        """
        if self._death is not None:
            raise self._death
        constraints = await self._make_constraints(request)
        try:
            self._engine.add_request(request, constraints)
        finally:
            self._wake()  # even if it raised: what interrupts the engine ends others' requests
        stream = self._streams[request.request_id] = EventStream(request)
        try:
            while (news := stream.news()) is not None:
                await news
                for event in stream.take():
                    yield event
        finally:
            del self._streams[request.request_id]
            if not stream.has_ended:
                self._engine.abort(request.request_id)
                self._wake()

    async def _make_constraints(self, request: Request) -> Sequence[Constraint] | None:
        """Wait for what a request's shape lets it say, while steps go on; None: it has no shape."""
        making = self._engine.start_constraints(request)
        if making is None:
            return None
        constraints = await asyncio.wrap_future(making)  # which is cancelled when we are
        if self._death is not None:
            raise self._death
        return constraints

    def abort(self, request_id: str, sequence_index: int) -> None:
        """End one sequence of a request."""
        self._engine.abort(request_id, sequence_index)
        self._wake()

    async def logits(self, token_ids: Sequence[int], positions: Sequence[int] | None) -> Tensor:
        """Wait until no request is under way, then return the result of Engine.logits."""
        while self._driver is not None and not self._driver.done():
            await asyncio.wait({self._driver})  # which leaves it running when we are cancelled
        if self._death is not None:
            raise self._death
        return self._engine.logits(token_ids, positions)

    async def close(self) -> None:
        """End open requests as aborted, and take no more requests."""
        self._death = EngineDied("this LLM is closed; make a new one")
        for request_id in self._streams:
            self._engine.abort(request_id)
        self._wake()
        if self._driver is not None:
            await asyncio.wait({self._driver})
        self._engine.close()

    def _wake(self) -> None:
        if self._has_failed:
            return
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
            self._driver.add_done_callback(self._end_drive)

    def _end_drive(self, driver: asyncio.Task[None]) -> None:
        """See that nobody waits for a driver that has ended, however it did."""
        if self._has_failed or driver.cancelled():
            return
        if (problem := driver.exception()) is not None:
            _logger.error("the engine's loop was interrupted: %r", problem)
            self._lose(f"a step of the engine failed: {problem!r}")
        elif not self._engine.has_work:
            self._lose("the engine lost track of this request")
        if self._engine.has_work:
            self._wake()

    async def _drive(self) -> None:
        interruption: BaseException | None = None
        while self._engine.has_work and not self._has_failed:
            before, interruption = interruption, None
            try:
                events = self._engine.step()
            except BaseException as problem:
                # The user's Ctrl+C comes to the main thread and not to ours. The engine has ended
                # with it what it broke, and the next step tells; unless that one is broken, too.
                _logger.exception("a step of the engine was interrupted")
                interruption = problem
                if before is not None or isinstance(problem, Exception):
                    self._die(problem)
            else:
                self._tell(events)
            await asyncio.sleep(0)  # let those who wait for events see them

    def _tell(self, events: Sequence[TokenEvent]) -> None:
        try:
            for event in events:
                if (stream := self._streams.get(event.request_id)) is not None:
                    stream.put(event)
        except BaseException as problem:  # nobody knows who was told, so nobody's output is sure
            _logger.exception("the events of a step were not told")
            self._lose(f"a step of the engine failed: {problem!r}")

    def _lose(self, words: str) -> None:
        """End the requests that are open with an error, and go on."""
        for request_id, stream in self._streams.items():
            if not stream.has_ended:
                stream.fail(EngineError(words))
                self._engine.abort(request_id)

    def _die(self, problem: BaseException) -> None:
        """Take no more requests: by a mistake of ours, the engine's state is unknown."""
        self._has_failed = True
        self._death = EngineDied(f"the engine stopped: {problem!r}; make a new one")
        self._death.__cause__ = problem
        for stream in self._streams.values():
            stream.fail(self._death)
