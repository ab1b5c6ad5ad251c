"""Write calls of tools in answers: whole, and as deltas of a stream; each call has an id."""

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
from inferno.text.parsers.calls.syntax import ToolDialect, ToolUse
from inferno.text.parsers.parser import Call, Piece

_ALPHANUMERIC = string.ascii_letters + string.digits
_SHORT = 9  # characters, and no others are taken by Mistral's chat templates
_MISTRALS = (ToolDialect.MISTRAL_LIST, ToolDialect.MISTRAL_ARGS)
_LONG_BYTES = 12


def new_id(tool_use: ToolUse | None) -> str:
    """Return an id that no other call has, in the form that the model's chat template takes."""
    if tool_use is not None and tool_use.dialect in _MISTRALS:
        return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(_SHORT))
    return "call_" + secrets.token_hex(_LONG_BYTES)


def whole_calls(done: Completion, tool_use: ToolUse | None) -> list[ToolCall]:
    """Return the calls of a complete answer.

    tool_use    how the model was to call its tools.
    """
    return [
        ToolCall(call.id or new_id(tool_use), FunctionCall(call.name, call.arguments))
        for call in done.tool_calls
    ]


class ToolCallDeltas:
    """A maker of the deltas of one choice's calls, which remembers the calls begun."""

    def __init__(self, tool_use: ToolUse | None) -> None:
        self._tool_use = tool_use
        self._begun: set[int] = set()

    def of(self, pieces: Iterable[Piece]) -> list[ToolCallDelta]:
        """Return what pieces of an answer add to calls, at most one delta for each call."""
        calls: dict[int, Call] = {}
        arguments: dict[int, str] = {}
        for piece in pieces:
            if (call := piece.call) is not None:
                calls[call.index] = call
                arguments[call.index] = arguments.get(call.index, "") + piece.text
        return [
            self._delta(call, arguments[index])
            for index, call in calls.items()
            if arguments[index] or index not in self._begun
        ]

    def _delta(self, call: Call, arguments: str) -> ToolCallDelta:
        if call.index in self._begun:
            return ToolCallDelta(call.index, FunctionDelta(arguments))
        self._begun.add(call.index)
        return ToolCallDelta(
            call.index,
            FunctionDelta(arguments, call.name),
            id=call.id or new_id(self._tool_use),
            type="function",
        )
