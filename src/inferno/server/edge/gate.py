"""Turns requests away before their bodies are read, while they could not be served."""

from __future__ import annotations

from inferno.server.edge.admission import Admission
from inferno.server.edge.asgi import Scope

_GENERATING = frozenset(
    {
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
        *("/v1/embeddings", "/execute"),
    }
)
_LESS_WORK = frozenset({"/cancel"})  # welcome at any time


def check_gate(scope: Scope, admission: Admission) -> None:
    """Raise Unavailable while loading, restarting or draining, or with a full queue."""
    if scope["path"] in _LESS_WORK:
        return
    if scope["method"] == "POST" or scope["path"].startswith("/v1/"):
        admission.check_draining()
        admission.check_ready()
    if scope["method"] == "POST" and scope["path"] in _GENERATING:
        admission.check()
