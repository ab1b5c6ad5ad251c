"""An app in the middleware, asked without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from inferno.client.scripted import Script, ScriptedClient
from inferno.server.http import ServerMiddleware
from inferno.server.http.context import App, Message
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.server.http.serving import Answered, small_app

Header = tuple[bytes, bytes]
LOCAL: Header = (b"host", b"localhost:8000")
JSON: Header = (b"content-type", b"application/json")


def ask(
    middleware: ServerMiddleware,
    method: str,
    path: str,
    headers: Sequence[Header] = (LOCAL, JSON),
    body: Sequence[bytes] = (b"",),
    *,
    http_version: str = "1.1",
) -> Answered:
    """One request, and its whole answer; the body comes in these parts."""
    return asyncio.run(asked(middleware, method, path, headers, body, http_version=http_version))


async def asked(
    middleware: ServerMiddleware,
    method: str,
    path: str,
    headers: Sequence[Header] = (LOCAL, JSON),
    body: Sequence[bytes] = (b"",),
    *,
    http_version: str = "1.1",
) -> Answered:
    parts = list(body)
    sent: list[Message] = []

    async def receive() -> Message:
        if not parts:
            await asyncio.Event().wait()
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "http_version": http_version,
        "headers": list(headers),
    }
    await middleware(scope, receive, send)
    if not sent:
        return Answered(0, {}, b"")
    given = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answered(sent[0]["status"], given, b"".join(each.get("body", b"") for each in sent[1:]))


def in_middleware(
    app: App = small_app, script: Script | None = None, **settings: Any
) -> ServerMiddleware:
    """The middleware around an app and a ready engine."""
    engine = ScriptedClient(script or Script())
    asyncio.run(engine.wait_ready())
    return ServerMiddleware(app, ROUTES, ServerSettings(**settings), engine)
