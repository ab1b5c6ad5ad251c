"""Every field that clients may send, and what becomes of it: the tables of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from inferno.server.docs.schema_words import as_json, in_words, without_null
from inferno.server.openai.request_types import RequestFields, Unsupported

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
    """One field; `default` in JSON, empty where it must be given."""

    name: str
    values: str
    default: str
    support: Support
    note: str


def field_rows(kind: type[RequestFields]) -> list[FieldRow]:
    """Return the table of one kind of requests, unsupported fields last."""
    rows = [*_taken(kind), *_unsupported(kind.unsupported)]
    return sorted(rows, key=lambda row: (row.support is Support.UNSUPPORTED, row.name))


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
