"""One request's place among those taken: its deadline, and its runs in the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from inferno.client import EngineClient
from inferno.errors import EngineDied, InvalidRequest
from inferno.requests import FinishReason, Request, TokenEvent
from inferno.server.edge.first_batch import FirstBatch
from inferno.server.edge.ledger import Ledger
from inferno.server.edge.record import Record
from inferno.server.edge.refusal import DeadlineExceeded, Refusal


class Slot:
    """A request's place, from admission to the end; `async with` or `release` gives it back.

    on_start    called at the first event; on_release: when it is given back.
    """

    def __init__(
        self,
        engine: EngineClient,
        record: Record,
        ledger: Ledger,
        first_batch: FirstBatch,
        *,
        on_start: Callable[[Slot], None],
        on_release: Callable[[Slot], None],
    ) -> None:
        self.record = record
        self.has_started = False
        self._engine = engine
        self._ledger = ledger
        self._first_batch = first_batch
        self._on_start = on_start
        self._on_release = on_release
        self._is_held = True
        self._ending: Refusal | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Task[Any]] = set()  # those that wait for an event of ours
        self._meters: dict[str, Meter] = {}
        record.on_end(self.release)

    async def __aenter__(self) -> Slot:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def end_after(self, seconds: float) -> None:
        """Set the deadline, counted from the request's body on."""
        left = max(0.0, self.record.left(seconds))
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(left, self.end, DeadlineExceeded(seconds))

    def end(self, why: Refusal) -> None:
        """Make every run raise `why`: those that wait now, the others when they next would."""
        if self._ending is None and self._is_held:
            self._ending = why
            for task in self._waiting:
                task.cancel()

    @property
    def is_ended(self) -> bool:
        """Return whether its runs have raised, or will."""
        return self._ending is not None

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            if self._deadline is not None:
                self._deadline.cancel()
            self._on_release(self)

    def stop(self, request_id: str, sample_index: int) -> None:
        """End one sample because a stop string was found: it counts as finished, not as aborted."""
        if request_id in self._meters:
            self._meters[request_id].stopped(sample_index)
        self._engine.abort(request_id, sample_index)

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events of EngineClient.generate, counted, until this slot's deadline.

        Leaving it early, by `aclose` or by cancellation, aborts the request. Raises Refusal where
        the deadline passes or the server stops.
        """
        meter = self._meters[request.request_id] = Meter(request, self.record, self._ledger)
        why: str | None = "disconnect"
        task = asyncio.current_task()
        assert task is not None
        try:
            async with self._first_batch.place(), aclosing(self._engine.generate(request)) as run:
                while True:
                    self._raise_ending()
                    self._waiting.add(task)
                    try:
                        event = await anext(run, None)
                    except asyncio.CancelledError:
                        if self.is_ended and task.uncancel() == 0:
                            self._raise_ending()  # it was `end` that cancelled us
                        raise
                    finally:
                        self._waiting.discard(task)
                    if event is None:
                        break
                    if not self.has_started:
                        self.has_started = True
                        self._on_start(self)
                    meter.note(event)
                    yield event
            why = None
        except Refusal as refusal:
            why = refusal.code
            raise
        except EngineDied:
            why = "engine_died"
            raise
        except InvalidRequest:
            why = None
            raise
        finally:
            del self._meters[request.request_id]
            meter.close(why)

    def _raise_ending(self) -> None:
        if self._ending is not None:
            raise self._ending from None


class Meter:
    """The counter of one request's events and tokens; an event costs about a microsecond."""

    def __init__(self, request: Request, record: Record, ledger: Ledger) -> None:
        self._num_prompt_tokens = len(request.prompt_token_ids)
        self._num_open = request.params.n
        self._last: list[float | None] = [None] * request.params.n
        self._stopped: set[int] = set()
        self._has_begun = False
        self._record = record
        self._ledger = ledger

    def stopped(self, sample_index: int) -> None:
        """Note that a stop string ended this sample, though the engine will call it aborted."""
        self._stopped.add(sample_index)

    def note(self, event: TokenEvent) -> None:
        if not self._has_begun:
            self._begin(event)
        if event.token_ids:
            self._note_tokens(event.sample_index, len(event.token_ids))
        if event.finish_reason is not None:
            is_stop = event.sample_index in self._stopped
            self._finish(FinishReason.STOP if is_stop else event.finish_reason)

    def close(self, why: str | None) -> None:
        """Count the end of the request; `why` says what ended it before its samples did, if so."""
        if why is not None and self._num_open:
            self._ledger.aborted[why] += 1
            is_error = why == "engine_died"
            for _ in range(self._num_open):
                self._finish(FinishReason.ERROR if is_error else FinishReason.ABORTED)

    def _begin(self, event: TokenEvent) -> None:
        self._has_begun = True
        self._record.prompt_tokens += self._num_prompt_tokens
        self._record.cached_tokens += event.num_cached_tokens
        self._ledger.prompt_tokens += self._num_prompt_tokens
        self._ledger.cached_tokens += event.num_cached_tokens
        self._ledger.queued.observe(event.queue_seconds)

    def _note_tokens(self, sample_index: int, num_tokens: int) -> None:
        now = time.perf_counter()
        last = self._last[sample_index]
        self._last[sample_index] = now
        self._record.completion_tokens += num_tokens
        self._record.rate.note(num_tokens, now)
        self._ledger.generated_tokens += num_tokens
        if last is not None:
            self._ledger.between_tokens.observe((now - last) / num_tokens, num_tokens)
        elif self._record.first_token_seconds is None:
            self._record.first_token_seconds = now - self._record.started
            self._ledger.first_token.observe(self._record.first_token_seconds)

    def _finish(self, reason: FinishReason) -> None:
        self._num_open -= 1
        self._ledger.finished[reason.value] += 1
        self._record.finish_reasons.append(reason.value)
