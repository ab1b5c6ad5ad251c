"""The worker's protocol as JSON Schema, from the types that it is made of."""

from __future__ import annotations

from collections.abc import Collection
from inspect import cleandoc
from typing import Any

import msgspec

from inferno.server.answers import Error
from inferno.server.fields import StreamOptions
from inferno.server.worker.fields import CancelRequest, ChatJob, PromptJob
from inferno.server.worker.messages import Cancelled, End, Metrics, Ready, Started, Token

# The event's name, and what its data is.
EVENTS: dict[str, type[msgspec.Struct]] = {
    "started": Started,
    "token": Token,
    "metrics": Metrics,
    "end": End,
    "error": Error,
}
_JOBS = (ChatJob, PromptJob)
_OTHERS = (Ready, CancelRequest, Cancelled)


def protocol_schema() -> dict[str, Any]:
    """Return the schema of every message, by the names of docs/worker.md."""
    types = [*_JOBS, *_OTHERS, *EVENTS.values()]
    _, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for kind in _JOBS:
        definitions[kind.__name__] = _without(definitions[kind.__name__], kind.refused)
    del definitions[StreamOptions.__name__]  # of a field that is refused
    for definition in definitions.values():
        definition["description"] = cleandoc(definition.get("description", ""))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "inferno worker",
        "$defs": dict(sorted(definitions.items())),
    }


def _without(schema: dict[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return the schema without these fields, and closed to fields that are unknown."""
    taken = {name: of for name, of in schema["properties"].items() if name not in refused}
    return {**schema, "properties": taken, "additionalProperties": False}
