"""JSON Schema in a few words, for people: `integer, 1 to 128`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any]

_LARGE = 2**31 - 1


def in_words(schema: Schema) -> str:
    """Return in words what a value may be; other types stand there by name."""
    match schema:
        case {"$ref": str(reference)}:
            return reference.rpartition("/")[2]
        case {"anyOf": [*choices]}:
            return "; or ".join(dict.fromkeys(map(in_words, choices)))
        case {"enum": [*values]}:
            return " or ".join(map(as_json, values))
        case {"const": value}:
            return as_json(value)
        case {"type": "array"}:
            return _list(schema)
        case {"type": "object"}:
            return _object(schema)
        case {"type": "string"}:
            return "text" + _most(schema, "maxLength", "characters")
        case {"type": str(kind)}:
            return kind + _range(schema)
    return "anything"


def as_json(value: Any) -> str:
    """Return a value as a client writes it."""
    return msgspec.json.encode(value).decode()


def can_be_null(schema: Schema) -> bool:
    """Return whether null is one of the choices."""
    return {"type": "null"} in schema.get("anyOf", ())


def without_null(schema: Schema) -> Schema:
    """Return the other choices: a null in a request counts as absent."""
    if not can_be_null(schema):
        return schema
    return {**schema, "anyOf": [each for each in schema["anyOf"] if each != {"type": "null"}]}


def _list(schema: Schema) -> str:
    items = in_words(schema.get("items") or {})
    return f"list of ({items})" + _most(schema, "maxItems", "of them")


def _object(schema: Schema) -> str:
    most = _most(schema, "maxProperties", "entries")
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"object of ({in_words(values)}){most}"
    return f"object{most}"


def _most(schema: Schema, name: str, unit: str) -> str:
    return f", at most {schema[name]} {unit}" if name in schema else ""


def _range(schema: Schema) -> str:
    low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
    if (above := _bound(schema, "exclusiveMinimum")) is not None:
        return f", above {above}" + (f" to {high}" if high is not None else "")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", at least {low}"
    return f", at most {high}" if high is not None else ""


def _bound(schema: Schema, name: str) -> str | None:
    """Return a bound in digits, unless it is that of the machine's integers."""
    value = schema.get(name)
    return None if value is None or abs(value) >= _LARGE else str(value).removesuffix(".0")
