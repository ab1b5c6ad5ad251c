"""Tell what is served: the names of the model, and inferno's version."""

from __future__ import annotations

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno import __version__
from inferno.server.model_service import ModelService, service_of
from inferno.server.openai.response_types import ModelCard, ModelList, Version


async def list_models(http: HttpRequest) -> Response:
    """Return a card for each name that `model` may have."""
    service = service_of(http)
    return _json(ModelList([_card(service, name) for name in service.names]))


async def get_model(http: HttpRequest) -> Response:
    """Return the card of one name of the model."""
    service = service_of(http)
    name = http.path_params["model_id"]
    service.check_model(name)
    return _json(_card(service, name))


async def get_version(http: HttpRequest) -> Response:
    """Return inferno's version."""
    return _json(Version(__version__))


def _card(service: ModelService, name: str) -> ModelCard:
    return ModelCard(
        id=name,
        created=service.created,
        root=service.names[0],
        max_model_len=service.facts.max_model_len,
    )


def _json(answer: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
