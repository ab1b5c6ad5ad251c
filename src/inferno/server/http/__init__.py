"""Handle HTTP: what every request passes before an endpoint sees it, and how the server is run."""

from inferno.server.http.admission import Admission, Needs, admission_of
from inferno.server.http.chunk_writer import ChunkWriter, chunk_writer_of
from inferno.server.http.context import Receive, RequestContext, Scope, Send, context_of
from inferno.server.http.errors import (
    CHAT_PARAM_NAMES,
    CLIENT_CLOSED_REQUEST,
    ApiError,
    ClientDisconnected,
    DeadlineExceeded,
    Unavailable,
    api_error_of,
    log_failure,
    method_not_allowed,
    renamed_params,
    unknown_model,
)
from inferno.server.http.lease import Lease
from inferno.server.http.middleware import ServerMiddleware
from inferno.server.http.run import serve
from inferno.server.http.status import StatusView, StatusViews

__all__ = [
    "CHAT_PARAM_NAMES",
    "CLIENT_CLOSED_REQUEST",
    "Admission",
    "ApiError",
    "ChunkWriter",
    "ClientDisconnected",
    "DeadlineExceeded",
    "Lease",
    "Needs",
    "Receive",
    "RequestContext",
    "Scope",
    "Send",
    "ServerMiddleware",
    "StatusView",
    "StatusViews",
    "Unavailable",
    "admission_of",
    "api_error_of",
    "chunk_writer_of",
    "context_of",
    "log_failure",
    "method_not_allowed",
    "renamed_params",
    "serve",
    "unknown_model",
]
