"""Answer the status views: health, readiness, metrics, and the state for debugging."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict

import msgspec

from inferno.client import EngineState, Recovery, ServedEngine
from inferno.server.http.admission import Admission
from inferno.server.http.context import Headers, Send
from inferno.server.http.errors import Unavailable, error_type, send_whole
from inferno.server.http.metrics import (
    CONTENT_TYPE,
    PrometheusExposition,
    ServerMetrics,
    process_facts,
)

_JSON: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_HEALTHY = (EngineState.LOADING, EngineState.READY)


class StatusViews:
    """The status views: health, readiness, metrics, and the state for debugging."""

    def __init__(self, engine: ServedEngine, admission: Admission, metrics: ServerMetrics) -> None:
        self._engine = engine
        self._admission = admission
        self._metrics = metrics
        self._exposition = PrometheusExposition(
            engine, metrics, lambda: admission.num_queued_tokens
        )

    async def get_health(self, send: Send) -> None:
        """Answer 200 while the engine works; the supervisor keeps its `state` up to date.

        Anybody may ask, so why an engine died is only in the log, for it may name a path.
        """
        state, recovery = self._engine.state, self._engine.recovery
        is_healthy = state in _HEALTHY or self._admission.is_draining
        body: dict[str, object] = {"status": "ok" if is_healthy else state.value}
        if not is_healthy:
            words = f"The engine is {state.value}."
            if recovery is not None:
                body["failures_in_a_row"] = recovery.num_failures
                body["next_try_in_seconds"] = round(recovery.seconds_left, 1)
                words = _words(recovery)
            body |= _error("unhealthy", words)
        await send_whole(send, 200 if is_healthy else 503, _JSON, msgspec.json.encode(body))

    async def get_ready(self, send: Send) -> None:
        """Answer 200 while requests are taken; name no path, as anybody may ask."""
        try:
            self._admission.check_draining()
            self._admission.check_ready()
        except Unavailable as problem:
            progress = round(self._engine.progress, 3)
            body = {"status": problem.code, "stage": self._engine.stage, "progress": progress}
            body |= _error(problem.code, problem.message)
            headers = [*_JSON, (b"retry-after", b"%d" % (problem.retry_after or 1))]
            await send_whole(send, 503, headers, msgspec.json.encode(body))
        else:
            await send_whole(send, 200, _JSON, b'{"status":"ready"}')

    async def get_metrics(self, send: Send) -> None:
        """Answer counts and times, for Prometheus."""
        headers = [(b"content-type", CONTENT_TYPE)]
        await send_whole(send, 200, headers, self._exposition.text())

    async def get_debug_state(self, send: Send) -> None:
        """Answer the state of the engine, of requests, of memory and of children."""
        await send_whole(send, 200, _JSON, msgspec.json.encode(self._state()))

    def _state(self) -> dict[str, object]:
        engine = self._engine
        stats = asdict(engine.stats())
        return {
            "engine": {
                "state": engine.state.value,
                "problem": engine.problem,
                "facts": asdict(engine.facts) if engine.facts is not None else None,
                "stats": stats | {"device_bytes": dict(stats["device_bytes"])},
            },
            "admission": {
                "draining": self._admission.is_draining,
                "requests": self._admission.num_open,
                "sequences": self._admission.num_sequences,
                "queued_tokens": self._admission.num_queued_tokens,
            },
            "http": {"open_requests": self._metrics.num_open},
            "process": process_facts(),
        }


StatusView = Callable[[StatusViews, Send], Awaitable[None]]


def _words(recovery: Recovery) -> str:
    times = f" {recovery.num_failures} times in a row" if recovery.num_failures > 1 else ""
    when = f"in {recovery.seconds_left:.0f} seconds" if recovery.seconds_left else "now"
    return f"The engine died{times}; another one is started {when}. The server's log says why."


def _error(code: str, message: str) -> dict[str, object]:
    error = {"message": message, "type": error_type(503), "param": None, "code": code}
    return {"error": error}
