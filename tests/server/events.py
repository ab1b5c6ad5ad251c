"""Server-sent events, read as a client does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

import httpx


def events_of(answer: httpx.Response | str) -> list[Any]:
    """The events' data; the last is the text `[DONE]`, if the stream came to its end."""
    text = answer if isinstance(answer, str) else answer.text
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    data = [block.removeprefix("data: ") for block in blocks]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


def choices_of(events: Iterable[Any]) -> list[Any]:
    """The choices of all events, in order."""
    return [choice for event in events if event != "[DONE]" for choice in event["choices"]]


def joined(lists: Iterable[list[Any]]) -> list[Any]:
    """One list of all."""
    return list(chain.from_iterable(lists))
