"""The parts of a chat's messages that a route reads itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inferno.text.conversation import flat_content


def last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the assistant's text that ends the conversation; empty where it ends otherwise."""
    last = messages[-1]
    if last.get("role") != "assistant" or last.get("content") is None:
        return ""
    return flat_content(last["content"], f"messages[{len(messages) - 1}]")
