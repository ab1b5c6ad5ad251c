"""The endpoints that tell what is served: the names of the model, and inferno's version."""

from __future__ import annotations

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno import __version__
from inferno.server.answers import ModelCard, ModelList, Version
from inferno.server.served import Served, served_of


async def list_models(http: HttpRequest) -> Response:
    """Return a card for each name that `model` may have."""
    served = served_of(http)
    return _json(ModelList([_card(served, name) for name in served.names]))


async def get_model(http: HttpRequest) -> Response:
    """Return the card of one name."""
    served = served_of(http)
    name = http.path_params["model_id"]
    served.check_model(name)
    return _json(_card(served, name))


async def get_version(http: HttpRequest) -> Response:
    """Return inferno's version."""
    return _json(Version(__version__))


def _card(served: Served, name: str) -> ModelCard:
    return ModelCard(
        id=name,
        created=served.created,
        root=served.names[0],
        max_model_len=served.facts.max_model_len,
    )


def _json(answer: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
