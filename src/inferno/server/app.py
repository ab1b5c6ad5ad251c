"""An application from the table of routes, and the answers to what goes wrong in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno import __version__
from inferno.client import ServedEngine
from inferno.errors import InfernoError
from inferno.server.edge import Refusal, method_not_allowed, record_of
from inferno.server.errors import ClientLeft, log_failure, refusal_of
from inferno.server.reference_page import render
from inferno.server.route import Route
from inferno.server.routes import ROUTES
from inferno.server.schema import openapi
from inferno.server.served import Served
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText

_CLIENT_LEFT = 499


def create_app(engine: ServedEngine, text: ModelText, settings: ServerSettings) -> FastAPI:
    """Return the server of one model, for edge.guard to let requests through to.

    settings        must name the model: served_model_names.
    """
    return build_app(Served(engine, text, settings), ROUTES)


def build_app(served: Served, routes: Sequence[Route]) -> FastAPI:
    """Return what serves this model at these routes, but for those that the edge answers."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        served.close()

    app = FastAPI(
        title="inferno",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.served = served
    app.openapi = cache(lambda: openapi(app, routes))  # type: ignore[method-assign]
    app.state.reference_page = cache(lambda: render(app.openapi(), routes).encode())
    for route in routes:
        if route.endpoint is not None:
            methods = list(route.methods)
            app.add_api_route(route.path, route.endpoint, methods=methods, response_model=None)
    for kind in (Refusal, InfernoError, HTTPException, ClientLeft, Exception):
        app.add_exception_handler(kind, _tell)
    return app


async def _tell(http: HttpRequest, problem: Exception) -> Response:
    """Return the answer to a request that went wrong before an answer began."""
    record = record_of(http.scope)
    match problem:
        case ClientLeft():
            return Response(status_code=_CLIENT_LEFT)
        case HTTPException():
            refusal = _of_router(http, problem)
        case _:
            refusal = refusal_of(problem, record.request_id)
    if refusal.status != 500:
        record.rejected = record.rejected or refusal.code
    elif isinstance(problem, InfernoError):  # the edge tells the log of all others
        log_failure(problem, record.request_id)
    headers = {key.decode(): value.decode() for key, value in refusal.all_headers}
    return Response(refusal.body, status_code=refusal.status, headers=headers)


def _of_router(http: HttpRequest, problem: HTTPException) -> Refusal:
    headers = [
        (key.lower().encode(), value.encode()) for key, value in (problem.headers or {}).items()
    ]
    if problem.status_code == 405:
        return method_not_allowed(http.method, headers)
    return Refusal(
        problem.status_code, "not_found", "There is no such route here.", headers=headers
    )
