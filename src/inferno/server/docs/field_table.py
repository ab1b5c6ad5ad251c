"""Describe the fields of requests: how far each is supported, and its JSON Schema in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from inferno.server.openai.request_types import RequestFields, Unsupported

Schema = Mapping[str, Any]

_LARGE = 2**31 - 1  # a bound of the machine's integers, and nothing to tell
# Where the field's usual meaning, that of OpenAI or vLLM, is another.
_DIFFERS = {
    "priority": "vLLM runs lower numbers first, and only if it is set up to",
    "stop": "up to 16 texts of 512 characters; OpenAI takes 4",
    "max_tokens": "more than the context has room for is cut to it",
    "max_completion_tokens": "more than the context has room for is cut to it",
    "top_logprobs": "vLLM takes -1 for all",
    "prompt_logprobs": "vLLM takes -1 for all",
    "timeout": "inferno's own",
}
_HINT = "Hint."  # how the descriptions of such fields begin


class Support(StrEnum):
    """A degree of support for a field that clients may send."""

    SUPPORTED = "supported"
    DIFFERS = "differs"
    HINT = "accepted, changes nothing"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A row for one field; `default` is JSON, and empty where the field must be given."""

    name: str
    values: str
    default: str
    support: Support
    note: str


def field_rows(kind: type[RequestFields]) -> list[FieldRow]:
    """Return the rows of one kind of requests, unsupported fields last."""
    rows = [*_taken(kind), *_unsupported(kind.unsupported)]
    return sorted(rows, key=lambda row: (row.support is Support.UNSUPPORTED, row.name))


def in_words(schema: Schema) -> str:
    """Return a JSON Schema in words, such as `integer, 1 to 128`; other types by their names."""
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
    """Return whether null is one of a JSON Schema's choices."""
    return {"type": "null"} in schema.get("anyOf", ())


def without_null(schema: Schema) -> Schema:
    """Return a schema's choices without null, for a null in a request counts as absent."""
    if not can_be_null(schema):
        return schema
    return {**schema, "anyOf": [each for each in schema["anyOf"] if each != {"type": "null"}]}


def _taken(kind: type[RequestFields]) -> Iterator[FieldRow]:
    (_, components) = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = components[kind.__name__]
    for name, of_field in schema["properties"].items():
        values = in_words(without_null(of_field))
        default = as_json(of_field["default"]) if "default" in of_field else ""
        note = of_field.get("description", "")
        if note.startswith(_HINT):
            note = note.removeprefix(_HINT).strip()
            yield FieldRow(name, values, default, Support.HINT, note)
        elif name in _DIFFERS:
            note = f"{note} Differs: {_DIFFERS[name]}."
            yield FieldRow(name, values, default, Support.DIFFERS, note)
        else:
            yield FieldRow(name, values, default, Support.SUPPORTED, note)


def _unsupported(unsupported: Unsupported) -> Iterator[FieldRow]:
    note = "Any other value is a 400 that names it."
    for name, accepted in unsupported.items():
        values = " or ".join(["null", *map(as_json, accepted)])
        default = as_json(accepted[0] if accepted else None)
        yield FieldRow(name, values, default, Support.UNSUPPORTED, note)


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
