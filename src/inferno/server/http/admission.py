"""Admit requests: give a lease of the engine, or an error at once because the server is full.

An endpoint holds a lease from before its answer begins until the last token is out:

    admission = admission_of(request.scope)
    lease = admission.acquire(num_tokens, context=context_of(request.scope))  # or ApiError: 503
    async with lease:                               # or lease.release(), as often as you like
        async for event in lease.generate(request):  # instead of engine.generate
            ...

`Lease.generate` counts tokens, times and endings, and raises DeadlineExceeded (504) or Unavailable
(the server stops): before the answer has begun these are its status and body, after that its last
event. `lease.stop(request_id, sequence_index)` stands for engine.abort where a stop string was
found. A request of several prompts has one lease and a run of `generate` for each. A lease that is
still held when its HTTP request ends is released then.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum, auto

from inferno.client import EngineState, ServedEngine
from inferno.server.http.context import RequestContext, Scope
from inferno.server.http.errors import ApiError, Unavailable
from inferno.server.http.lease import FirstBatch, Lease
from inferno.server.http.metrics import ServerMetrics
from inferno.server.settings import ServerSettings

_MAX_RETRY_AFTER = 60
_RETRY_SPREAD = 3
_NOT_READY = {
    EngineState.LOADING: ("loading", "The model is still being loaded; try again soon.", 5),
    EngineState.RESTARTING: ("restarting", "The engine is being restarted; try again soon.", 5),
    EngineState.FAILED: ("failed", "The model can't be loaded; see the server's log.", 30),
    EngineState.CLOSED: ("draining", "The server is stopping; try another one.", 5),
}


class Needs(Enum):
    """A condition that must hold before the body of a route's request is read."""

    NOTHING = auto()  # answered at any time, while loading and draining too
    ENGINE = auto()  # loaded, and not about to stop
    ADMISSION = auto()  # that, and room in the queue: the route generates


@dataclass(frozen=True, slots=True)
class _Size:
    num_sequences: int
    num_tokens: int


class Admission:
    """The owner of the leases: at most max_num_seqs sequences run, and max_queue wait."""

    def __init__(
        self, engine: ServedEngine, settings: ServerSettings, metrics: ServerMetrics
    ) -> None:
        self.is_draining = False
        self.num_sequences = 0
        self.num_queued_tokens = 0
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._sizes: dict[Lease, _Size] = {}
        self._first_batch = FirstBatch(settings.max_wait_ms / 1000, lambda: self._num_running_most)
        self._usual_seconds = 1.0  # that a request takes, recent ones counting most

    def acquire(
        self,
        num_tokens: int,
        *,
        context: RequestContext,
        num_sequences: int = 1,
        timeout: float | None = None,
    ) -> Lease:
        """Return a lease for so many prompt tokens; raise ApiError where the server is full.

        num_sequences     sequences of all the request's prompts together.
        timeout         the request's own timeout; it can only shorten the server's.
        """
        try:
            self.check(num_sequences, num_tokens)
        except ApiError as error:
            context.rejected = error.code
            raise
        lease = Lease(
            self._engine,
            context,
            self._metrics,
            self._first_batch,
            on_start=self._started,
            on_release=self._released,
        )
        context.admit()
        self._sizes[lease] = _Size(num_sequences, num_tokens)
        self.num_sequences += num_sequences
        self.num_queued_tokens += num_tokens
        most = self._settings.request_timeout
        lease.end_after(most if timeout is None else min(timeout, most))
        return lease

    def check_needs(self, needs: Needs) -> None:
        """Raise Unavailable while loading, restarting or draining, or with a full queue."""
        if needs is Needs.NOTHING:
            return
        self.check_draining()
        self.check_ready()
        if needs is Needs.ADMISSION:
            self.check()

    def check(self, num_sequences: int = 1, num_tokens: int = 0) -> None:
        """Raise Unavailable where a request would be rejected; an empty server takes all."""
        self.check_ready()
        most = self._num_running_most + self._settings.max_queue
        if self.num_sequences and self.num_sequences + num_sequences > most:
            raise self._full("queue_full", "The server has as many requests as it takes")
        queued = self.num_queued_tokens
        if queued and queued + num_tokens > self._settings.max_queue_tokens:
            raise self._full("queue_tokens_full", "The prompts that wait are as long as it takes")

    def check_ready(self) -> None:
        """Raise Unavailable unless the engine takes requests."""
        if self._engine.state in _NOT_READY:
            code, message, retry_after = _NOT_READY[self._engine.state]
            if (recovery := self._engine.recovery) is not None:
                retry_after = max(retry_after, math.ceil(recovery.seconds_left))
            raise Unavailable(code, message, retry_after=retry_after)

    def check_draining(self) -> None:
        """Raise Unavailable once the server is stopping; requests taken before may go on."""
        if self.is_draining:
            code, message, retry_after = _NOT_READY[EngineState.CLOSED]
            raise Unavailable(code, message, retry_after=retry_after)

    def end_all(self, why: ApiError) -> None:
        """End every request that has a lease, with the given error."""
        for lease in list(self._sizes):
            lease.end(why)

    @property
    def num_open(self) -> int:
        """Return how many leases are held: requests that wait or run."""
        return len(self._sizes)

    @property
    def _num_running_most(self) -> int:
        facts = self._engine.facts
        return facts.max_num_seqs if facts is not None else 1

    def _full(self, code: str, message: str) -> Unavailable:
        # Not the same for all, lest those rejected together come back together.
        seconds = round(self._usual_seconds * random.uniform(1, _RETRY_SPREAD))
        seconds = min(_MAX_RETRY_AFTER, max(1, seconds))
        return Unavailable(code, f"{message}; try again later.", retry_after=seconds)

    def _started(self, lease: Lease) -> None:
        self.num_queued_tokens -= self._sizes[lease].num_tokens

    def _released(self, lease: Lease) -> None:
        size = self._sizes.pop(lease)
        self.num_sequences -= size.num_sequences
        if not lease.has_started:
            self.num_queued_tokens -= size.num_tokens
        self._usual_seconds += 0.1 * (lease.context.seconds - self._usual_seconds)


def admission_of(scope: Scope) -> Admission:
    """Return the admission of this request's server, once the request has passed the middleware."""
    admission = scope["state"]["admission"]
    assert isinstance(admission, Admission)
    return admission
