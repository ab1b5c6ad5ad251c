"""Turns requests away before their bodies are read, while they could not be served."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Match

from inferno.server.edge.admission import Admission
from inferno.server.edge.asgi import App, Scope
from inferno.server.edge.refusal import Unavailable

_GENERATING = frozenset(
    {
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
        *("/v1/embeddings", "/execute"),
    }
)
_LESS_WORK = frozenset({"/cancel"})  # welcome at any time


def check_gate(scope: Scope, admission: Admission, app: App) -> None:
    """Raise Unavailable while loading, restarting or draining, or with a full queue.

    What the app has no route for passes: it says so at any time.
    """
    try:
        _check(scope, admission)
    except Unavailable:
        if _is_served(scope, app):
            raise


def _is_served(scope: Scope, app: App) -> bool:
    routes = app.routes if isinstance(app, Starlette) else None
    return routes is None or any(route.matches(scope)[0] is Match.FULL for route in routes)


def _check(scope: Scope, admission: Admission) -> None:
    if scope["path"] in _LESS_WORK:
        return
    if scope["method"] == "POST" or scope["path"].startswith("/v1/"):
        admission.check_draining()
        admission.check_ready()
    if scope["method"] == "POST" and scope["path"] in _GENERATING:
        admission.check()
