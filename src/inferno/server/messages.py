"""What a route reads of a chat's messages itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inferno.text.conversation import flat_content


def last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the assistant has said last, if that is where the conversation ends."""
    last = messages[-1]
    if last.get("role") != "assistant" or last.get("content") is None:
        return ""
    return flat_content(last["content"], f"messages[{len(messages) - 1}]")
