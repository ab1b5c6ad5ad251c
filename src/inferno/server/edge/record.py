"""The record of one HTTP request: facts for endpoints, the log and the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inferno.server.edge.asgi import Scope
from inferno.text.completion import TokenRate


@dataclass(slots=True, eq=False, kw_only=True)
class Record:
    """One per request, in the scope's state as `record`; endpoints read it and may add to it.

    request_id      what the client called the request, or what we call it: for answers and logs.
                    Clients may repeat theirs, so that the engine needs ids of its own.
    key_id          which API key it came with; None where keys are not asked for.
    cache_salt      goes in front of a request's own, so that keys don't share cached prefixes.
    started         when it came, in time.perf_counter's seconds.
    received        when its body was whole: its deadline counts from then.
    status          of the answer; None before it begins.
    prompt_tokens, cached_tokens, completion_tokens, finish_reasons    counted by Slot.generate.
    rate            of its tokens.
    rejected        the code of what refused it, if something did.
    prompt          for the log: an endpoint sets it where the settings' log_prompts is on.
    """

    request_id: str
    key_id: str | None = None
    cache_salt: str = ""
    started: float = field(default_factory=time.perf_counter)
    received: float = field(default_factory=time.perf_counter)
    status: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float | None = None
    rate: TokenRate = field(default_factory=TokenRate)
    finish_reasons: list[str] = field(default_factory=list)
    rejected: str | None = None
    prompt: str | None = None
    _on_end: list[Callable[[], None]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Return the seconds since the request came."""
        return time.perf_counter() - self.started

    def left(self, seconds: float) -> float:
        """Return how many of these seconds are left since the body came; below 0 when late."""
        return self.received + seconds - time.perf_counter()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call this when the request is over, whatever became of it."""
        self._on_end.append(callback)

    def end(self) -> None:
        while self._on_end:
            self._on_end.pop()()


def record_of(scope: Scope) -> Record:
    """Return the record of the request that this scope describes, once it has passed the edge."""
    record = scope["state"]["record"]
    assert isinstance(record, Record)
    return record
