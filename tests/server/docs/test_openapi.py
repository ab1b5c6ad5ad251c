"""The OpenAPI document: the description holds for what the routes take and give."""

from __future__ import annotations

from typing import Any

import msgspec

from inferno.server.docs.field_table import Support, field_rows
from inferno.server.openai import response_types
from inferno.server.openai.request_types import ChatRequest
from inferno.server.routes import ROUTES
from tests.server.events import events_of
from tests.server.hosting import Host


def test_every_route_is_described(demo: Host) -> None:
    found = demo.http.get("/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    told = {(path, method) for path, ways in found["paths"].items() for method in ways}
    described = [route for route in ROUTES if route.tag is not None]
    assert told == {(route.template, route.methods[0].lower()) for route in described}
    names = [way["operationId"] for ways in found["paths"].values() for way in ways.values()]
    assert sorted(names) == sorted(route.name for route in described)
    assert len(set(names)) == len(names)
    schemas = found["components"]["schemas"]
    assert schemas["ChatRequest"]["required"] == ["messages"]
    assert schemas["ChatRequest"]["properties"]["n"]["maximum"] == 128
    references = set(_references(found))
    assert references <= {f"#/components/schemas/{name}" for name in schemas}


def test_only_streams_that_end_with_done_say_so(demo: Host) -> None:
    paths = demo.http.get("/openapi.json").json()["paths"]
    ends = {}
    for path, asked in {
        "/v1/completions": {"prompt": "a", "max_tokens": 3},
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 3,
        },
        "/v1/responses": {"input": "a", "max_output_tokens": 3},
    }.items():
        text = demo.http.post(path, json={**asked, "stream": True}).text
        content = paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"]
        ends[path] = text.endswith("data: [DONE]\n\n"), "[DONE]" in str(content)
    assert ends == {
        "/v1/completions": (True, True),
        "/v1/chat/completions": (True, True),
        "/v1/responses": (False, False),
    }


def test_answers_are_as_described(demo: Host) -> None:
    fields: dict[str, Any] = {"max_tokens": 3, "logprobs": 1, "prompt": "a"}
    whole = demo.complete(**fields).content
    assert _again(whole, response_types.Completion) == whole
    for event in events_of(demo.complete(**fields, stream=True))[:-1]:
        raw = msgspec.json.encode(event)
        assert _again(raw, response_types.Completion) == raw
    chat: dict[str, Any] = {"max_tokens": 3, "logprobs": True, "top_logprobs": 1}
    whole = demo.chat(**chat).content
    assert _again(whole, response_types.ChatCompletion) == whole
    for event in events_of(demo.chat(**chat, stream=True))[:-1]:
        raw = msgspec.json.encode(event)
        assert _again(raw, response_types.ChatChunk) == raw


def test_every_field_has_a_row_in_the_table() -> None:
    for kind in [kind for route in ROUTES for kind in route.requests]:
        rows = {row.name: row for row in field_rows(kind)}
        assert rows.keys() >= set(kind.__struct_fields__)
        silent = [
            name for name, row in rows.items() if not row.note and row.support != Support.HINT
        ]
        assert not silent
    chat = {row.name: row for row in field_rows(ChatRequest)}
    assert chat["functions"].support is Support.UNSUPPORTED
    assert chat["tools"].support is Support.SUPPORTED
    assert chat["user"].support is Support.HINT
    assert chat["priority"].support is Support.DIFFERS
    assert (chat["n"].support, chat["n"].default) == (Support.SUPPORTED, "1")


def test_unknown_routes_and_methods_have_openais_error(demo: Host) -> None:
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/models/", 405),
    ):
        answer = demo.http.request(method, path, headers={"content-type": "application/json"})
        assert answer.status_code == status, (method, path)
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


def test_only_json_is_taken(demo: Host) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = demo.http.post(
            "/v1/completions", content=b'{"prompt": "a"}', headers={"content-type": kind}
        )
        assert answer.status_code == 415


def _again(raw: bytes, kind: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(raw, type=kind))


def _references(value: Any) -> list[str]:
    match value:
        case {"$ref": str(reference)}:
            return [reference]
        case dict():
            return [found for each in value.values() for found in _references(each)]
        case list():
            return [found for each in value for found in _references(each)]
    return []
