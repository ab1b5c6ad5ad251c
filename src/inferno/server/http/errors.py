"""Turn errors of requests into statuses and OpenAI's error object."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from inferno.errors import (
    EngineDied,
    EngineError,
    InvalidRequest,
    NeverFits,
    Overloaded,
    TemplateError,
    TokenizerError,
)
from inferno.server.http.context import Headers, Send

CLIENT_CLOSED_REQUEST = 499  # nginx's status for an answer that nobody waits for
CHAT_PARAM_NAMES = {
    "prompt": "messages",
    "prompt_token_ids": "messages",
    "logprobs": "top_logprobs",
}
# The names of parameters in requests, where these are not inferno's own.
_NAMES = {
    "include_stop_in_output": "include_stop_str_in_output",
    "prompt_token_ids": "prompt",
    "token_ids": "tokens",
    "kwargs": "chat_template_kwargs",
}
# litellm and LangChain look for these words.
_TOO_LONG = "The prompt is too long, this model's maximum context length is exceeded"

_logger = logging.getLogger("inferno.server")


class ApiError(Exception):
    """An error that rejects or ends a request: the answer, or the last event of a stream.

    status          of the answer, where none has begun.
    code            a short constant for programs and metrics; never what a client sent.
    retry_after     seconds after which a client may try again.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.headers = tuple(headers)

    @property
    def body(self) -> bytes:
        """Return OpenAI's error object, in JSON."""
        return error_body(self.status, self.code, self.message, self.param)

    @property
    def all_headers(self) -> Headers:
        """Return the headers of the answer, but for content-length and x-request-id."""
        retry = [] if self.retry_after is None else [(b"retry-after", b"%d" % self.retry_after)]
        return [(b"content-type", b"application/json"), *retry, *self.headers]


class DeadlineExceeded(ApiError):
    """The error of a request that has taken longer than it may."""

    def __init__(self, seconds: float) -> None:
        message = f"The request was not done within {seconds:g} seconds and was ended."
        super().__init__(504, "deadline_exceeded", message)


class Unavailable(ApiError):
    """The error of a server that can't take a request now; the same request may succeed later."""

    def __init__(self, code: str, message: str, *, retry_after: int) -> None:
        super().__init__(503, code, message, retry_after=retry_after)


def method_not_allowed(method: str, headers: Headers) -> ApiError:
    """Return the error of a method that a route doesn't take; `headers` say which it takes."""
    message = f"{method[:20]} is not what this route takes."
    return ApiError(405, "method_not_allowed", message, headers=headers)


def error_body(status: int, code: str | None, message: str, param: str | None = None) -> bytes:
    """Return OpenAI's error object, in JSON."""
    error = {"message": message, "type": error_type(status), "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def error_type(status: int) -> str:
    """Return OpenAI's name for the kind of error that has this status."""
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


async def send_error(send: Send, error: ApiError) -> None:
    """Answer a request with an error."""
    await send_whole(send, error.status, error.all_headers, error.body)


async def send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Answer a request in one piece."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


class ClientDisconnected(Exception):
    """The error of a client that closes its connection before its answer is whole."""


@contextmanager
def renamed_params(names: Mapping[str, str]) -> Iterator[None]:
    """Have InvalidRequest name parameters as a route's requests do, until the block ends."""
    try:
        yield
    except InvalidRequest as problem:
        problem.param = names.get(problem.param or "", problem.param)
        raise


def api_error_of(problem: Exception, request_id: str) -> ApiError:
    """Return the API error for a problem; an unexpected one is described in the log only."""
    match problem:
        case ApiError():
            return problem
        case InvalidRequest():
            param = _NAMES.get(problem.param or "", problem.param)
            code, message = "invalid_value", f"{problem}."
            if isinstance(problem, NeverFits):
                code, message = "context_length_exceeded", f"{_TOO_LONG}: {message}"
            return ApiError(400, code, message, param=param)
        case TemplateError() | TokenizerError():
            param = "messages" if isinstance(problem, TemplateError) else "prompt"
            return ApiError(400, "unsupported_by_model", f"{problem}.", param=param)
        case Overloaded():
            return Unavailable("templates_busy", f"{problem}.", retry_after=1)
        case EngineDied():
            message = "The engine stopped while it worked on this request; try again."
            return Unavailable("engine_died", message, retry_after=1)
    message = f"The server made a mistake; its log tells more under {request_id}."
    return ApiError(500, "internal_error", message)


def log_failure(problem: Exception, request_id: str) -> None:
    """Log the cause of a status of 500, which the client isn't told."""
    # An engine knows token ids only, so that what it says quotes nobody.
    said = {"said": str(problem)} if isinstance(problem, EngineError) else {}
    fields = {"request_id": request_id, **said}
    _logger.error("a request failed", exc_info=problem, extra={"fields": fields})


def unknown_model(name: str, served_name: str) -> ApiError:
    """Return the error of a model that isn't served here."""
    message = f"The model '{name:.100}' is not served here; leave it out, or give '{served_name}'."
    return ApiError(404, "model_not_found", message, param="model")
