"""Every request's way through the edge: named, checked, read, served, counted, logged."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from inferno.client import ServedEngine
from inferno.server.edge.admission import Admission
from inferno.server.edge.asgi import App, Headers, Message, Receive, Scope, Send
from inferno.server.edge.body import Bodies, Disconnected
from inferno.server.edge.hosts import Hosts
from inferno.server.edge.keys import check_key
from inferno.server.edge.ledger import Ledger
from inferno.server.edge.pieces import pieces_of
from inferno.server.edge.record import Record
from inferno.server.edge.refusal import Refusal, method_not_allowed, send_refusal, send_whole
from inferno.server.edge.request_id import request_id
from inferno.server.edge.routing import NOWHERE, EdgeRoute, RouteTable
from inferno.server.edge.tracing import Tell
from inferno.server.edge.views import Views
from inferno.server.settings import ServerSettings

_log = logging.getLogger("inferno.access")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLIENT_LEFT = 499
_CLOSE = (b"connection", b"close")
_AT_ONCE = 4  # to send them away takes a millisecond


class Guard:
    """The whole server as one ASGI application; `app` sees only requests that may be served.

    routes  of the app, and those that the edge answers by itself: its views.
    tell    is told of every request that is over, but for those of views.

    Endpoints find `record` and `admission` in the scope's state (record_of, admission_of).
    """

    def __init__(
        self,
        app: App,
        routes: Sequence[EdgeRoute],
        settings: ServerSettings,
        engine: ServedEngine,
        tell: Tell | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.admission = Admission(engine, settings, self.ledger)
        self._app = app
        self._routes = RouteTable(routes)
        self._tell = tell
        self._keys = settings.api_keys
        self._hosts = Hosts(settings)
        self._bodies = Bodies(settings.max_body)
        self._turns = Turns()
        self._views = Views(engine, self.admission, self.ledger)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        # and nothing for what we don't speak, such as websockets: the connection is closed

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = Record(request_id=request_id(scope))
        route = self._routes.find(scope["method"], scope["path"])
        scope.setdefault("state", {}).update(record=record, admission=self.admission)
        answer = _Answer(scope, send, record, self._headers(scope, record))
        problem: Exception | None = None
        try:
            await self._serve(scope, route, receive, answer, record)
        except Disconnected:
            pass
        except Refusal as refusal:
            record.rejected = record.rejected or refusal.code
            if not answer.has_begun:
                await send_refusal(answer.send, refusal)
        except Exception as unexpected:
            problem = unexpected
            if not answer.has_begun:
                await send_refusal(answer.send, _internal(record))
        finally:
            record.end()
            self._count(scope, route, record)
            _write(scope, route, record, problem)
            if self._tell is not None and route.view is None:
                self._tell(scope, record, route.path)

    async def _serve(
        self,
        scope: Scope,
        route: EdgeRoute,
        receive: Receive,
        answer: _Answer,
        record: Record,
    ) -> None:
        send = answer.send
        if route.view is None:
            await self._turns.take()
        self._hosts.check(scope)
        preflight = self._hosts.preflight(scope)
        if preflight is not None:
            return await send_whole(send, 200, preflight, b"")
        check_key(scope, route, self._keys, record)
        has_method = scope["method"] in route.methods
        if route.view is not None:
            if not has_method:
                allow = ", ".join(route.methods).encode()
                raise method_not_allowed(scope["method"], [(b"allow", allow)])
            return await route.view(self._views, send)
        if has_method:  # else the app refuses it, at any time
            self.admission.check_needs(route.needs)
        self.ledger.num_open += 1
        record.on_end(self._close_one)
        whole = await self._bodies.read(scope, receive)
        await self._app(scope, whole, send)
        return None

    def _close_one(self) -> None:
        self.ledger.num_open -= 1

    def _headers(self, scope: Scope, record: Record) -> Headers:
        """Return the headers of every answer: the request's id, CORS, and close while draining."""
        headers = [(b"x-request-id", record.request_id.encode("ascii"))]
        if self.admission.is_draining:
            headers.append(_CLOSE)
        return headers + self._hosts.response_headers(scope)

    def _count(self, scope: Scope, route: EdgeRoute, record: Record) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.ledger.http[route.path, method, record.status or _CLIENT_LEFT] += 1
        if record.rejected is not None:
            self.ledger.rejected[record.rejected] += 1
        if record.finish_reasons:
            self.ledger.whole.observe(record.seconds)


class _Answer:
    """Adds our headers where an answer begins, and lets everything else pass."""

    __slots__ = ("_headers", "_record", "_scope", "_send", "has_begun")

    def __init__(self, scope: Scope, send: Send, record: Record, headers: Headers) -> None:
        self.has_begun = False
        self._scope = scope
        self._send = send
        self._record = record
        self._headers = headers

    async def send(self, message: Message) -> None:
        if not self.has_begun and message["type"] == "http.response.start":
            self.has_begun = True
            self._record.status = message["status"]
            # Before its body has come, no other request can follow on the connection.
            is_last = _CLOSE not in self._headers and not _is_whole(self._scope)
            closing = [_CLOSE] if is_last else []
            message["headers"] = [*message.get("headers", ()), *self._headers, *closing]
        await self._send(message)


def _is_whole(scope: Scope) -> bool:
    """Return whether the request has come to its end, as far as the server tells."""
    pieces = pieces_of(scope)
    return pieces is None or pieces.is_request_whole


def _internal(record: Record) -> Refusal:
    message = f"The server made a mistake; its log tells more under {record.request_id}."
    return Refusal(500, "internal_error", message)


def _write(scope: Scope, route: EdgeRoute, record: Record, problem: Exception | None) -> None:
    level = logging.INFO if route.view is None else logging.DEBUG
    level = level if problem is None else logging.ERROR
    if _log.isEnabledFor(level):
        fields = _fields(scope, route, record)
        _log.log(level, "request", exc_info=problem, extra={"fields": fields})


def _fields(scope: Scope, route: EdgeRoute, record: Record) -> dict[str, object]:
    first = record.first_token_seconds
    fields = {
        "request_id": record.request_id,
        "method": scope["method"],
        "route": route.path,
        "path": scope["path"] if route is NOWHERE else None,
        "status": record.status or _CLIENT_LEFT,
        "duration_ms": round(record.seconds * 1000, 1),
        "ttft_ms": None if first is None else round(first * 1000, 1),
        "prompt_tokens": record.prompt_tokens or None,
        "cached_tokens": record.cached_tokens or None,
        "completion_tokens": record.completion_tokens or None,
        "finish_reasons": record.finish_reasons or None,
        "key": record.key_id,
        "rejected": record.rejected,
        "prompt": record.prompt,
    }
    return {name: value for name, value in fields.items() if value is not None}


class Turns:
    """A line in which few requests begin in each turn of the event loop, first come, first served.

    So a turn is short for a crowd too: who asks how the server is, and does not stand in this line,
    waits for a turn or two, milliseconds, however many others are there to be served or sent away.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._num_begun = 0  # in this turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait until it is this request's turn: not at all while few are there."""
        loop = asyncio.get_running_loop()
        if not self._num_begun and not self._waiting:
            loop.call_soon(self._begin_turn)
        if self._num_begun < self._at_once and not self._waiting:
            self._num_begun += 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _begin_turn(self) -> None:
        self._num_begun = 0
        while self._waiting and self._num_begun < self._at_once:
            first = self._waiting.popleft()
            if not first.done():  # else its request was cancelled
                first.set_result(None)
                self._num_begun += 1
        if self._num_begun:
            asyncio.get_running_loop().call_soon(self._begin_turn)
