"""Counts what comes of one engine request: tokens, times, endings."""

from __future__ import annotations

import time

from inferno.requests import FinishReason, Request, TokenEvent
from inferno.server.edge.ledger import Ledger
from inferno.server.edge.record import Record


class Meter:
    """Told of every event of a request; costs about a microsecond each."""

    def __init__(self, request: Request, record: Record, ledger: Ledger) -> None:
        self._num_prompt_tokens = len(request.prompt_token_ids)
        self._num_open = request.params.n
        self._last: list[float | None] = [None] * request.params.n
        self._stopped: set[int] = set()
        self._has_begun = False
        self._record = record
        self._ledger = ledger

    def stopped(self, sample_index: int) -> None:
        """This sample's end as aborted will be a stop string's doing."""
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
        """The request is over; `why` it ended before its samples did, if it did."""
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
