"""Keep what is known of an HTTP request; read its headers; name ASGI's types."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from inferno.requests import ProposalCounts
from inferno.text.completion import TokenRate

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_SAFE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True, eq=False, kw_only=True)
class RequestContext:
    """The facts of one request, in the scope's state as `context`; endpoints may add to them.

    request_id      the client's id of the request, or else our own: for answers and logs. Clients
                    may repeat an id, so the engine gets ids of its own.
    key_id          the API key that the request came with; None where no key is needed.
    cache_salt      precedes the salt in the request's body, so that keys don't share cached
                    prefixes.
    started         when the request came, in time.perf_counter's seconds.
    received        when the body was whole: the deadline counts from then.
    status          of the answer; None before the answer begins.
    prompt_tokens, cached_tokens, completion_tokens, finish_reasons    counted by Lease.generate.
    queue_seconds   how long the first sequence waited for a place; None before that.
    proposals       counts of speculative decoding's proposals, by sequence.
    rate            of the new tokens.
    rejected        the code of the error that rejected the request, if one did.
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
    queue_seconds: float | None = None
    first_token_seconds: float | None = None
    proposals: dict[tuple[str, int], tuple[ProposalCounts, ...]] = field(default_factory=dict)
    rate: TokenRate = field(default_factory=TokenRate)
    finish_reasons: list[str] = field(default_factory=list)
    rejected: str | None = None
    prompt: str | None = None
    _on_end: list[Callable[[], None]] = field(default_factory=list)
    _on_admission: list[Callable[[], None]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Return the seconds since the request came."""
        return time.perf_counter() - self.started

    def left(self, seconds: float) -> float:
        """Return how many of `seconds` are left since the body came; below 0 when late."""
        return self.received + seconds - time.perf_counter()

    def on_admission(self, callback: Callable[[], None]) -> None:
        """Have a function called when the engine may have the request, or else when it is over."""
        self._on_admission.append(callback)

    def admit(self) -> None:
        """Note that the engine may have the request, and call those who asked for that."""
        while self._on_admission:
            self._on_admission.pop()()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have a function called when the request is over, however it ended."""
        self._on_end.append(callback)

    def end(self) -> None:
        self.admit()
        while self._on_end:
            self._on_end.pop()()


def context_of(scope: Scope) -> RequestContext:
    """Return the context of the request with this scope, once the middleware has made it."""
    context = scope["state"]["context"]
    assert isinstance(context, RequestContext)
    return context


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return every value of a header, whose name is given in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return a header's value: the first where it is repeated, None where there is none."""
    return next((value for key, value in scope["headers"] if key == name), None)


def request_id(scope: Scope) -> str:
    """Return the x-request-id of a request if it is safe to log, or else a new id."""
    given = header_values(scope, b"x-request-id")
    if len(given) == 1 and _SAFE.fullmatch(given[0]):
        return given[0].decode("ascii")
    return f"req-{random.getrandbits(96):024x}"  # no secret, and no call of the system
