"""Build a server from its options: an application of the table of routes, and its engine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno import __version__
from inferno.client import ServedEngine
from inferno.client.process import ProcessClient
from inferno.client.scripted import ScriptedClient, load_script
from inferno.client.spawned import Spawned
from inferno.client.supervisor import Patience
from inferno.errors import InfernoError
from inferno.log_format import LogFormat
from inferno.options import EngineOptions
from inferno.server.docs.openapi import openapi
from inferno.server.docs.reference_page import render
from inferno.server.http import (
    CLIENT_CLOSED_REQUEST,
    ApiError,
    ClientDisconnected,
    api_error_of,
    context_of,
    log_failure,
    method_not_allowed,
    serve,
)
from inferno.server.model_service import ModelService
from inferno.server.route import Route
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText

_log = logging.getLogger("inferno.server")


def create_app(engine: ServedEngine, text: ModelText, settings: ServerSettings) -> FastAPI:
    """Return the application of one model, to which ServerMiddleware passes requests.

    settings        must name the model: served_model_names.
    """
    return build_app(ModelService(engine, text, settings), ROUTES)


def build_app(service: ModelService, routes: Sequence[Route]) -> FastAPI:
    """Return the application of a model and routes, without those that the middleware answers."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="inferno",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.openapi = cache(lambda: openapi(app, routes))  # type: ignore[method-assign]
    app.state.reference_page = cache(lambda: render(app.openapi(), routes).encode())
    for route in routes:
        if route.endpoint is not None:
            methods = list(route.methods)
            app.add_api_route(route.path, route.endpoint, methods=methods, response_model=None)
    for kind in (ApiError, InfernoError, HTTPException, ClientDisconnected, Exception):
        app.add_exception_handler(kind, _error_response)
    return app


async def _error_response(http: HttpRequest, problem: Exception) -> Response:
    """Return the answer to a request that went wrong before an answer began."""
    context = context_of(http.scope)
    match problem:
        case ClientDisconnected():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        case HTTPException():
            error = _router_error(http, problem)
        case _:
            error = api_error_of(problem, context.request_id)
    if error.status != 500:
        context.rejected = context.rejected or error.code
    elif isinstance(problem, InfernoError):  # the middleware logs all others
        log_failure(problem, context.request_id)
    headers = {key.decode(): value.decode() for key, value in error.all_headers}
    return Response(error.body, status_code=error.status, headers=headers)


def _router_error(http: HttpRequest, problem: HTTPException) -> ApiError:
    headers = [
        (key.lower().encode(), value.encode()) for key, value in (problem.headers or {}).items()
    ]
    if problem.status_code == 405:
        return method_not_allowed(http.method, headers)
    return ApiError(
        problem.status_code, "not_found", "There is no such route here.", headers=headers
    )


def start(
    options: EngineOptions,
    settings: ServerSettings,
    script: Path | None,
    first: Spawned | None = None,
) -> int:
    """Serve until a signal ends it; returns the exit code.

    script      a file of answers that replace the engine's; tokenizer and chat template are the
                model's own.
    first       a process that is already started, for the first engine.

    Raises InvalidRequest, and ModelError or another error that keeps the engine from loading.
    """
    text = ModelText(
        options.model,
        needs_tokenizer=options.load_format != "dummy",
        chat_template=options.chat_template,
    )
    engine = make_engine(options, settings, script, first)
    is_read = settings.log_format == LogFormat.TEXT
    on_ready = _log_page_address if is_read else None
    return serve(create_app(engine, text, settings), ROUTES, settings, engine, on_ready)


async def _log_page_address(urls: list[str]) -> None:
    """Log an address that a browser takes: one that means all of the machine's is none."""
    url = urls[0].replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    if not url.startswith("unix:"):
        _log.info("Open %s (Ctrl+C stops the server)", url)


def make_engine(
    options: EngineOptions,
    settings: ServerSettings,
    script: Path | None,
    first: Spawned | None,
) -> ServedEngine:
    """Return an engine in a process of its own, or one that plays a script."""
    if script is not None:
        return ScriptedClient(load_script(script))
    patience = Patience.of(settings.engine_timeout)
    return ProcessClient(options, patience=patience, first=first, log=settings.engine_log)
