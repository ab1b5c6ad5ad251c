"""Run an engine in a process of its own, which is replaced when it dies or hangs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from inferno.client import EngineFacts, EngineState, EngineStats, Recovery
from inferno.client.spawned import EngineLog, Spawned
from inferno.client.stream import EventStream
from inferno.client.supervisor import Patience, Supervisor
from inferno.client.wire import Abort, Add, Events, FromEngine, Refused, Stats
from inferno.errors import EngineDied, InvalidRequest
from inferno.options import EngineOptions
from inferno.requests import Request, TokenEvent

_COUNTERS = (
    *("steps", "step_seconds", "preemptions", "swaps"),
    *("prompt_tokens", "cached_tokens", "generated_tokens"),
)
_COUNTERS_BY_NAME = ("proposed_tokens", "accepted_tokens")


class ProcessClient:
    """A ServedEngine in its own process; make and use it in one event loop, in a thread that stays.

    After a fork the engine belongs to the parent: in the child, calls raise EngineDied.

    first           a process that is already started, for the first engine.
    log             how engines write their log; None: as Python does by default.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        patience: Patience | None = None,
        first: Spawned | None = None,
        log: EngineLog | None = None,
    ) -> None:
        self._supervisor = Supervisor(
            options, patience or Patience(), first, log, take=self._take, on_death=self._on_death
        )
        self._pid = os.getpid()
        self._streams: dict[str, EventStream] = {}
        self._stats = EngineStats()  # of the engine that runs
        self._past = EngineStats()  # the counters of engines that are gone

    @property
    def state(self) -> EngineState:
        return self._supervisor.state

    @property
    def problem(self) -> str | None:
        return self._supervisor.problem

    @property
    def recovery(self) -> Recovery | None:
        return self._supervisor.recovery

    @property
    def facts(self) -> EngineFacts | None:
        return self._supervisor.facts

    @property
    def progress(self) -> float:
        return self._supervisor.progress

    @property
    def stage(self) -> str:
        return self._supervisor.stage

    @property
    def vocab_size(self) -> int:
        return self._known().vocab_size

    @property
    def max_model_len(self) -> int:
        return self._known().max_model_len

    @property
    def pid(self) -> int | None:
        """Return the process id of the engine, while there is one."""
        return self._supervisor.pid

    def stats(self) -> EngineStats:
        stats = _added(self._stats, self._past)
        return replace(stats, restarts=self._supervisor.num_restarts)

    async def start(self) -> None:
        self._supervisor.start()

    async def wait_ready(self) -> None:
        self._supervisor.start()
        await self._supervisor.wait_ready()

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Yield a request's events until each sequence has ended; merge them for a slow reader.

        The request's id must be new.
        """
        if self._is_elsewhere:
            raise EngineDied(
                "this engine was started before this process was forked and serves only the "
                "process that started it; start one here"
            )
        self._supervisor.check_ready()
        if request.request_id in self._streams:
            raise InvalidRequest("request_id is in use: choose another", param="request_id")
        try:
            self._supervisor.send(Add(request))
        except ValueError as problem:
            raise InvalidRequest(f"the request can't be handed to the engine: {problem}") from None
        stream = self._streams[request.request_id] = EventStream(request)
        try:
            # As stream.read, without a generator more for each token to pass.
            while (news := stream.news()) is not None:
                await news
                for event in stream.take():
                    yield event
        finally:
            del self._streams[request.request_id]
            if not stream.has_ended and not self._is_elsewhere:
                self._supervisor.send(Abort(request.request_id, None))

    def abort(self, request_id: str, sequence_index: int) -> None:
        """End one sequence of a request."""
        if request_id in self._streams and not self._is_elsewhere:
            self._supervisor.send(Abort(request_id, sequence_index))

    async def close(self) -> None:
        """End open requests as aborted, and end the process."""
        if self._is_elsewhere:
            return
        for stream in self._streams.values():
            stream.abort()
        await self._supervisor.close()

    @property
    def _is_elsewhere(self) -> bool:
        """Return whether this process was forked from the one that talks to the engine."""
        return os.getpid() != self._pid

    def _known(self) -> EngineFacts:
        if self.facts is None:
            self._supervisor.check_ready()
            raise EngineDied("the model is not loaded yet; try again soon")
        return self.facts

    def _take(self, message: FromEngine) -> None:
        if isinstance(message, Events):
            for event in message.events:
                if (stream := self._streams.get(event.request_id)) is not None:
                    stream.put(event)
            return
        match message:
            case Stats(stats):
                self._stats = stats
            case Refused(request_id, problem):
                if (stream := self._streams.get(request_id)) is not None:
                    stream.fail(problem.error())

    def _on_death(self, death: EngineDied) -> None:
        for stream in self._streams.values():
            stream.fail(death)
        self._past = _added(EngineStats(), _added(self._stats, self._past))
        self._stats = EngineStats()


def _added(stats: EngineStats, past: EngineStats) -> EngineStats:
    """Return a snapshot whose counters go on from those of the past."""
    sums: dict[str, Any] = {name: getattr(stats, name) + getattr(past, name) for name in _COUNTERS}
    for name in _COUNTERS_BY_NAME:
        sums[name] = dict(Counter(getattr(stats, name)) + Counter(getattr(past, name)))
    return replace(stats, **sums)
