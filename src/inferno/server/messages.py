"""A chat's messages as chat templates take them: each with a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inferno.errors import InvalidRequest


def with_plain_content(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose parts, of which only text is taken, are one text of a line each.

    Not every template knows of parts; all know texts.
    """
    return [
        {**message, "content": _joined(message["content"], f"messages[{index}]")}
        if isinstance(message.get("content"), list)
        else {**message}
        for index, message in enumerate(messages)
    ]


def last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the assistant has said last, if that is where the conversation ends."""
    last = messages[-1]
    text = last.get("content") if last.get("role") == "assistant" else None
    return text if isinstance(text, str) else ""


def _joined(parts: Sequence[Any], where: str) -> str:
    return "\n".join(_text(part, f"{where}.content[{i}]") for i, part in enumerate(parts))


def _text(part: object, where: str) -> str:
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "text"}:
            raise InvalidRequest(f"{where}.text must be a text", param="messages")
        case {"type": str(kind)}:
            raise InvalidRequest(
                f"{where} is of type {kind[:40]!r}: only parts of type 'text' are taken",
                param="messages",
            )
    raise InvalidRequest(f'{where} must be {{"type": "text", "text": ...}}', param="messages")
