"""What the server has no route for is 404 or 405 at any time, not only once it is ready."""

from __future__ import annotations

import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.server.app import build_app, create_app
from inferno.server.http import ServerMiddleware
from inferno.server.model_service import ModelService
from inferno.server.routes import ROUTES, WORKER_ROUTES
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText
from tests.server.http.direct import ask


@pytest.fixture(scope="module")
def loading() -> ServerMiddleware:
    """The real routes, before their engine is loaded."""
    engine = ScriptedClient(Script(load_seconds=600))
    settings = ServerSettings(served_model_names=("demo",))
    app = create_app(engine, ModelText(MODEL_FOLDERS["demo"]), settings)
    return ServerMiddleware(app, ROUTES, settings, engine)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nope", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/responses/resp_1", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/v1/chat/completions", 404),
        ("POST", "/nope", 404),
        ("POST", "/execute", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/chat/completions", 503),
        ("POST", "/v1/responses", 503),
        ("POST", "/tokenize", 503),
        ("GET", "/v1/models", 503),
        ("GET", "/v1/models/demo", 503),
        ("GET", "/version", 200),
    ],
)
def test_what_is_not_there_is_told_before_what_is_not_ready(
    loading: ServerMiddleware, method: str, path: str, status: int
) -> None:
    assert ask(loading, method, path).status == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/execute", 503),
        ("POST", "/cancel", 400),
        ("GET", "/cancel", 405),
        ("GET", "/health", 200),
        ("POST", "/health", 405),
        ("GET", "/v1/models", 404),
        ("POST", "/v1/chat/completions", 404),
    ],
)
@pytest.mark.parametrize("is_draining", [False, True])
def test_a_worker_that_takes_no_jobs_still_ends_them(
    method: str, path: str, status: int, is_draining: bool
) -> None:
    engine = ScriptedClient(Script(load_seconds=600))
    settings = ServerSettings(served_model_names=("demo",))
    server = ModelService(engine, ModelText(MODEL_FOLDERS["demo"]), settings)
    middleware = ServerMiddleware(build_app(server, WORKER_ROUTES), WORKER_ROUTES, settings, engine)
    middleware.admission.is_draining = is_draining
    assert ask(middleware, method, path).status == status
