"""Trace requests by OpenTelemetry: one span each, sent to a collector. Needs the extra `otel`."""

from __future__ import annotations

import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from inferno.server.http.context import RequestContext, Scope, header

_EXPORT_SECONDS = 2
_NANOSECONDS = 1e9


def exporter_to(endpoint: str) -> SpanExporter:
    """Return an exporter that sends spans to a URL, as OTLP over HTTP."""
    return OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)


class RequestTracer:
    """A tracer, called for each request that is over; another thread sends the spans in batches."""

    def __init__(self, exporter: SpanExporter) -> None:
        resource = Resource.create({"service.name": "inferno"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("inferno.server")
        self._propagator = TraceContextTextMapPropagator()

    def trace(self, scope: Scope, context: RequestContext, route: str) -> None:
        end = time.time_ns()
        start = end - int(context.seconds * _NANOSECONDS)
        span = self._tracer.start_span(
            f"{scope['method']} {route}" if route != "none" else "request",
            self._propagator.extract(_carrier(scope)),
            SpanKind.SERVER,
            {key: value for key, value in _attributes(context, route).items() if value is not None},
            start_time=start,
        )
        if context.first_token_seconds is not None:
            at = start + int(context.first_token_seconds * _NANOSECONDS)
            span.add_event("first token", timestamp=at)
        if (context.status or 0) >= 500:
            span.set_status(StatusCode.ERROR, context.rejected)
        span.end(end)

    def close(self) -> None:
        """Send what is left, for as long as one export may take."""
        self._provider.force_flush(_EXPORT_SECONDS * 1000)
        self._provider.shutdown()


def _carrier(scope: Scope) -> dict[str, str]:
    names = ("traceparent", "tracestate")
    given = {name: header(scope, name.encode()) for name in names}
    return {name: value.decode("latin-1") for name, value in given.items() if value is not None}


def _attributes(context: RequestContext, route: str) -> dict[str, str | int | list[str] | None]:
    """Return a span's attributes, named by OpenTelemetry's conventions where they have a name."""
    return {
        "http.route": route,
        "http.response.status_code": context.status,
        "gen_ai.usage.input_tokens": context.prompt_tokens or None,
        "gen_ai.usage.output_tokens": context.completion_tokens or None,
        "gen_ai.response.finish_reasons": context.finish_reasons or None,
        "inferno.request_id": context.request_id,
        "inferno.cached_tokens": context.cached_tokens or None,
        "inferno.key": context.key_id,
        "inferno.rejected": context.rejected,
    }
