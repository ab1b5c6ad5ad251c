"""Turn the items of a response's input into the messages of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.errors import InvalidRequest

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_REASONING_PARTS = {"reasoning_text": "text", "summary_text": "text"}
_KINDS = "message, function_call, function_call_output and reasoning"
# What is read of each kind of items, and what stands in those that a response has given: the
# second changes nothing, and needn't be told to be ignored.
_READ = {
    "message": {"role", "content"},
    "function_call": {"call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "reasoning": {"summary", "content"},
}
_OF_ANSWERS = {"type", "id", "status"}
_READ_OF_PARTS = {"type", "text", "refusal", "annotations", "logprobs"}
_MAX_NAMED = 32


def _part_schema(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, "text": {"type": "string"}},
        "required": ["type", "text"],
    }


_TEXT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": _part_schema("input_text"),
        },
    ]
}
INPUT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {
                            "type": {"const": "message"},
                            "role": {"enum": list(_ROLES)},
                            "content": _TEXT_SCHEMA,
                        },
                        "required": ["role", "content"],
                    },
                    {
                        "type": "object",
                        "properties": {
                            "type": {"const": "function_call"},
                            "call_id": {"type": "string"},
                            "name": {"type": "string"},
                            "arguments": {"type": "string", "description": "An object in JSON."},
                        },
                        "required": ["type", "call_id", "name", "arguments"],
                    },
                    {
                        "type": "object",
                        "properties": {
                            "type": {"const": "function_call_output"},
                            "call_id": {"type": "string"},
                            "output": _TEXT_SCHEMA,
                        },
                        "required": ["type", "call_id", "output"],
                    },
                    {
                        "type": "object",
                        "properties": {
                            "type": {"const": "reasoning"},
                            "summary": {"type": "array", "items": _part_schema("summary_text")},
                            "content": {
                                "type": "array",
                                "items": _part_schema("reasoning_text"),
                            },
                        },
                        "required": ["type", "summary"],
                    },
                ]
            },
        },
    ]
}


def messages_of(
    given: object, instructions: str | None
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the messages of an input, and the names of keys of its items that have no effect.

    The reasoning, the text and the calls of one turn of the assistant become one message, as
    chat templates want them. Raises InvalidRequest, which says which item is wrong, and how.
    """
    first = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(given, str):
        return [*first, {"role": "user", "content": given}], ()
    if not isinstance(given, list) or not given:
        raise InvalidRequest("input must be a text, or a list of at least one item", param="input")
    turns = _Turns(first)
    ignored: dict[str, None] = {}
    for index, item in enumerate(given):
        where = f"input[{index}]"
        kind = _kind(item, where)
        turns.add(kind, item, where)
        for key, value in item.items():
            if value is not None and key not in _READ[kind] | _OF_ANSWERS:
                ignored[f"input[].{key}"] = None
            for part in value if isinstance(value, list) else ():
                unread = part.keys() - _READ_OF_PARTS if isinstance(part, dict) else ()
                ignored |= dict.fromkeys(f"input[].{key}[].{each}" for each in sorted(unread))
    if not turns.messages:
        raise _wrong("input has no text: give a message beside the reasoning")
    return turns.whole(), tuple(ignored)[:_MAX_NAMED]


def _kind(item: object, where: str) -> str:
    if not isinstance(item, Mapping):
        raise _wrong(f"{where} must be an object")
    kind = "message" if item.get("type") is None else item["type"]
    if kind == "item_reference":
        raise _wrong(
            f"{where} refers to an item that a server has stored, and nothing is stored here: send "
            "the item itself (with the AI SDK, set providerOptions.openai.store to false)"
        )
    if not isinstance(kind, str) or kind not in _READ:
        shown = f"of type {kind[:40]!r}" if isinstance(kind, str) else "of no known type"
        raise _wrong(f"{where} is {shown}: only items of type {_KINDS} are taken")
    return kind


class _Turns:
    """The messages so far; the assistant's last one stays open for what belongs to it."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages
        self._turn: dict[str, Any] | None = None

    def add(self, kind: str, item: Mapping[str, Any], where: str) -> None:
        """Add an item of the input."""
        match kind:
            case "reasoning":
                self._add_reasoning(item, where)
            case "function_call":
                self._open().setdefault("tool_calls", []).append(_call(item, where))
            case "function_call_output":
                output = _content(item.get("output"), f"{where}.output")
                call_id = _name(item, "call_id", where)
                self._close({"role": "tool", "tool_call_id": call_id, "content": output})
            case _:
                self._add_message(item, where)

    def whole(self) -> list[dict[str, Any]]:
        """Return the messages once all items are added, each with its reasoning as one text."""
        for message in self.messages:
            if "reasoning" in message:
                message["reasoning"] = "".join(message["reasoning"])
        return self.messages

    def _add_message(self, item: Mapping[str, Any], where: str) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise _wrong(f"{where}.role must be one of {', '.join(_ROLES)}")
        content = _content(item.get("content"), f"{where}.content")
        if role != "assistant":
            self._close({"role": role, "content": content})
            return
        if self._turn is not None and "content" in self._turn:
            self._turn = None
        self._open()["content"] = content

    def _add_reasoning(self, item: Mapping[str, Any], where: str) -> None:
        name = "content" if item.get("content") else "summary"
        parts = item.get(name)
        text = "\n".join(_texts(parts, f"{where}.{name}", _REASONING_PARTS)) if parts else ""
        if self._turn is not None and self._turn.keys() & {"content", "tool_calls"}:
            self._turn = None
        if text:
            self._open().setdefault("reasoning", []).append(text)

    def _open(self) -> dict[str, Any]:
        if self._turn is None:
            self._turn = {"role": "assistant"}
            self.messages.append(self._turn)
        return self._turn

    def _close(self, message: dict[str, Any]) -> None:
        self._turn = None
        self.messages.append(message)


def _call(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    arguments = _name(item, "arguments", where)
    function = {"name": _name(item, "name", where), "arguments": arguments}
    return {"id": _name(item, "call_id", where), "type": "function", "function": function}


def _name(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise _wrong(f"{where}.{key} must be a text")
    return value


def _content(content: object, where: str) -> str | list[dict[str, Any]]:
    """Return a content as a chat has it: a text, or parts of text."""
    if isinstance(content, str):
        return content
    texts = _texts(content, where, _TEXT_PARTS)
    return [{"type": "text", "text": text} for text in texts]


def _texts(parts: object, where: str, kinds: Mapping[str, str]) -> list[str]:
    if not isinstance(parts, list) or not parts:
        raise _wrong(f"{where} must be a text, or a list of at least one part")
    return [_part(part, f"{where}[{i}]", kinds) for i, part in enumerate(parts)]


def _part(part: object, where: str, kinds: Mapping[str, str]) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        raise _wrong(f"{where} must be an object with a type")
    if kind not in kinds:
        raise _wrong(f"{where} is of type {kind[:40]!r}: only {' and '.join(kinds)} are taken")
    text = part.get(kinds[kind])
    if not isinstance(text, str):
        raise _wrong(f"{where}.{kinds[kind]} must be a text")
    return text


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="input")
