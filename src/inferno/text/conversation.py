"""Check a caller's messages, tools and template options, and mark their special tokens."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferno.errors import InvalidRequest
from inferno.surrogates import check_whole
from inferno.text.call_form import MAX_DEPTH, CallForm
from inferno.text.special_token_escape import SpecialTokenEscaper
from inferno.text.special_tokens import NAMES

MAX_KWARGS = 64
MAX_INTEGER_BITS = 1024
_PART = '{"type": "text", "text": ...}'
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", *REASONING_FIELDS)
_ROLE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RESERVED = {
    *NAMES,
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "sanitize_control_tokens",
    "tokenizer_kwargs",
    "raise_exception",
    "strftime_now",
    "namespace",
    "dict",
    "range",
    "cycler",
    "joiner",
    "lipsum",
    "self",
    "loop",
    "caller",
}


def checked_messages(
    messages: object, escaper: SpecialTokenEscaper, form: CallForm | None = None
) -> list[dict[str, Any]]:
    """Return a template's own copy of the messages: plain data, special tokens marked.

    form    how the template takes calls of tools.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise _refuse("messages", messages, "a list of at least one message")
    form = form or CallForm()
    return [
        _message(message, f"messages[{i}]", escaper, form) for i, message in enumerate(messages)
    ]


def checked_tools(tools: object, escaper: SpecialTokenEscaper) -> list[Any] | None:
    """Return the tools as a template gets them, or None without tools."""
    if tools is None:
        return None
    if isinstance(tools, str | bytes) or not isinstance(tools, Sequence):
        raise _refuse("tools", tools, "a list of tools")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise _refuse(f"tools[{index}]", tool, "a JSON object", param="tools")
    return [escaper.escape(_plain(tool, "tools")) for tool in tools]


def checked_kwargs(kwargs: object, escaper: SpecialTokenEscaper) -> dict[str, Any]:
    """Return the template's own options; refuse names that mean something else already."""
    if not isinstance(kwargs, Mapping) or len(kwargs) > MAX_KWARGS:
        raise _refuse("kwargs", kwargs, f"a mapping of at most {MAX_KWARGS} template options")
    for name in kwargs:
        is_name = isinstance(name, str) and name.isidentifier() and not name.startswith("_")
        if not is_name or name in _RESERVED:
            raise _refuse("kwargs", name, "a mapping whose keys are the template's own options")
    return {name: escaper.escape(_plain(value, "kwargs")) for name, value in kwargs.items()}


def _message(
    message: object, where: str, escaper: SpecialTokenEscaper, form: CallForm
) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _refuse(where, message, 'an object such as {"role": "user", "content": "Hello"}')
    role = message.get("role")
    # A template writes the role as it is, often within a special token: <|user|>.
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise _refuse(f"{where}.role", role, "a name such as user, of letters, digits, _ . and -")
    _check_calls(message, where)
    texts = _texts_of(message, role, where)
    for text in texts:
        check_whole(text, f"{where}.content", param="messages")
    # Many templates write a null as the text "None", but know what to do with a missing key.
    present = {key: value for key, value in message.items() if value is not None}
    data: Any = _plain({**present, "content": ""}, "messages")
    form.apply(data, where)
    plain: Any = escaper.escape(data)
    if plain.get("tool_calls") and not any(texts):
        plain["content"] = None if form.takes_null else ""
    elif texts:
        # Each by itself: a template that takes the lines' ends away makes no token of two parts.
        plain["content"] = _joined(str(escaper.escape(text)) for text in texts)
    else:
        del plain["content"]
    return _with_reasoning({**plain, "role": role})


def flat_content(content: object, where: str) -> str:
    """Return a message's content as one text: its text parts, on a line each.

    Not every template can read parts, but all read texts. Raises InvalidRequest for anything else.
    """
    return _joined(_parts(content, where))


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def _texts_of(message: Mapping[Any, Any], role: str, where: str) -> list[str]:
    """Return the parts of the message's text; none for what an assistant may say without one."""
    content = message.get("content")
    if content is not None:
        return _parts(content, where)
    if role == "assistant":
        if isinstance(refusal := message.get("refusal"), str):
            return [refusal]
        if any(message.get(name) for name in _INSTEAD_OF_CONTENT):
            return []
    raise InvalidRequest(
        f"{where}.content is missing or null: give a text, or a list of parts such as {_PART}; "
        "only an assistant's message may be without, if it has tool_calls, a refusal or reasoning",
        param="messages",
    )


def _parts(content: object, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list | tuple) or not content:
        raise _refuse(f"{where}.content", content, "a text, or a list of at least one part")
    return [_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)]


def _part(part: object, where: str) -> str:
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
    raise _refuse(where, part, _PART)


def _check_calls(message: Mapping[Any, Any], where: str) -> None:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list | tuple):
        raise _refuse(f"{where}.tool_calls", calls, "a list of tool calls")
    for index, call in enumerate(calls):
        # Hugging Face's conversations also have the function's name without the wrap.
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise _refuse(
                f"{where}.tool_calls[{index}]",
                call,
                'an object such as {"type": "function", "function": {"name": "f", ...}}',
            )


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    # The reasoning goes by several names; most templates read the first, gpt-oss's the second.
    for name in REASONING_FIELDS:
        if (reasoning := message.get(name)) is not None:
            return {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return message


def _plain(value: object, param: str, depth: int = 0) -> object:
    """Return the value as JSON would carry it, checked."""
    if depth > MAX_DEPTH:
        raise InvalidRequest(f"{param} is nested deeper than {MAX_DEPTH} levels", param=param)
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int) and value.bit_length() <= MAX_INTEGER_BITS:
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, param, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, param, depth + 1) for item in value]
    raise _refuse(param, value, "JSON data: texts, numbers, lists and objects with texts as keys")


def _refuse(name: str, value: object, expected: str, *, param: str | None = None) -> InvalidRequest:
    is_huge = isinstance(value, int) and value.bit_length() > 256  # repr() of it may refuse
    shown = "a huge integer" if is_huge else reprlib.repr(value)
    return InvalidRequest(
        f"{name} must be {expected}, not {shown}", param=param or name.partition("[")[0]
    )


def last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the assistant's text at the end of a conversation; empty without one."""
    last = messages[-1]
    if last.get("role") != "assistant" or last.get("content") is None:
        return ""
    return flat_content(last["content"], f"messages[{len(messages) - 1}]")
