"""Take requests, or send them away at once because the server is full.

An endpoint holds a slot from before its answer begins until the last token is out:

    admission = admission_of(request.scope)
    slot = admission.slot(num_tokens, record=record_of(request.scope))  # or Refusal: 503
    async with slot:                                       # or slot.release(), as often as you like
        async for event in slot.generate(engine_request):  # instead of engine.generate
            ...

`Slot.generate` counts tokens, times and endings, and raises DeadlineExceeded (504) or Unavailable
(the server stops): before the answer has begun these are its status and body, after that its last
event. `slot.stop(request_id, sample_index)` stands for engine.abort where a stop string was found.
A request of several prompts has one slot and a run of `generate` for each. A slot that nobody gave
back is given back when its HTTP request ends.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum, auto

from inferno.client import EngineState, ServedEngine
from inferno.server.edge.asgi import Scope
from inferno.server.edge.first_batch import FirstBatch
from inferno.server.edge.ledger import Ledger
from inferno.server.edge.record import Record
from inferno.server.edge.refusal import Refusal, Unavailable
from inferno.server.edge.slot import Slot
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
    PLACE = auto()  # that, and room in the queue: the route generates


@dataclass(frozen=True, slots=True)
class _Size:
    num_samples: int
    num_tokens: int


class Admission:
    """Owns the places: at most max_num_seqs samples run, and max_queue wait for one."""

    def __init__(self, engine: ServedEngine, settings: ServerSettings, ledger: Ledger) -> None:
        self.is_draining = False
        self.num_samples = 0
        self.num_queued_tokens = 0
        self._engine = engine
        self._settings = settings
        self._ledger = ledger
        self._sizes: dict[Slot, _Size] = {}
        self._first_batch = FirstBatch(settings.max_wait_ms / 1000, lambda: self._num_running_most)
        self._usual_seconds = 1.0  # that a request takes, recent ones counting most

    def slot(
        self,
        num_tokens: int,
        *,
        record: Record,
        num_samples: int = 1,
        timeout: float | None = None,
    ) -> Slot:
        """Return a place for a request of so many prompt tokens; raise Refusal where there is none.

        num_samples     of all its prompts together.
        timeout         the request's own; it can only shorten the server's.
        """
        try:
            self.check(num_samples, num_tokens)
        except Refusal as refusal:
            record.rejected = refusal.code
            raise
        slot = Slot(
            self._engine,
            record,
            self._ledger,
            self._first_batch,
            on_start=self._started,
            on_release=self._released,
        )
        self._sizes[slot] = _Size(num_samples, num_tokens)
        self.num_samples += num_samples
        self.num_queued_tokens += num_tokens
        most = self._settings.request_timeout
        slot.end_after(most if timeout is None else min(timeout, most))
        return slot

    def check_needs(self, needs: Needs) -> None:
        """Raise Unavailable while loading, restarting or draining, or with a full queue."""
        if needs is Needs.NOTHING:
            return
        self.check_draining()
        self.check_ready()
        if needs is Needs.PLACE:
            self.check()

    def check(self, num_samples: int = 1, num_tokens: int = 0) -> None:
        """Raise Unavailable where such a request would be refused; an empty server takes any."""
        self.check_ready()
        most = self._num_running_most + self._settings.max_queue
        if self.num_samples and self.num_samples + num_samples > most:
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

    def end_all(self, why: Refusal) -> None:
        """End every request that has a slot, with this reason."""
        for slot in list(self._sizes):
            slot.end(why)

    @property
    def num_open(self) -> int:
        """Return how many slots are held: requests that wait or run."""
        return len(self._sizes)

    @property
    def _num_running_most(self) -> int:
        facts = self._engine.facts
        return facts.max_num_seqs if facts is not None else 1

    def _full(self, code: str, message: str) -> Unavailable:
        # Not the same for all, lest those sent away together come back together.
        seconds = round(self._usual_seconds * random.uniform(1, _RETRY_SPREAD))
        seconds = min(_MAX_RETRY_AFTER, max(1, seconds))
        return Unavailable(code, f"{message}; try again later.", retry_after=seconds)

    def _started(self, slot: Slot) -> None:
        self.num_queued_tokens -= self._sizes[slot].num_tokens

    def _released(self, slot: Slot) -> None:
        size = self._sizes.pop(slot)
        self.num_samples -= size.num_samples
        if not slot.has_started:
            self.num_queued_tokens -= size.num_tokens
        self._usual_seconds += 0.1 * (slot.record.seconds - self._usual_seconds)


def admission_of(scope: Scope) -> Admission:
    """Return the admission of this request's server, once the request has passed the edge."""
    admission = scope["state"]["admission"]
    assert isinstance(admission, Admission)
    return admission
