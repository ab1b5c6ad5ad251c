"""Join pieces to a whole answer, and write an answer as a message for the chat template."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.harmony import SEPARATOR
from inferno.text.parsers.parser import Call, Part, Piece
from inferno.untrusted_json import Malformed, parse_object


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model; the arguments are as written, JSON if all is well.

    id      as the model wrote it; None in dialects without ids.
    """

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of one output: reasoning, content and calls of tools."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()


def join_pieces(pieces: Iterable[Piece]) -> Answer:
    """Join all pieces of an output to an answer."""
    texts: dict[Part, list[str]] = {part: [] for part in Part}
    calls: dict[int, Call] = {}
    arguments: dict[int, list[str]] = {}
    for piece in pieces:
        if piece.call is None:
            texts[piece.part].append(piece.text)
        else:
            calls[piece.call.index] = piece.call
            arguments.setdefault(piece.call.index, []).append(piece.text)
    return Answer(
        reasoning="".join(texts[Part.REASONING]),
        content="".join(texts[Part.CONTENT]),
        tool_calls=tuple(
            ToolCall(call.name, "".join(arguments[index]), call.id)
            for index, call in sorted(calls.items())
        ),
    )


def assistant_message(answer: Answer, dialect: Dialect) -> dict[str, Any]:
    """Return an answer as a message of the conversation, for the model's chat template.

    The message has the reasoning: the template itself leaves out what the model must not see again.
    """
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.tool_calls:
        message["tool_calls"] = [
            _message_call(index, call) for index, call in enumerate(answer.tool_calls)
        ]
    match dialect:
        case Dialect.THINK:  # a missing field would make the template look for marks in the content
            message["reasoning_content"] = answer.reasoning
        case Dialect.HARMONY if answer.tool_calls:  # the template refuses a content beside a call
            texts = filter(None, (answer.reasoning, answer.content))
            message |= {"thinking": SEPARATOR.join(texts), "content": ""}
        case Dialect.HARMONY if answer.reasoning:
            message["thinking"] = answer.reasoning
    return message


def _message_call(index: int, call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call)}
    # Mistral's templates want ids, of just so many letters and digits.
    return {"type": "function", "id": call.id or f"call{index:05}", "function": function}


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    """Return the arguments as an object, which templates write as JSON, else as the text."""
    try:
        return parse_object(call.arguments.encode())
    except Malformed:
        return call.arguments
