"""Make the reference page: every route with its fields, as one page of HTML that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.docs.field_table import (
    Schema,
    Support,
    can_be_null,
    field_rows,
    in_words,
    without_null,
)
from inferno.server.docs.openapi import get_openapi
from inferno.server.openai.request_types import RequestFields
from inferno.server.route import Route

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
h2 { margin-top: 3rem; border-bottom: 1px solid #8886; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0; }
td:first-child { white-space: nowrap; }
tr + tr { border-top: 1px solid #8884; }
"""
_Cells = Sequence[str]  # HTML


async def get_reference(http: HttpRequest) -> Response:
    """Return the page of the application's routes."""
    page = http.app.state.reference_page()
    return Response(page, headers=_HEADERS, media_type="text/html; charset=utf-8")


def render(description: Mapping[str, Any], routes: Iterable[Route]) -> str:
    """Return the reference page of some routes and their OpenAPI description."""
    info = description["info"]
    title = f"{info['title']} {info['version']}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>An OpenAI-compatible server. For programs: {_for_programs(routes)}.</p>",
            *_contents(description),
            *_routes(description, routes),
            *_types(description["components"]["schemas"]),
            "</body></html>",
        ]
    )


def _for_programs(routes: Iterable[Route]) -> str:
    """Return a link to the OpenAPI document, which stands beside the page."""
    [name] = [route.path.lstrip("/") for route in routes if route.endpoint is get_openapi]
    return f'<a href="{escape(name)}">{escape(name)}</a>'


def _contents(description: Mapping[str, Any]) -> Iterator[str]:
    rows = (
        (_link(path, f"{method.upper()} {path}"), escape(operation["summary"]))
        for path, method, operation in _operations(description)
    )
    yield _table(("Route", "What it does"), rows)


def _routes(description: Mapping[str, Any], routes: Iterable[Route]) -> Iterator[str]:
    requests = {(route.template, route.methods[0].lower()): route.requests for route in routes}
    for path, method, operation in _operations(description):
        yield f'<h2 id="{escape(path)}"><code>{method.upper()} {escape(path)}</code></h2>'
        yield f"<p>{escape(operation['summary'])}</p>"
        for kind in requests[path, method]:
            yield "<h3>Fields</h3>"
            yield _table(("Field", "Value", "Default", "Meaning"), _fields(kind))
        yield "<h3>Answers</h3>"
        yield _table(("Status", "Meaning", "Content"), _answers(operation))


def _types(schemas: Mapping[str, Schema]) -> Iterator[str]:
    """Yield a section for each type that answers are made of; requests have theirs above."""
    for name, schema in sorted(schemas.items()):
        if not name.endswith("Request"):
            yield f'<h2 id="{escape(name)}"><code>{escape(name)}</code></h2>'
            yield f"<p>{escape(schema.get('description', ''))}</p>"
            yield _table(("Key", "Value"), _keys(schema))


def _operations(description: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _fields(kind: type[RequestFields]) -> Iterator[_Cells]:
    for row in field_rows(kind):
        is_useless = row.support in (Support.HINT, Support.UNSUPPORTED)
        yield (
            _code(row.name),
            escape(row.values),
            _code(row.default) if row.default else "needed",
            (f"<em>{row.support}</em> " if is_useless else "") + escape(row.note),
        )


def _answers(operation: Mapping[str, Any]) -> Iterator[_Cells]:
    for status, answer in operation["responses"].items():
        content = (
            f"{escape(kind)}{_of(each.get('schema', {}))}"
            for kind, each in answer["content"].items()
        )
        yield status, escape(answer["description"]), "<br>".join(content)


def _of(schema: Schema) -> str:
    match schema:
        case {"$ref": str()}:
            name = in_words(schema)
            return ": " + _link(name, name)
        case {"properties": {"data": {"anyOf": [{"contentSchema": event}, _]}}}:
            return _of(event)
    return ""


def _keys(schema: Schema) -> Iterator[_Cells]:
    needed = schema.get("required", ())
    for name, of_key in schema.get("properties", {}).items():
        words = escape(in_words(without_null(of_key)))
        words += "; or null" if can_be_null(of_key) else ""
        yield _code(name), words + ("" if name in needed else " <em>(not always there)</em>")


def _table(heads: Sequence[str], rows: Iterable[_Cells]) -> str:
    lines = ["<div class=wide><table><tr>" + "".join(f"<th>{head}</th>" for head in heads)]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return "\n".join([*lines, "</table></div>"])


def _link(anchor: str, text: str) -> str:
    return f'<a href="#{escape(anchor)}">{_code(text)}</a>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
