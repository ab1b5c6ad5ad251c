"""Write the access log: a line for each request, when it has been answered.

log_format.py has the layout of lines; log_writer.py writes lines without blocking requests.
"""

from __future__ import annotations

import logging

from inferno.server.http.context import RequestContext, Scope
from inferno.server.http.errors import CLIENT_CLOSED_REQUEST

_log = logging.getLogger("inferno.access")


def write_access_line(
    scope: Scope,
    context: RequestContext,
    *,
    route: str,
    is_known: bool,
    is_view: bool,
    problem: Exception | None,
) -> None:
    """Log a request; a status view at the level of debugging, a problem with its traceback.

    route       the path of the route; None where no route is known, and the request's own path is
                logged.
    """
    level = logging.DEBUG if is_view else logging.INFO
    level = level if problem is None else logging.ERROR
    if _log.isEnabledFor(level):
        fields = _fields(scope, context, route, is_known=is_known)
        _log.log(level, "request", exc_info=problem, extra={"fields": fields})


def _fields(
    scope: Scope, context: RequestContext, route: str, *, is_known: bool
) -> dict[str, object]:
    first = context.first_token_seconds
    fields = {
        "request_id": context.request_id,
        "method": scope["method"],
        "route": route,
        "path": None if is_known else scope["path"],
        "status": context.status or CLIENT_CLOSED_REQUEST,
        "duration_ms": round(context.seconds * 1000, 1),
        "ttft_ms": None if first is None else round(first * 1000, 1),
        "prompt_tokens": context.prompt_tokens or None,
        "cached_tokens": context.cached_tokens or None,
        "completion_tokens": context.completion_tokens or None,
        "finish_reasons": context.finish_reasons or None,
        "key": context.key_id,
        "rejected": context.rejected,
        "prompt": context.prompt,
    }
    return {name: value for name, value in fields.items() if value is not None}
