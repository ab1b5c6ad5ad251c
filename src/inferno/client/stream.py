"""Pass the events of a request to a reader who may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from inferno.errors import InfernoError
from inferno.requests import FinishReason, Request, TokenEvent, TokenLogprobs


class EventStream:
    """The waiting events of one request, merged to at most one for each sequence.

    So the memory of an absent reader is bounded by its own tokens. Use it from one event loop.
    """

    def __init__(self, request: Request) -> None:
        self._request_id = request.request_id
        self._open = set(range(request.params.n))  # sequences without a last event
        self._waiting: dict[int, TokenEvent | _Merged] = {}  # by sequence index
        self._problem: InfernoError | None = None
        self._reader: asyncio.Future[None] | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether no more events can be added."""
        return not self._open or self._problem is not None

    def put(self, event: TokenEvent) -> None:
        """Add an event; events of a sequence that has ended already are dropped."""
        index = event.sequence_index
        if index not in self._open or self._problem is not None:
            return
        if event.finish_reason is not None:
            self._open.remove(index)
        waiting = self._waiting.get(index)
        if waiting is None:
            self._waiting[index] = event
        elif isinstance(waiting, _Merged):
            waiting.add(event)
        else:
            self._waiting[index] = merged = _Merged(waiting)
            merged.add(event)
        self._wake()

    def abort(self) -> None:
        """End all sequences as aborted."""
        for index in sorted(self._open):
            self.put(TokenEvent(self._request_id, index, finish_reason=FinishReason.ABORTED))

    def fail(self, problem: InfernoError) -> None:
        """End all sequences: the reader gets the events added before, then an error."""
        if not self.has_ended:
            self._problem = problem
            self._wake()

    async def read(self) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events; only one reader may call this."""
        while (news := self.news()) is not None:
            await news
            for event in self.take():
                yield event

    def news(self) -> asyncio.Future[None] | None:
        """Return a future that is done once there are events to take; None if no more will come.

        Raises the error that ended the stream once all events before it have been taken.
        """
        self._reader = reader = asyncio.get_running_loop().create_future()
        if self._waiting:
            reader.set_result(None)
        elif self._problem is not None:
            raise self._problem
        elif not self._open:
            return None
        return reader

    def take(self) -> list[TokenEvent]:
        """Return and remove the waiting events, at most one for each sequence."""
        events, self._waiting = self._waiting, {}
        return [event.event() if isinstance(event, _Merged) else event for event in events.values()]

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


@dataclass(slots=True)
class _Merged:
    """The merged events of one sequence, as one event that says the same."""

    last: TokenEvent
    token_ids: list[int] = field(init=False)
    logprobs: list[TokenLogprobs] = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.last.token_ids)
        self.logprobs = list(self.last.logprobs)

    def add(self, event: TokenEvent) -> None:
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        if event.prompt_logprobs is None and self.last.prompt_logprobs is not None:
            event = event._replace(prompt_logprobs=self.last.prompt_logprobs)  # they come once
        self.last = event

    def event(self) -> TokenEvent:
        return self.last._replace(token_ids=tuple(self.token_ids), logprobs=tuple(self.logprobs))
