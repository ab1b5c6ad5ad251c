"""Lease the engine to one request: its deadline, its runs of `generate`, and their counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from inferno.client import EngineClient
from inferno.errors import EngineDied, InvalidRequest
from inferno.requests import FinishReason, Request, TokenEvent
from inferno.server.http.context import RequestContext
from inferno.server.http.errors import ApiError, DeadlineExceeded
from inferno.server.http.metrics import ServerMetrics


class Lease:
    """A request's lease of the engine, from admission to its end; `async with` releases it.

    on_start    called at the first event; on_release: called when the lease is released.
    """

    def __init__(
        self,
        engine: EngineClient,
        context: RequestContext,
        metrics: ServerMetrics,
        first_batch: FirstBatch,
        *,
        on_start: Callable[[Lease], None],
        on_release: Callable[[Lease], None],
    ) -> None:
        self.context = context
        self.has_started = False
        self._engine = engine
        self._metrics = metrics
        self._first_batch = first_batch
        self._on_start = on_start
        self._on_release = on_release
        self._is_held = True
        self._ending: ApiError | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Task[Any]] = set()  # those that wait for an event of ours
        self._meters: dict[str, Meter] = {}
        context.on_end(self.release)

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def end_after(self, seconds: float) -> None:
        """Set the deadline, counted from the request's body on."""
        left = max(0.0, self.context.left(seconds))
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(left, self.end, DeadlineExceeded(seconds))

    def end(self, why: ApiError) -> None:
        """Have every run of `generate` raise `why`, at once if waiting, else when it next waits."""
        if self._ending is None and self._is_held:
            self._ending = why
            for task in self._waiting:
                task.cancel()

    @property
    def is_ended(self) -> bool:
        """Return whether the lease was ended, so that its runs raise an error."""
        return self._ending is not None

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            if self._deadline is not None:
                self._deadline.cancel()
            self._on_release(self)

    def stop(self, request_id: str, sequence_index: int) -> None:
        """End one sequence at a stop string; the sequence counts as finished, not as aborted."""
        if request_id in self._meters:
            self._meters[request_id].stopped(sequence_index)
        self._engine.abort(request_id, sequence_index)

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events of EngineClient.generate, counted, until this lease's deadline.

        Leaving the generator early, by `aclose` or by cancellation, aborts the request. Raises
        ApiError where the deadline passes or the server stops.
        """
        meter = self._meters[request.request_id] = Meter(request, self.context, self._metrics)
        why: str | None = "disconnect"
        task = asyncio.current_task()
        assert task is not None
        try:
            async with (
                self._first_batch.submission(),
                aclosing(self._engine.generate(request)) as run,
            ):
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
        except ApiError as error:
            why = error.code
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

    def __init__(self, request: Request, context: RequestContext, metrics: ServerMetrics) -> None:
        self._num_prompt_tokens = len(request.prompt_token_ids)
        self._num_open = request.params.n
        self._last: list[float | None] = [None] * request.params.n
        self._stopped: set[int] = set()
        self._has_begun = False
        self._context = context
        self._metrics = metrics

    def stopped(self, sequence_index: int) -> None:
        """Note that a stop string ended a sequence, though the engine will report it as aborted."""
        self._stopped.add(sequence_index)

    def note(self, event: TokenEvent) -> None:
        if not self._has_begun:
            self._begin(event)
        if event.proposals:
            self._context.proposals[event.request_id, event.sequence_index] = event.proposals
        if event.token_ids:
            self._note_tokens(event.sequence_index, len(event.token_ids))
        if event.finish_reason is not None:
            is_stop = event.sequence_index in self._stopped
            self._finish(FinishReason.STOP if is_stop else event.finish_reason)

    def close(self, why: str | None) -> None:
        """Count the end of the request; `why` names what ended it early, if anything did."""
        if why is not None and self._num_open:
            self._metrics.aborted[why] += 1
            is_error = why == "engine_died"
            for _ in range(self._num_open):
                self._finish(FinishReason.ERROR if is_error else FinishReason.ABORTED)

    def _begin(self, event: TokenEvent) -> None:
        self._has_begun = True
        self._context.prompt_tokens += self._num_prompt_tokens
        self._context.cached_tokens += event.num_cached_tokens
        self._metrics.prompt_tokens += self._num_prompt_tokens
        self._metrics.cached_tokens += event.num_cached_tokens
        if self._context.queue_seconds is None:
            self._context.queue_seconds = event.queue_seconds
        self._metrics.queue_time.observe(event.queue_seconds)

    def _note_tokens(self, sequence_index: int, num_tokens: int) -> None:
        now = time.perf_counter()
        last = self._last[sequence_index]
        self._last[sequence_index] = now
        self._context.completion_tokens += num_tokens
        self._context.rate.note(num_tokens, now)
        self._metrics.generated_tokens += num_tokens
        if last is not None:
            self._metrics.inter_token_latency.observe((now - last) / num_tokens, num_tokens)
        elif self._context.first_token_seconds is None:
            self._context.first_token_seconds = now - self._context.started
            self._metrics.time_to_first_token.observe(self._context.first_token_seconds)

    def _finish(self, reason: FinishReason) -> None:
        self._num_open -= 1
        self._metrics.finished[reason.value] += 1
        self._context.finish_reasons.append(reason.value)


class FirstBatch:
    """A gate that holds first requests back until `seconds` have passed or enough have come.

    enough      returns how many requests fill a batch; called each time.
    """

    def __init__(self, seconds: float, enough: Callable[[], int]) -> None:
        self._seconds = seconds
        self._enough = enough
        self._num_running = 0
        self._num_gathered = 0
        self._go: asyncio.Event | None = None  # there while requests are gathered

    @asynccontextmanager
    async def submission(self) -> AsyncIterator[None]:
        """Return a context, entered when a request may go to the engine, left when it ends."""
        if self._seconds and not self._num_running:
            await self._gather()
        else:
            self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1

    async def _gather(self) -> None:
        if self._go is None:
            self._go = asyncio.Event()
            asyncio.get_running_loop().call_later(self._seconds, self._release, self._go)
        go = self._go
        self._num_gathered += 1
        if self._num_gathered >= self._enough():
            self._release(go)
        try:
            await go.wait()
        except asyncio.CancelledError:
            if go.is_set():
                self._num_running -= 1
            else:
                self._num_gathered -= 1
            raise

    def _release(self, go: asyncio.Event) -> None:
        if go is self._go:  # else that batch has left already
            go.set()
            self._num_running += self._num_gathered
            self._num_gathered = 0
            self._go = None
