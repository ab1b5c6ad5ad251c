"""Tell requests to OpenTelemetry, which is an extra, where an endpoint is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from inferno.errors import InvalidRequest
from inferno.extras import install_command
from inferno.server.edge.asgi import Scope
from inferno.server.edge.record import Record

Tell = Callable[[Scope, Record, str], None]


@contextlib.contextmanager
def tracing(endpoint: str | None) -> Iterator[Tell | None]:
    """Yield the function to call for each request that is over; None without an endpoint.

    Raises InvalidRequest where the extra is not installed.
    """
    if endpoint is None:
        yield None
        return
    try:
        from inferno.server.edge.spans import Spans, exporter_to  # noqa: PLC0415
    except ImportError:
        raise InvalidRequest(
            f"--otlp-endpoint needs OpenTelemetry: {install_command('otel')}"
        ) from None
    with contextlib.closing(Spans(exporter_to(endpoint))) as spans:
        yield spans.tell
