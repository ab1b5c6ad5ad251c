"""Take every request through the server: named, checked, read, served, counted, logged."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.routing import compile_path

from inferno.client import ServedEngine
from inferno.server.api_keys import KeyScope
from inferno.server.http.access_log import write_access_line
from inferno.server.http.admission import Admission, Needs
from inferno.server.http.auth import HostPolicy, check_key
from inferno.server.http.body import BodyReader
from inferno.server.http.chunk_writer import chunk_writer_of
from inferno.server.http.context import (
    App,
    Headers,
    Message,
    Receive,
    RequestContext,
    Scope,
    Send,
    request_id,
)
from inferno.server.http.errors import (
    CLIENT_CLOSED_REQUEST,
    ApiError,
    ClientDisconnected,
    method_not_allowed,
    send_error,
    send_whole,
)
from inferno.server.http.metrics import ServerMetrics
from inferno.server.http.status import StatusView, StatusViews
from inferno.server.settings import ServerSettings

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLOSE = (b"connection", b"close")
_AT_ONCE = 4  # to reject them takes a millisecond

# Called when a request is over, with its route as logs and metrics call it.
TraceRequest = Callable[[Scope, RequestContext, str], None]


class ServerMiddleware:
    """The ASGI middleware around `app`, which sees only requests that may be served.

    In this order: the request's id and its route; the start queue, but for status views; the Host
    header; a CORS preflight; the API key; status views, which are answered here; what the route
    needs (503 while loading or draining, or where the queue is full); the body; then the endpoint,
    which asks for a place in the queue when it has counted tokens (`Admission.acquire`). Limits of
    connections and headers come before all this, in protocol.py.

    routes  the routes of the app, and the status views, which are answered here.
    trace   called for every request that is over, except of views.

    Endpoints find `context` and `admission` in the scope's state (context_of, admission_of).
    """

    def __init__(
        self,
        app: App,
        routes: Sequence[HttpRoute],
        settings: ServerSettings,
        engine: ServedEngine,
        trace: TraceRequest | None = None,
    ) -> None:
        self.metrics = ServerMetrics()
        self.admission = Admission(engine, settings, self.metrics)
        self._app = app
        self._routes = RouteTable(routes)
        self._trace = trace
        self._keys = settings.api_keys
        self._host_policy = HostPolicy(settings)
        self._body_reader = BodyReader(settings.max_body)
        self._start_queue = StartQueue()
        self._views = StatusViews(engine, self.admission, self.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        # and nothing for what we don't speak, such as websockets: the connection is closed

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = RequestContext(request_id=request_id(scope))
        route = self._routes.find(scope["method"], scope["path"])
        scope.setdefault("state", {}).update(context=context, admission=self.admission)
        answer = _Answer(scope, send, context, self._headers(scope, context))
        problem: Exception | None = None
        try:
            await self._serve(scope, route, receive, answer, context)
        except ClientDisconnected:
            pass
        except ApiError as error:
            context.rejected = context.rejected or error.code
            if not answer.has_begun:
                await send_error(answer.send, error)
        except Exception as unexpected:
            problem = unexpected
            if not answer.has_begun:
                await send_error(answer.send, _internal(context))
        finally:
            context.end()
            self._count(scope, route, context)
            write_access_line(
                scope,
                context,
                route=route.path,
                is_known=route is not NO_ROUTE,
                is_view=route.view is not None,
                problem=problem,
            )
            if self._trace is not None and route.view is None:
                self._trace(scope, context, route.path)

    async def _serve(
        self,
        scope: Scope,
        route: HttpRoute,
        receive: Receive,
        answer: _Answer,
        context: RequestContext,
    ) -> None:
        send = answer.send
        if route.view is None:
            await self._start_queue.wait()
        self._host_policy.check(scope)
        preflight = self._host_policy.preflight(scope)
        if preflight is not None:
            return await send_whole(send, 200, preflight, b"")
        check_key(scope, route.key_scope, self._keys, context, is_page=route.is_page)
        has_method = scope["method"] in route.methods
        if route.view is not None:
            if not has_method:
                allow = ", ".join(route.methods).encode()
                raise method_not_allowed(scope["method"], [(b"allow", allow)])
            return await route.view(self._views, send)
        if has_method:  # else the app answers 405, at any time
            self.admission.check_needs(route.needs)
        self.metrics.num_open += 1
        context.on_end(self._close_one)
        whole = await self._body_reader.read(scope, receive)
        await self._app(scope, whole, send)
        return None

    def _close_one(self) -> None:
        self.metrics.num_open -= 1

    def _headers(self, scope: Scope, context: RequestContext) -> Headers:
        """Return the headers of every answer: the request's id, CORS, and close while draining."""
        headers = [(b"x-request-id", context.request_id.encode("ascii"))]
        if self.admission.is_draining:
            headers.append(_CLOSE)
        return headers + self._host_policy.response_headers(scope)

    def _count(self, scope: Scope, route: HttpRoute, context: RequestContext) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.http[route.path, method, context.status or CLIENT_CLOSED_REQUEST] += 1
        if context.rejected is not None:
            self.metrics.rejected[context.rejected] += 1
        if context.finish_reasons:
            self.metrics.request_latency.observe(context.seconds)


