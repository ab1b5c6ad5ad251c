"""Make the OpenAPI document of the table of routes, with its types as JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.openai.request_types import Unsupported
from inferno.server.openai.response_types import Error
from inferno.server.route import JSON, Route

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
_NAME_IN_PATH = re.compile(r"\{(\w+)")


async def get_openapi(http: HttpRequest) -> Response:
    """Return the description of the application's routes."""
    return Response(msgspec.json.encode(http.app.openapi()), media_type=JSON)


def openapi(app: FastAPI, routes: Iterable[Route]) -> dict[str, Any]:
    """Return the description of all routes that have a tag."""
    routes = [route for route in routes if route.tag is not None]
    requests = list(dict.fromkeys(kind for route in routes for kind in route.requests))
    given = dict.fromkeys(kind for route in routes for kind in (route.response, route.event))
    types = [*requests, *(kind for kind in given if kind is not None), Error]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    for kind in requests:
        _close(components[kind.__name__], kind.unsupported)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.methods[0].lower()] = _operation(route, by_type)
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


def _close(schema: dict[str, Any], accepted: Unsupported) -> None:
    """Allow null for optional fields and what unsupported ones may have; forbid other fields."""
    needed = schema["required"]
    taken = {
        name: of_field if name in needed else _nullable(of_field)
        for name, of_field in schema["properties"].items()
    }
    unsupported = {name: {"enum": [None, *values]} for name, values in accepted.items()}
    schema["properties"] = taken | unsupported
    schema["additionalProperties"] = False


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    match schema:
        case {"type": kind}:
            return {**schema, "type": [kind, "null"]}
        case {"enum": values}:
            return {**schema, "enum": [*values, None]}
    return schema  # a choice that has null already


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    kind = "object" if route.media_type == JSON else "string"
    answer = {"type": kind} if route.response is None else schemas[route.response]
    content = {route.media_type: {"schema": answer}}
    if route.event is not None:
        content["text/event-stream"] = {
            "schema": _events(schemas[route.event], tells_done=route.tells_done)
        }
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **_errors(ERRORS if route.errors is None else map(str, route.errors), schemas),
        },
    }
    if route.requests:
        [request] = route.requests
        body = {JSON: {"schema": schemas[request]}}
        operation["requestBody"] = {"required": True, "content": body}
    if names := _NAME_IN_PATH.findall(route.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return operation


def _events(schema: dict[str, Any], *, tells_done: bool) -> dict[str, Any]:
    """Return the schema of a stream's events: each has JSON of this schema as data, or [DONE]."""
    data: dict[str, Any] = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    if tells_done:
        data = {"anyOf": [data, {"const": "[DONE]"}]}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def _errors(statuses: Iterable[str], schemas: dict[Any, Any]) -> dict[str, Any]:
    content = {JSON: {"schema": schemas[Error]}}
    return {status: {"description": ERRORS[status], "content": content} for status in statuses}
