"""Spans of requests, where the extra is installed."""

from __future__ import annotations

import asyncio
import sys

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.errors import InvalidRequest
from inferno.server.edge import Guard
from inferno.server.edge.tracing import tracing
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.server.edge.direct import JSON, LOCAL, ask
from tests.server.edge.serving import small_app

exporting = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
spans_module = pytest.importorskip("inferno.server.edge.spans")
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_request_is_a_span_of_its_callers_trace() -> None:
    exporter = exporting.InMemorySpanExporter()
    spans = spans_module.Spans(exporter)
    engine = ScriptedClient(Script(answers=(Answer(token_ids=(1, 2, 3)),)))
    asyncio.run(engine.wait_ready())
    guard = Guard(small_app, ROUTES, ServerSettings(), engine, spans.tell)
    parent = (b"traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())
    ask(guard, "POST", "/v1/completions", [LOCAL, JSON, parent], [b'{"prompt": 2}'])
    ask(guard, "POST", "/v1/completions", [LOCAL], [b"{}"])
    ask(guard, "GET", "/health")
    spans.close()
    served, refused = exporter.get_finished_spans()
    assert f"{served.context.trace_id:x}" == TRACE.lstrip("0")
    assert served.attributes["gen_ai.usage.input_tokens"] == 2
    assert served.attributes["gen_ai.usage.output_tokens"] == 3
    assert served.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    (first,) = served.events
    assert served.start_time < first.timestamp < served.end_time
    assert refused.attributes["http.response.status_code"] == 415
    assert refused.attributes["inferno.rejected"] == "content_type"


def test_without_the_extra_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inferno.server.edge.spans", None)
    with (
        pytest.raises(InvalidRequest, match=r"pip install .*\[otel\]"),
        tracing("http://localhost:4318/v1/traces"),
    ):
        raise AssertionError


def test_a_collector_that_is_not_there_stops_nobody() -> None:
    with tracing("http://127.0.0.1:9/v1/traces") as tell:
        assert tell is not None
        engine = ScriptedClient()
        asyncio.run(engine.wait_ready())
        assert (
            ask(Guard(small_app, ROUTES, ServerSettings(), engine, tell), "GET", "/x").status == 404
        )


def test_nobody_is_told_unless_asked_for() -> None:
    with tracing(None) as tell:
        assert tell is None
