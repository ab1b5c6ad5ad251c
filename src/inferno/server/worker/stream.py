"""A job's events, as they are sent."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec
from msgspec import UNSET

from inferno.client import ServedEngine
from inferno.server.call import finish_reason, stop_reason
from inferno.server.edge import Record, Refusal, Slot
from inferno.server.fields import GenerateFields
from inferno.server.jobs import Job
from inferno.server.sse import event
from inferno.server.worker.messages import Counts, End, Metrics, Started, Timings, Token
from inferno.server.worker.under_way import JobCancelled, JobUnderWay
from inferno.text.completion import Chunk, Completion

_METRICS_SECONDS = 1.0
_encode = msgspec.json.Encoder().encode


def error_event(refusal: Refusal) -> bytes:
    """Return the last event of a job that failed."""
    return b"event: error\n" + event(refusal.body)


class JobStream:
    """Makes the events of one job."""

    def __init__(
        self,
        job_id: str,
        fields: GenerateFields,
        job: Job,
        under_way: JobUnderWay,
        engine: ServedEngine,
        record: Record,
    ) -> None:
        self._job_id = job_id
        self._fields = fields
        self._job = job
        self._under_way = under_way
        self._engine = engine
        self._record = record
        self._num_told = 0
        self._completion: Completion | None = None
        self._metrics_due = time.monotonic() + _METRICS_SECONDS

    async def events(
        self, slot: Slot, chunks: AsyncGenerator[Chunk, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the job's events, but for an error; the slot is given back at the end."""
        yield _event(b"started", Started(job_id=self._job_id, prompt_tokens=self._job.num_tokens))
        async with slot, aclosing(chunks):
            try:
                async for chunk in chunks:
                    self._completion = chunk.completion
                    yield b"".join(self._events_of(chunk))
            except JobCancelled:
                self._completion = None
            finally:
                self._under_way.end()  # before its last event: who reads that may use its id again
        yield _event(b"metrics", self._metrics()) + _event(b"end", self._end())

    def _events_of(self, chunk: Chunk) -> Iterator[bytes]:
        """Yield an event for each token; held-back text comes with the token that settles it."""
        *held, last = chunk.token_ids or (None,)
        for token_id in held:
            yield self._token("", token_id)
        if last is not None or chunk.pieces:
            yield self._token(chunk.text, last, chunk.reasoning)
        if (now := time.monotonic()) >= self._metrics_due:
            self._metrics_due = now + _METRICS_SECONDS
            yield _event(b"metrics", self._metrics())

    def _token(self, text: str, token_id: int | None, reasoning: str = "") -> bytes:
        if token_id is not None:
            self._num_told += 1
        told = Token(text=text, id=token_id, index=self._num_told - 1, reasoning=reasoning or UNSET)
        return _event(b"token", told)

    def _metrics(self) -> Metrics:
        stats = self._engine.stats()
        return Metrics(
            completion_tokens=self._num_told,
            time_to_first_token_ms=self._first_token_ms,
            tokens_per_second=self._record.rate.per_second,
            running=stats.running,
            waiting=stats.waiting,
            blocks_used=stats.blocks_used,
            blocks_free=stats.blocks_free,
            device_bytes=dict(stats.device_bytes),
        )

    def _end(self) -> End:
        done = self._completion
        return End(
            job_id=self._job_id,
            stop_reason="cancelled" if done is None else finish_reason(done),
            stop=None if done is None else stop_reason(done, self._fields),
            counts=Counts(
                prompt_tokens=self._job.num_tokens,
                cached_tokens=self._record.cached_tokens,
                completion_tokens=self._num_told,
                reasoning_tokens=None if done is None else done.usage.reasoning_tokens,
            ),
            timings=Timings(
                time_to_first_token_ms=self._first_token_ms,
                total_ms=self._record.seconds * 1000,
                tokens_per_second=self._record.rate.per_second,
            ),
        )

    @property
    def _first_token_ms(self) -> float | None:
        first = self._record.first_token_seconds
        return None if first is None else first * 1000


def _event(kind: bytes, message: msgspec.Struct) -> bytes:
    return b"event: " + kind + b"\n" + event(_encode(message))
