"""/openapi.json: the routes' own types, as JSON Schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.answers import Error

_JSON = "application/json"
_ERRORS = {
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
    paths: dict[str, Any] = {}
    for route in routes:
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, by_type)
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


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    content = {_JSON: {"schema": schemas[route.answer]}}
    if route.event is not None:
        content["text/event-stream"] = {"schema": schemas[route.event]}
    error = {_JSON: {"schema": schemas[Error]}}
    operation: dict[str, Any] = {
        "operationId": route.endpoint.__name__,
        "summary": (route.endpoint.__doc__ or "").strip(),
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{status: {"description": why, "content": error} for status, why in _ERRORS.items()},
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
