"""ASGI in types, and the headers of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return every value of a header, whose name is given in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return a header's value: the first where it is repeated, None where there is none."""
    return next((value for key, value in scope["headers"] if key == name), None)