class StartQueue:
    """A queue from which few requests start in each iteration of the event loop, in their order.

    So an iteration stays short in a crowd too, and the status views, which are not queued, wait for
    one or two iterations (milliseconds), however many requests are to be served or rejected.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._num_started = 0  # in this iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until a request may start; while there are few requests, don't wait."""
        loop = asyncio.get_running_loop()
        if not self._num_started and not self._waiting:
            loop.call_soon(self._begin_iteration)
        if self._num_started < self._at_once and not self._waiting:
            self._num_started += 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _begin_iteration(self) -> None:
        self._num_started = 0
        while self._waiting and self._num_started < self._at_once:
            first = self._waiting.popleft()
            if not first.done():  # else its request was cancelled
                first.set_result(None)
                self._num_started += 1
        if self._num_started:
            asyncio.get_running_loop().call_soon(self._begin_iteration)


class _Answer:
    """A `send` that adds our headers where an answer begins, and lets everything else pass."""

    __slots__ = ("_context", "_headers", "_scope", "_send", "has_begun")

    def __init__(self, scope: Scope, send: Send, context: RequestContext, headers: Headers) -> None:
        self.has_begun = False
        self._scope = scope
        self._send = send
        self._context = context
        self._headers = headers

    async def send(self, message: Message) -> None:
        if not self.has_begun and message["type"] == "http.response.start":
            self.has_begun = True
            self._context.status = message["status"]
            # Before its body has come, no other request can follow on the connection.
            is_last = _CLOSE not in self._headers and not _is_whole(self._scope)
            closing = [_CLOSE] if is_last else []
            message["headers"] = [*message.get("headers", ()), *self._headers, *closing]
        await self._send(message)


def _is_whole(scope: Scope) -> bool:
    """Return whether the request has come to its end, as far as the server knows."""
    writer = chunk_writer_of(scope)
    return writer is None or writer.is_request_whole


def _internal(context: RequestContext) -> ApiError:
    message = f"The server made a mistake; its log tells more under {context.request_id}."
    return ApiError(500, "internal_error", message)


class HttpRoute(Protocol):
    """A row of the table of routes, with the fields that the middleware reads."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods that the route takes."""

    @property
    def path(self) -> str:
        """Return the path, in which `{name}` stands for any text without a slash."""

    @property
    def key_scope(self) -> KeyScope | None:
        """Return the scope that a key must have; None: no key is needed."""

    @property
    def needs(self) -> Needs:
        """Return the condition that must hold before the request's body is read."""

    @property
    def view(self) -> StatusView | None:
        """Return the function with which the middleware answers; None for other routes."""

    @property
    def is_page(self) -> bool:
        """Return whether a browser opens the route, and so can send a key as a password only."""


@dataclass(frozen=True, slots=True)
class _NoRoute:
    """The route of a request that has none, of which only callers with a key learn."""

    methods: tuple[str, ...] = ()
    path: str = "none"  # so the log and the metrics call it
    key_scope: KeyScope | None = KeyScope.INFERENCE
    needs: Needs = Needs.NOTHING
    view: StatusView | None = None
    is_page: bool = False


NO_ROUTE: HttpRoute = _NoRoute()


class RouteTable:
    """The routes of one application, found by method and path as its router finds them."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._patterns = [(compile_path(route.path)[0], route) for route in routes]
        self._by_path = {route.path: self._matching(route.path) for route in routes}

    def find(self, method: str, path: str) -> HttpRoute:
        """Return the first route of a path and method, else of the path alone, or NO_ROUTE."""
        routes = self._by_path.get(path) or self._matching(path)
        for route in routes:
            if method in route.methods:
                return route
        return routes[0] if routes else NO_ROUTE

    def _matching(self, path: str) -> list[HttpRoute]:
        return [route for pattern, route in self._patterns if pattern.match(path)]
