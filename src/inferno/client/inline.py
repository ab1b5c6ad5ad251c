"""An engine in this process, stepped by the event loop that asks for its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from torch import Tensor

from inferno.engine.engine import Engine
from inferno.errors import EngineDied
from inferno.requests import Request, TokenEvent


class InlineClient:
    """Runs the engine's steps as a task of the current event loop: use it from one loop only."""

    def __init__(self, engine: Engine) -> None:
        self.vocab_size = engine.vocab_size
        self.max_model_len = engine.max_model_len
        self.footprint = engine.footprint
        self._engine = engine
        self._queues: dict[str, asyncio.Queue[TokenEvent | EngineDied]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._death: EngineDied | None = None  # why it takes no more requests
        self._has_failed = False

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Events of a request until each of its samples has ended."""
        if self._death is not None:
            raise self._death
        self._engine.add_request(request)
        queue: asyncio.Queue[TokenEvent | EngineDied] = asyncio.Queue()
        self._queues[request.request_id] = queue
        self._wake()
        num_open = request.params.n
        try:
            while num_open:
                event = await queue.get()
                if isinstance(event, EngineDied):
                    raise event
                num_open -= event.finish_reason is not None
                yield event
        finally:
            del self._queues[request.request_id]
            if num_open:
                self._engine.abort(request.request_id)
                self._wake()

    def abort(self, request_id: str, sample_index: int) -> None:
        """End one sample of a request."""
        self._engine.abort(request_id, sample_index)
        self._wake()

    async def logits(self, token_ids: Sequence[int], positions: Sequence[int] | None) -> Tensor:
        """As Engine.logits, once no request is under way."""
        while self._driver is not None and not self._driver.done():
            await asyncio.wait({self._driver})  # which leaves it running when we are cancelled
        if self._death is not None:
            raise self._death
        return self._engine.logits(token_ids, positions)

    async def close(self) -> None:
        """End open requests as aborted, and take no more."""
        self._death = EngineDied("this LLM is closed; make a new one")
        for request_id in self._queues:
            self._engine.abort(request_id)
        self._wake()
        if self._driver is not None:
            await asyncio.wait({self._driver})

    def _wake(self) -> None:
        if self._has_failed:
            return
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        try:
            while self._engine.has_work:
                for event in self._engine.step():
                    if event.request_id in self._queues:
                        self._queues[event.request_id].put_nowait(event)
                await asyncio.sleep(0)  # let those who wait for events see them
        except Exception as problem:
            # A mistake of ours: the engine's state is unknown, and nobody must wait for ever.
            self._has_failed = True
            self._death = EngineDied(f"the engine stopped: {problem!r}; make a new one")
            self._death.__cause__ = problem
            for queue in self._queues.values():
                queue.put_nowait(self._death)
