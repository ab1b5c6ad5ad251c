"""Run the server: listen, load the model, serve, and drain when a signal asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from socket import AF_INET6, AF_UNIX, socket
from types import FrameType
from typing import Any, cast

import uvicorn
import uvloop

from inferno.client import ServedEngine
from inferno.errors import InvalidRequest
from inferno.extras import install_command
from inferno.server.http.context import App
from inferno.server.http.errors import Unavailable
from inferno.server.http.log_writer import logging_to_stderr
from inferno.server.http.metrics import ServerMetrics
from inferno.server.http.middleware import HttpRoute, ServerMiddleware, TraceRequest
from inferno.server.http.protocol import Connection, ConnectionLimits
from inferno.server.http.sockets import listening, max_connections
from inferno.server.settings import ServerSettings

_log = logging.getLogger("inferno.server")
_LAST_EVENT_SECONDS = 1.0  # for streams that are cut to say so
_CLOSE_SECONDS = 4.0
_POLL_SECONDS = 0.02
_LISTENERS = 8  # for each socket: more than may start in an iteration

OnReady = Callable[[list[str]], Awaitable[None]]
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    app: App,
    routes: Sequence[HttpRoute],
    settings: ServerSettings,
    engine: ServedEngine,
    on_ready: OnReady | None = None,
) -> int:
    """Serve `app` in the middleware until a signal ends the server; return the process's exit code.

    on_ready        run beside the server once the engine is loaded, with the server's URLs.

    The port is bound before the engine is started, and answered on while it loads. Raises
    InvalidRequest where the port or the certificate can't be used, and any error that keeps the
    engine from loading.
    """
    shutdown = ShutdownRequests()
    # A hundred thousand objects are there to stay: to look through them for garbage
    # would hold up everybody for 200 ms, again and again.
    gc.collect()
    gc.freeze()
    with (
        shutdown_by_signal(shutdown),
        logging_to_stderr(settings),
        listening(settings) as sockets,
        tracing(settings.otlp_endpoint) as trace,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(run(app, routes, settings, engine, sockets, shutdown, trace, on_ready))


async def run(
    app: App,
    routes: Sequence[HttpRoute],
    settings: ServerSettings,
    engine: ServedEngine,
    sockets: list[socket],
    shutdown: ShutdownRequests,
    trace: TraceRequest | None = None,
    on_ready: OnReady | None = None,
) -> int:
    """Serve on bound sockets in the running event loop until `shutdown` is requested; see `serve`.

    Returns the exit code: 0, or 128 and the last signal's number where a second one came.
    """
    middleware = ServerMiddleware(app, routes, settings, engine, trace)
    server = _uvicorn(middleware, settings)
    shutdown.attach()
    http = asyncio.create_task(server.serve(sockets=sockets))
    urls = [_url(each, settings) for each in sockets]
    loading = asyncio.create_task(_load(engine, urls, on_ready))
    _log.info("listening", extra={"fields": {"at": urls}})
    try:
        await _until_shutdown(shutdown, http, loading)
        loading.cancel()
        await _drain(middleware, settings, shutdown)
    finally:
        loading.cancel()
        server.exit()
        await asyncio.wait({http})
        await _close(engine)
    _log.info("stopped")
    return 128 + shutdown.signals[-1] if shutdown.is_forced else 0


@contextlib.contextmanager
def tracing(endpoint: str | None) -> Iterator[TraceRequest | None]:
    """Yield the function to call for each request that is over; None if no collector is configured.

    Raises InvalidRequest where the extra is not installed.
    """
    if endpoint is None:
        yield None
        return
    try:
        from inferno.server.http.tracing import RequestTracer, exporter_to  # noqa: PLC0415
    except ImportError:
        raise InvalidRequest(
            f"--otlp-endpoint needs OpenTelemetry: {install_command('otel')}"
        ) from None
    with contextlib.closing(RequestTracer(exporter_to(endpoint))) as spans:
        yield spans.trace


class _Server(uvicorn.Server):
    """uvicorn's, but for signals and sockets, which are ours, and for its clock.

    One clock sees to all connections, as a timer for each message would cost more than messages.
    Every time that it wakes takes some of an engine's core, hence not uvicorn's ten times a second.
    """

    def __init__(self, config: uvicorn.Config, settings: ServerSettings) -> None:
        super().__init__(config)
        shortest = min(settings.header_timeout, settings.body_timeout, settings.write_timeout)
        self._tick = min(1.0, shortest / 4)
        self._handshake_timeout = settings.header_timeout
        self._exit = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to accept connections; a TLS handshake gets a head's time, not uvicorn's minute."""
        await super().startup(sockets=[])
        loop, is_tls = asyncio.get_running_loop(), self.config.ssl is not None
        # The loop takes one connection an iteration from each listener. A crowd would wait in the
        # system's line, and in its midst those who only ask how the server is: see StartQueue.
        for each in [each.dup() for each in sockets or () for _ in range(_LISTENERS)]:
            server = await loop.create_server(
                self._connection,
                sock=each,
                ssl=self.config.ssl,
                ssl_handshake_timeout=self._handshake_timeout if is_tls else None,
                backlog=self.config.backlog,
            )
            self.servers.append(server)

    def exit(self) -> None:
        """Take no more connections, and end."""
        self.should_exit = True
        self._exit.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit.wait(), self._tick)
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                cast(Connection, connection).watch(now)

    def _connection(self) -> asyncio.Protocol:
        make = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        return make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _load(engine: ServedEngine, urls: list[str], on_ready: OnReady | None) -> None:
    started = time.monotonic()
    await engine.start()
    await engine.wait_ready()
    _log.info("ready", extra={"fields": {"seconds": round(time.monotonic() - started, 2)}})
    if on_ready is not None:
        await on_ready(urls)


