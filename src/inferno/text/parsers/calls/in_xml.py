"""Read calls in tags, whose values become JSON by the tool's schema: Qwen3-Coder's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from inferno.text.parsers.calls.in_json import read_marked
from inferno.text.parsers.calls.in_python import as_json, is_json, python_to_json
from inferno.text.parsers.calls.syntax import (
    FUNCTION,
    FUNCTION_END,
    PARAMETER,
    PARAMETER_END,
    TOOL_CALL,
    TOOL_CALL_END,
    is_name,
)
from inferno.text.parsers.calls.text import MARKS, AnswerText, NoCall, Steps

_NAME = re.compile(rf"[^<>\n{MARKS}]+")
_RUN = re.compile(rf"[^<\n{MARKS}]+")
_MAX_SCHEMA_DEPTH = 8
_Schema = Mapping[str, Any]
_BESIDE_REFERENCE = {"$defs", "definitions", "$schema", "title", "description", "type"}
_TYPES = ("null", "boolean", "integer", "number", "object", "array")
_NAMES = {"boolean": ("true", "false"), "null": ("null",)}
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.0+)?")


def read_xml(text: AnswerText, schemas: Mapping[str, _Schema]) -> Steps[None]:
    """Read `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`.

    Without `<tool_call>`, a text is a call only if it names a tool of the request.
    """

    def read_call(mark: str) -> Steps[None]:
        if mark == TOOL_CALL:
            yield from text.space()
            yield from text.expect(FUNCTION)
        name = yield from text.run(_NAME)
        if not is_name(name) or (mark == FUNCTION and name not in schemas):
            raise NoCall
        yield from text.expect(">")
        text.tell(name)
        yield from _read_parameters(text, resolved(schemas.get(name, {})))

    return read_marked(text, (TOOL_CALL, FUNCTION), (TOOL_CALL_END,), read_call)


def _read_parameters(text: AnswerText, schema: _Schema) -> Steps[None]:
    text.argue("{")
    seen: set[str] = set()
    while True:
        yield from text.space()
        if (yield from text.mark(FUNCTION_END)) or (yield from text.mark(TOOL_CALL_END)):
            text.argue("}")
            return
        yield from text.expect(PARAMETER)
        key = yield from text.run(_NAME)
        yield from text.expect(">")
        if key in seen:  # JSON has each key once: the first stays
            yield from _read_value(text)
            continue
        begin = f"{', ' if seen else ''}{as_json(key)}: "
        seen.add(key)
        types = types_of(schema, key)
        if types == {"string"}:
            text.argue(f'{begin}"')
            yield from _stream_text(text)
            text.argue('"')
        else:
            text.argue(begin + value_in_json((yield from _read_value(text)), types))
        text.forget()


def _stream_text(text: AnswerText) -> Steps[None]:
    """Pass a value that is a text, as part of a string in JSON."""
    text.forget()
    yield from text.mark("\n")
    text.forget()
    while not (yield from _ends(text)):
        part = text.some(_RUN) or text.one()
        if not part:
            raise NoCall  # a mark, or the end
        text.argue(json.dumps(part, ensure_ascii=False)[1:-1])
        text.forget()


def _read_value(text: AnswerText) -> Steps[str]:
    """Pass a value, and return it."""
    yield from text.mark("\n")
    parts: list[str] = []
    while not (yield from _ends(text)):
        part = text.some(_RUN) or text.one()
        if not part:
            raise NoCall
        parts.append(part)
    return "".join(parts)


def _ends(text: AnswerText) -> Steps[bool]:
    """Pass the end of a value if it comes next, with the newline before it."""
    if (yield from text.peek()) == "\n":
        return (yield from text.mark("\n" + PARAMETER_END))
    return (yield from text.mark(PARAMETER_END))


def resolved(schema: _Schema) -> _Schema:
    """Return the schema that a `$ref` refers to, or the schema itself.

    The reference is kept where a keyword with a meaning stands beside `$ref`.
    """
    seen: set[str] = set()
    while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        target, beside = _definition(schema, reference), {**schema}
        del beside["$ref"]
        if not isinstance(target, Mapping) or not beside.keys() <= _BESIDE_REFERENCE:
            break
        if target.get("type", "object") != "object":
            break
        schema = {**target, **beside}
    return schema


def types_of(schema: _Schema, key: str) -> set[str]:
    """Return the types that a parameter's schema allows; empty if it names none."""
    properties = schema.get("properties")
    own = properties.get(key) if isinstance(properties, Mapping) else None
    return set(_types(own, schema, _MAX_SCHEMA_DEPTH, set()))


def _types(schema: object, root: _Schema, depth: int, seen: set[str]) -> Iterator[str]:
    """Yield the types that a schema names; each reference is followed once, and noted in `seen`."""
    if not isinstance(schema, Mapping) or not depth:
        return
    match schema:
        case {"type": str(name)}:
            yield name
        case {"type": list(names) | tuple(names)}:
            yield from (name for name in names if isinstance(name, str))
        case {"$ref": str(reference)} if reference not in seen:
            seen.add(reference)
            yield from _types(_definition(root, reference), root, depth - 1, seen)
        case {"anyOf": list(parts) | tuple(parts)} | {"oneOf": list(parts) | tuple(parts)}:
            for part in parts:
                yield from _types(part, root, depth - 1, seen)
        case {"allOf": [part]}:
            yield from _types(part, root, depth - 1, seen)
        case {"enum": list(values) | tuple(values)}:
            yield from map(_type_of, values)
        case {"const": value}:
            yield _type_of(value)


def _definition(root: _Schema, reference: str) -> object:
    """Return the schema that a reference names, if it is one of the root's definitions."""
    match reference.split("/"):
        case ["#", ("$defs" | "definitions") as where, name]:
            definitions = root.get(where)
            if isinstance(definitions, Mapping):
                return definitions.get(name.replace("~1", "/").replace("~0", "~"))
    return None


def _type_of(value: object) -> str:
    match value:
        case str():
            return "string"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case None:
            return "null"
        case Mapping():
            return "object"
    return "array"


def value_in_json(value: str, types: set[str]) -> str:
    """Return a value as JSON if it has one of the types, or any without types; else as a string.

    A string may be in JSON already: answers are constrained to that where other types are allowed
    too.
    """
    bare = value.strip()
    bare = _PYTHON.get(bare, bare)
    if bare.startswith('"') and is_json(bare):
        return bare
    for name in _TYPES:
        if (not types or name in types) and (written := _as(bare, name)) is not None:
            return written
    return as_json(value)


def _as(text: str, name: str) -> str | None:
    match name:
        case "null" | "boolean":
            return text if text in _NAMES[name] else None
        case "integer":
            return text if _INTEGER.fullmatch(text) else None
        case "number":
            return text if _NUMBER.fullmatch(text) else None
    if text[:1] != ("{" if name == "object" else "["):
        return None
    return text if is_json(text) else python_to_json(text)
