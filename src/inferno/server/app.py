"""create_app: the table of routes and the table of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno import __version__
from inferno.client import ServedEngine
from inferno.errors import InfernoError
from inferno.server import answers, fields
from inferno.server.chat import create_chat_completion
from inferno.server.completions import create_completion
from inferno.server.edge import Refusal, record_of
from inferno.server.errors import ClientLeft, log_failure, refusal_of
from inferno.server.models import get_model, get_version, list_models
from inferno.server.page import add_page
from inferno.server.reference_page import add_reference
from inferno.server.schema import Route, openapi
from inferno.server.served import Served
from inferno.server.settings import ServerSettings
from inferno.server.tokenize import detokenize, tokenize
from inferno.text.model_text import ModelText

_CLIENT_LEFT = 499

ROUTES = (
    Route(
        "POST",
        "/v1/chat/completions",
        create_chat_completion,
        fields.ChatRequest,
        answers.ChatCompletion,
        answers.ChatChunk,
    ),
    Route(
        "POST",
        "/v1/completions",
        create_completion,
        fields.CompletionRequest,
        answers.Completion,
        answers.Completion,
    ),
    Route("GET", "/v1/models", list_models, None, answers.ModelList),
    Route("GET", "/v1/models/{model_id:path}", get_model, None, answers.ModelCard),
    Route("POST", "/tokenize", tokenize, fields.TokenizeRequest, answers.Tokenized),
    Route("POST", "/detokenize", detokenize, fields.DetokenizeRequest, answers.Detokenized),
    Route("GET", "/version", get_version, None, answers.Version),
)


def create_app(engine: ServedEngine, text: ModelText, settings: ServerSettings) -> FastAPI:
    """The routes of one model, for edge.guard to let requests through to.

    settings        must name the model: served_model_names.
    """
    app = create_bare_app(Served(engine, text, settings), openapi_url="/openapi.json")
    for route in ROUTES:
        app.add_api_route(route.path, route.endpoint, methods=[route.method], response_model=None)
    add_page(app)
    add_reference(app)
    app.openapi = cache(lambda: openapi(app, ROUTES))  # type: ignore[method-assign]
    return app


def create_bare_app(served: Served, *, openapi_url: str | None = None) -> FastAPI:
    """What serves this model and answers errors as it should, without a route."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        served.close()

    app = FastAPI(
        title="inferno",
        version=__version__,
        lifespan=lifespan,
        openapi_url=openapi_url,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.served = served
    for kind in (Refusal, InfernoError, HTTPException, ClientLeft, Exception):
        app.add_exception_handler(kind, _tell)
    return app


async def _tell(http: HttpRequest, problem: Exception) -> Response:
    """The answer to a request that went wrong before an answer began."""
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
        message = f"{http.method[:20]} is not what this route takes."
        return Refusal(405, "method_not_allowed", message, headers=headers)
    return Refusal(
        problem.status_code, "not_found", "There is no such route here.", headers=headers
    )