async def _until_shutdown(
    shutdown: ShutdownRequests, http: asyncio.Task[None], loading: asyncio.Task[None]
) -> None:
    """Wait for `shutdown`; raise what keeps the engine from loading, or the server from serving."""
    requested = asyncio.create_task(shutdown.requested())
    waiting: set[asyncio.Task[None]] = {requested, http, loading}
    try:
        while not requested.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if http in done:
                return
    finally:
        requested.cancel()


async def _drain(
    middleware: ServerMiddleware, settings: ServerSettings, shutdown: ShutdownRequests
) -> None:
    """Take nothing new; let open requests finish, or end them when their time is up."""
    middleware.admission.is_draining = True
    _log.info("draining", extra={"fields": {"open_requests": middleware.metrics.num_open}})
    forced = asyncio.create_task(shutdown.forced())
    if not await _all_done(middleware.metrics, settings.drain_timeout, forced):
        _log.warning(
            "ending requests", extra={"fields": {"open_requests": middleware.metrics.num_open}}
        )
        message = "The server stops and this request was ended; try it again."
        middleware.admission.end_all(Unavailable("shutting_down", message, retry_after=1))
        await _all_done(middleware.metrics, _LAST_EVENT_SECONDS, None)
    forced.cancel()


async def _all_done(
    metrics: ServerMetrics, seconds: float, forced: asyncio.Task[None] | None
) -> bool:
    """Wait until no request is open, for so many seconds or until forced; return whether so."""
    until = time.monotonic() + seconds
    while metrics.num_open and time.monotonic() < until and not (forced and forced.done()):
        await asyncio.sleep(_POLL_SECONDS)
    return not metrics.num_open


async def _close(engine: ServedEngine) -> None:
    try:
        await asyncio.wait_for(engine.close(), _CLOSE_SECONDS)
    except TimeoutError:
        _log.error("the engine did not stop in time and is left to end by itself")


def _uvicorn(middleware: ServerMiddleware, settings: ServerSettings) -> _Server:
    config = uvicorn.Config(
        middleware,
        http=_connection_factory(settings, middleware.metrics),
        ws="none",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=cast(int, settings.keep_alive),  # fractions of a second are fine
        timeout_graceful_shutdown=1,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as problem:
        given = f"--ssl-certfile {settings.ssl_certfile} can't be used"
        reason = problem.strerror or "it is not a certificate with its key"
        raise InvalidRequest(
            f"{given}: {reason}; see --ssl-keyfile", param="ssl_certfile"
        ) from None
    return _Server(config, settings)


def _connection_factory(settings: ServerSettings, metrics: ServerMetrics) -> Any:
    """Return the maker of connections with this server's limits, as uvicorn calls its class."""

    def count(code: str) -> None:
        metrics.rejected[code] += 1

    limits = ConnectionLimits(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        write_timeout=settings.write_timeout,
        max_body=settings.max_body,
        max_connections=max_connections(settings.max_connections),
        on_rejected=count,
    )
    return partial(Connection, limits=limits)


def _url(bound: socket, settings: ServerSettings) -> str:
    if bound.family == AF_UNIX:
        return f"unix:{bound.getsockname()}"
    scheme = "http" if settings.ssl_certfile is None else "https"
    host, port = bound.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if bound.family == AF_INET6 else host}:{port}"


class ShutdownRequests:
    """Signals as events: the first requests a drain, the second forces the end, the third exits.

    Make it before the server's event loop is made.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requested = asyncio.Event()
        self._forced = asyncio.Event()

    def attach(self) -> None:
        """Deliver signals in the running loop from now on, and those that came before."""
        self._loop = asyncio.get_running_loop()
        self._wake()

    async def requested(self) -> None:
        """Wait for the first signal."""
        await self._requested.wait()

    async def forced(self) -> None:
        """Wait for the second signal."""
        await self._forced.wait()

    @property
    def is_forced(self) -> bool:
        return self._forced.is_set()

    def add(self, number: int = signal.SIGTERM) -> None:
        """Count one more signal: the first two wake waiting coroutines, the third exits at once."""
        self.signals.append(number)
        if len(self.signals) > 2:
            os._exit(128 + number)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for number, event in enumerate((self._requested, self._forced), 1):
            if len(self.signals) >= number:
                event.set()


@contextlib.contextmanager
def shutdown_by_signal(shutdown: ShutdownRequests) -> Iterator[None]:
    """Add SIGTERM and SIGINT to `shutdown` while this is open."""

    def handle(number: int, _frame: FrameType | None) -> None:
        shutdown.add(number)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
