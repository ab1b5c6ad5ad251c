"""/openapi.json: the routes' own types, as JSON Schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.answers import Error
from inferno.server.field_table import harmless_of
from inferno.server.refused import Harmless

_JSON = "application/json"
ERRORS = {
    "400": "The request is refused; `param` names the field.",
    "401": "There is no API key, or not a valid one.",
    "403": "The key lacks a scope, or a browser comes from a foreign page.",
    "404": "There is no such model or route.",
    "408": "The request took too long to arrive.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "500": "The server made a mistake.",
    "503": "Loading, draining, full or restarting; see Retry-After.",
    "504": "The request took longer than it may.",
}
# What the edge answers by itself: the summary, the other statuses and the media type.
_VIEWS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "/health": ("200 while the process lives and its engine gets on.", ("503",), _JSON),
    "/ready": ("200 while requests are taken.", ("503",), _JSON),
    "/metrics": ("Counts and times, for Prometheus.", ("401", "403"), "text/plain"),
    "/debug/state": ("Engine, requests, memory and children.", ("401", "403"), _JSON),
}


@dataclass(frozen=True, slots=True)
class Route:
    """One route: the types of its body, of its answer and, where it streams, of an event."""

    method: str
    path: str
    endpoint: Callable[[HttpRequest], Awaitable[Response]]
    request: type[msgspec.Struct] | None
    answer: type[msgspec.Struct]
    event: type[msgspec.Struct] | None = None


def openapi(app: FastAPI, routes: Sequence[Route]) -> dict[str, Any]:
    """The description of all routes."""
    kinds = {kind for route in routes for kind in (route.request, route.answer, route.event)}
    types = [kind for kind in kinds | {Error} if kind is not None]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    for route in routes:
        if route.request is not None:
            _close(components[route.request.__name__], harmless_of(route.path))
    paths: dict[str, Any] = {}
    for route in routes:
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, by_type)
    for path in _VIEWS:
        paths[path] = {"get": _view(path, by_type)}
    return {
        "openapi": "3.1.0",
        "info": {"title": app.title, "version": app.version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _close(schema: dict[str, Any], harmless: Harmless) -> None:
    """As requests are read: refused fields may be harmless, others are none, null is absent."""
    needed = schema["required"]
    taken = {
        name: of_field if name in needed else _nullable(of_field)
        for name, of_field in schema["properties"].items()
    }
    refused = {name: {"enum": [None, *values]} for name, values in harmless.items()}
    schema["properties"] = taken | refused
    schema["additionalProperties"] = False


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    match schema:
        case {"type": kind}:
            return {**schema, "type": [kind, "null"]}
        case {"enum": values}:
            return {**schema, "enum": [*values, None]}
    return schema  # a choice that has null already


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    content = {_JSON: {"schema": schemas[route.answer]}}
    if route.event is not None:
        content["text/event-stream"] = {"schema": _events(schemas[route.event])}
    operation: dict[str, Any] = {
        "operationId": route.endpoint.__name__,
        "summary": (route.endpoint.__doc__ or "").strip(),
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **_errors(ERRORS, schemas),
        },
    }
    if route.request is not None:
        body = {_JSON: {"schema": schemas[route.request]}}
        operation["requestBody"] = {"required": True, "content": body}
    if "{" in route.path:
        name = route.path[route.path.index("{") + 1 : route.path.index("}")].partition(":")[0]
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return operation


def _events(schema: dict[str, Any]) -> dict[str, Any]:
    """Of each event."""
    json = {"type": "string", "contentMediaType": _JSON, "contentSchema": schema}
    data = {"anyOf": [json, {"const": "[DONE]"}]}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def _view(path: str, schemas: dict[Any, Any]) -> dict[str, Any]:
    summary, errors, kind = _VIEWS[path]
    schema = {"type": "object" if kind == _JSON else "string"}
    return {
        "operationId": "get" + path.replace("/", "_"),
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": {kind: {"schema": schema}}},
            **_errors(errors, schemas),
        },
    }


def _errors(statuses: Iterable[str], schemas: dict[Any, Any]) -> dict[str, Any]:
    content = {_JSON: {"schema": schemas[Error]}}
    return {status: {"description": ERRORS[status], "content": content} for status in statuses}
