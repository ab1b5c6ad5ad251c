"""Read calls whose arguments are JSON: of Hermes, Mistral and DeepSeek."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container

from inferno.text.parsers.calls.syntax import (
    ARGS,
    CALL_BEGIN,
    CALL_END,
    CALL_ID,
    CALLS_BEGIN,
    CALLS_END,
    FENCE,
    FENCE_END,
    SEP,
    TOOL_CALL,
    TOOL_CALL_END,
    TOOL_CALLS,
    is_name,
)
from inferno.text.parsers.calls.text import MARKS, AnswerText, NoCall, Steps

# Outside of strings, what begins a mark or a fence is never JSON: there the arguments are over.
_OUTSIDE = re.compile(rf'[^"{{}}\[\]<`{MARKS}]+')
_INSIDE = re.compile(rf'[^"\\{MARKS}]+')
_INSIDE_STRICT = re.compile(rf'[^"\\\x00-\x1f{MARKS}]+')
_NO_JSON = "<`"
_SCALAR = re.compile(r"[-+.\w]+")
_LINE = re.compile(rf"[^\n<{MARKS}]+")
_NAME = re.compile(rf"[^\s{{\[{MARKS}]+")
_ID = re.compile(r"[\w-]+")
_ARGUMENTS = ("arguments", "parameters")


def read_hermes(text: AnswerText) -> Steps[None]:
    """Read `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of times."""

    def read_call(_: str) -> Steps[None]:
        yield from text.space()
        yield from read_object(text)

    return read_marked(text, (TOOL_CALL,), (TOOL_CALL_END,), read_call)


def read_mistral(text: AnswerText) -> Steps[None]:
    """Read `[TOOL_CALLS]` with a list of objects, or `[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`."""

    def read_calls(_: str) -> Steps[None]:
        yield from text.space()
        if (yield from text.mark("[")):
            yield from read_list(text, lambda: read_object(text))
        elif (yield from text.peek()) == "{":
            yield from read_object(text)
        else:
            yield from _read_named(text)

    return read_marked(text, (TOOL_CALLS,), (), read_calls)


def read_deepseek(text: AnswerText) -> Steps[None]:
    """Read the calls that DeepSeek puts between its own marks, the arguments fenced."""

    def read_call(mark: str) -> Steps[None]:
        if mark == CALLS_BEGIN:
            yield from text.space()
            yield from text.expect(CALL_BEGIN)
        yield from text.run(_LINE)  # the type: `function`
        yield from text.expect(SEP)
        name = (yield from text.run(_LINE)).strip()
        yield from text.space()
        yield from text.expect(FENCE)
        yield from text.space()
        if not is_name(name) or (yield from text.peek()) != "{":
            raise NoCall
        text.tell(name)
        yield from _stream(text)
        yield from text.space()
        yield from text.mark(FENCE_END)

    return read_marked(text, (CALLS_BEGIN, CALL_BEGIN), (CALL_END, CALLS_END), read_call)


def read_marked(
    text: AnswerText,
    opens: tuple[str, ...],
    closes: tuple[str, ...],
    read_call: Callable[[str], Steps[None]],
) -> Steps[None]:
    """Read content with calls that begin with marks; after a call, closing marks are no content."""
    while mark := (yield from text.content(opens + (closes if text.num_calls else ()))):
        if mark in closes:
            text.forget()
            continue
        try:
            yield from read_call(mark)
        except NoCall:
            text.refuse()
        else:
            text.forget()


def read_list(text: AnswerText, read_call: Callable[[], Steps[None]]) -> Steps[None]:
    """Read calls up to the bracket that ends a list; the opening bracket was passed already."""
    while True:
        yield from text.space()
        yield from read_call()
        yield from text.space()
        if (yield from text.mark("]")):
            return
        yield from text.expect(",")


def read_object(text: AnswerText, names: Container[str] | None = None) -> Steps[None]:
    """Read a call as an object with the keys `name` and `arguments`, or `parameters`.

    names       the names of tools; an object with one is a call only if it has arguments. None: any
                name is a call's, and arguments may be missing.

    Raises NoCall where the object is no call; if a call was announced already, the held text is
    what came after.
    """
    yield from text.expect("{")
    name: str | None = None
    call_id: str | None = None
    arguments: str | None = None
    is_told = False
    while True:
        yield from text.space()
        key = yield from _read_string(text)
        yield from text.space()
        yield from text.expect(":")
        yield from text.space()
        if key == "name" and name is None:
            name = yield from _read_string(text)
            if not is_name(name) or (names is not None and name not in names):
                raise NoCall
        elif key in _ARGUMENTS and arguments is None:
            if (yield from text.peek()) != "{":
                raise NoCall
            if name is not None:
                text.tell(name, call_id)
                is_told, arguments = True, ""
                yield from _stream(text)
            else:
                arguments = yield from _read_value(text)
        elif key == "id" and (yield from text.peek()) == '"':
            call_id = yield from _read_string(text)
        else:
            yield from _read_value(text)
        if not is_told and name is not None and arguments is not None:
            text.tell(name, call_id)
            text.argue(arguments)
            is_told = True
        yield from text.space()
        if (yield from text.mark("}")):
            break
        yield from text.expect(",")
    if not is_told:
        if name is None or names is not None:
            raise NoCall
        text.tell(name, call_id)
        text.argue("{}")
    text.forget()


def _read_named(text: AnswerText) -> Steps[None]:
    name = yield from text.run(_NAME)
    call_id = None
    yield from text.space()
    if (yield from text.mark(CALL_ID)):
        call_id = yield from text.run(_ID)
        yield from text.space()
    if (yield from text.mark(ARGS)):
        yield from text.space()
    if not is_name(name) or (yield from text.peek()) != "{":
        raise NoCall
    text.tell(name, call_id or None)
    yield from _stream(text)


def _stream(text: AnswerText) -> Steps[None]:
    """Pass the object that comes next as arguments, while it comes, up to its end."""

    def argue(part: str) -> None:
        text.argue(part)
        text.forget()

    yield from _walk(text, argue)


def _read_value(text: AnswerText) -> Steps[str]:
    """Pass a value of any kind and return it as it is written; NoCall where it is none."""
    parts: list[str] = []
    character = yield from text.peek()
    if character == '"':
        return json.dumps((yield from _read_string(text)))
    if character and character in "{[":
        if not (yield from _walk(text, parts.append)):
            raise NoCall
        return "".join(parts)
    if not (scalar := (yield from text.run(_SCALAR))):
        raise NoCall
    return scalar


def _walk(text: AnswerText, take: Callable[[str], object]) -> Steps[bool]:
    """Pass an object or list, part by part, and return whether it ended as such."""
    depth = 0
    is_inside = False
    while character := (yield from text.peek()):
        if part := text.some(_INSIDE if is_inside else _OUTSIDE):
            take(part)
            continue
        if (not is_inside and character in _NO_JSON) or not (part := text.one()):
            return False
        take(part)
        if is_inside:
            if character == '"':
                is_inside = False
            elif (yield from text.peek()) and (part := text.one()):  # after a backslash
                take(part)
        elif character == '"':
            is_inside = True
        elif character in "{[":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return True
    return False


def _read_string(text: AnswerText) -> Steps[str]:
    """Pass a string, and return what it means; NoCall where it is none."""
    yield from text.expect('"')
    parts: list[str] = []
    while (character := (yield from text.peek())) != '"':
        part = text.some(_INSIDE_STRICT) or text.one()
        if character == "\\" and (yield from text.peek()):
            part += text.one()
        elif part < " ":
            raise NoCall  # the end, a mark or a control character
        parts.append(part)
    yield from text.expect('"')
    try:
        meaning: str = json.loads(f'"{"".join(parts)}"')
    except ValueError:
        raise NoCall from None
    return meaning
