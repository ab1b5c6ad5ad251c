"""Calls of tools in answers: whole, and as the deltas of a stream; each call has an id."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable

from inferno.server.openai.response_types import (
    FunctionCall,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)
from inferno.text.completion import Completion
from inferno.text.model_text import ModelText
from inferno.text.parsers.parser import Piece

_ALPHANUMERIC = string.ascii_letters + string.digits
_SHORT = 9  # characters, and no others are taken by Mistral's chat templates
_LONG_BYTES = 12


def new_call_id(text: ModelText) -> str:
    """Return an id that no other call has, in the form that the model's chat template takes."""
    if text.wants_short_call_ids:
        return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(_SHORT))
    return "call_" + secrets.token_hex(_LONG_BYTES)


def whole_calls(done: Completion, text: ModelText) -> list[ToolCall]:
    """Return the calls of an answer that is complete."""
    return [
        ToolCall(new_call_id(text), FunctionCall(call.name, call.arguments))
        for call in done.tool_calls
    ]


class ToolCallDeltas:
    """A maker of the deltas of one choice's calls, which remembers what it has begun to tell."""

    def __init__(self, text: ModelText) -> None:
        self._text = text
        self._begun: set[int] = set()

    def of(self, pieces: Iterable[Piece]) -> list[ToolCallDelta]:
        """Return what these pieces add to calls, at most one delta for each call."""
        names: dict[int, str] = {}
        arguments: dict[int, str] = {}
        for piece in pieces:
            if (call := piece.call) is not None:
                names[call.index] = call.name
                arguments[call.index] = arguments.get(call.index, "") + piece.text
        return [
            self._delta(index, name, arguments[index])
            for index, name in names.items()
            if arguments[index] or index not in self._begun
        ]

    def _delta(self, index: int, name: str, arguments: str) -> ToolCallDelta:
        if index in self._begun:
            return ToolCallDelta(index, FunctionDelta(arguments))
        self._begun.add(index)
        return ToolCallDelta(
            index, FunctionDelta(arguments, name), id=new_call_id(self._text), type="function"
        )
