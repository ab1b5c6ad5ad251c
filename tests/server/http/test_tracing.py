"""RequestTracer of requests, where the extra is installed."""

from __future__ import annotations

import asyncio
import sys

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.errors import InvalidRequest
from inferno.server.http import ServerMiddleware
from inferno.server.http.run import tracing
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.server.http.direct import JSON, LOCAL, ask
from tests.server.http.serving import small_app

exporting = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
spans_module = pytest.importorskip("inferno.server.http.tracing")
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_request_is_a_span_of_its_callers_trace() -> None:
    exporter = exporting.InMemorySpanExporter()
    spans = spans_module.RequestTracer(exporter)
    engine = ScriptedClient(Script(answers=(Answer(token_ids=(1, 2, 3)),)))
    asyncio.run(engine.wait_ready())
    middleware = ServerMiddleware(small_app, ROUTES, ServerSettings(), engine, spans.trace)
    parent = (b"traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())
    ask(middleware, "POST", "/v1/completions", [LOCAL, JSON, parent], [b'{"prompt": 2}'])
    ask(middleware, "POST", "/v1/completions", [LOCAL], [b"{}"])
    ask(middleware, "GET", "/health")
    spans.close()
    server, refused = exporter.get_finished_spans()
    assert f"{server.context.trace_id:x}" == TRACE.lstrip("0")
    assert server.attributes["gen_ai.usage.input_tokens"] == 2
    assert server.attributes["gen_ai.usage.output_tokens"] == 3
    assert server.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    (first,) = server.events
    assert server.start_time < first.timestamp < server.end_time
    assert refused.attributes["http.response.status_code"] == 415
    assert refused.attributes["inferno.rejected"] == "content_type"


def test_without_the_extra_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inferno.server.http.tracing", None)
    with (
        pytest.raises(InvalidRequest, match=r"pip install .*\[otel\]"),
        tracing("http://localhost:4318/v1/traces"),
    ):
        raise AssertionError


def test_a_collector_that_is_not_there_stops_nobody() -> None:
    with tracing("http://127.0.0.1:9/v1/traces") as trace:
        assert trace is not None
        engine = ScriptedClient()
        asyncio.run(engine.wait_ready())
        assert (
            ask(
                ServerMiddleware(small_app, ROUTES, ServerSettings(), engine, trace), "GET", "/x"
            ).status
            == 404
        )


def test_nobody_is_told_unless_asked_for() -> None:
    with tracing(None) as trace:
        assert trace is None
