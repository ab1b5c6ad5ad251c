"""Define `Route`, a row of the table of routes, with all that is known of a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.api_keys import KeyScope
from inferno.server.http import Needs, StatusView
from inferno.server.openai.request_types import RequestFields

Endpoint = Callable[[HttpRequest], Awaitable[Response]]

GET = ("GET",)
GET_OR_HEAD = ("GET", "HEAD")
POST = ("POST",)
JSON = "application/json"


class Tag(StrEnum):
    """The subject of a route in the OpenAPI document."""

    GENERATION = "generation"
    MODELS = "models"
    TOKENS = "tokens"
    STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path, the function that answers there, and who may ask when.

    path        may hold `{name}`, any text without a slash, or `{name:path}`, any text.
    endpoint    the function that answers; None where the middleware answers by `view`.
    needs       what must hold before the request's body is read; else the answer is 503.
    key_scope   the scope that an API key must have; None: no key is needed.
    requests    the types that a body may have, with the fields that are unsupported.
    response    the type of the answer; None: any, or no JSON.
    event       the type of an event, where the answer can be a stream.
    tells_done  whether the last event of such a stream is [DONE].
    errors      the statuses of the route's errors; None: all that there are.
    tag         the route's place in the OpenAPI document; None keeps it out.
    is_page     whether a browser opens the route, and so can send a key as a password only.
    """

    methods: tuple[str, ...]
    path: str
    summary: str
    endpoint: Endpoint | None = None
    view: StatusView | None = None
    needs: Needs
    key_scope: KeyScope | None = KeyScope.INFERENCE
    requests: tuple[type[RequestFields], ...] = ()
    response: type[msgspec.Struct] | None = None
    event: type[msgspec.Struct] | None = None
    tells_done: bool = True
    media_type: str = JSON
    errors: tuple[int, ...] | None = None
    tag: Tag | None = None
    is_page: bool = False

    @property
    def name(self) -> str:
        """Return the name of the answering function, unique among an application's routes."""
        answers = self.endpoint or self.view
        assert answers is not None
        return answers.__name__

    @property
    def template(self) -> str:
        """Return the path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")
