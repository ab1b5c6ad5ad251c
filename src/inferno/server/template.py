"""Events of which only the text changes: the JSON around it is made once."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

_encode = msgspec.json.Encoder().encode


class TextTemplate:
    """The bytes of an event around its text; `make` returns the event of any text."""

    __slots__ = ("_parts",)

    def __init__(self, make: Callable[[str], bytes]) -> None:
        mark = secrets.token_hex(16)  # a word that no other field holds
        self._parts = make(mark).split(_encode(mark))

    def fill(self, text: str) -> bytes:
        """Return the event with this text."""
        return _encode(text).join(self._parts)
