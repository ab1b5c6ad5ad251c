"""The table of errors: what went wrong becomes a status and OpenAI's error object."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from inferno.errors import (
    EngineDied,
    EngineError,
    InvalidRequest,
    NeverFits,
    Overloaded,
    TemplateError,
    TokenizerError,
)
from inferno.server.edge import Refusal, Unavailable

_logger = logging.getLogger("inferno.server")

# What a parameter is called in a request, where that is not its name within inferno.
_NAMES = {
    "include_stop_in_output": "include_stop_str_in_output",
    "prompt_token_ids": "prompt",
    "token_ids": "tokens",
    "kwargs": "chat_template_kwargs",
}
# litellm and LangChain look for these words.
_TOO_LONG = "The prompt is too long, this model's maximum context length is exceeded"
CHAT_NAMES = {"prompt": "messages", "prompt_token_ids": "messages", "logprobs": "top_logprobs"}


class ClientLeft(Exception):
    """Raised when the client closes its connection before its answer is whole."""


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Let InvalidRequest name parameters as this route's requests do."""
    try:
        yield
    except InvalidRequest as problem:
        problem.param = names.get(problem.param or "", problem.param)
        raise


def refusal_of(problem: Exception, request_id: str) -> Refusal:
    """Return the refusal for a problem; of an unexpected one it says only that the log has more."""
    match problem:
        case Refusal():
            return problem
        case InvalidRequest():
            param = _NAMES.get(problem.param or "", problem.param)
            code, message = "invalid_value", f"{problem}."
            if isinstance(problem, NeverFits):
                code, message = "context_length_exceeded", f"{_TOO_LONG}: {message}"
            return Refusal(400, code, message, param=param)
        case TemplateError() | TokenizerError():
            param = "messages" if isinstance(problem, TemplateError) else "prompt"
            return Refusal(400, "unsupported_by_model", f"{problem}.", param=param)
        case Overloaded():
            return Unavailable("templates_busy", f"{problem}.", retry_after=1)
        case EngineDied():
            message = "The engine stopped while it worked on this request; try again."
            return Unavailable("engine_died", message, retry_after=1)
    message = f"The server made a mistake; its log tells more under {request_id}."
    return Refusal(500, "internal_error", message)


def log_failure(problem: Exception, request_id: str) -> None:
    """Tell the log what a client was not told of a 500."""
    # An engine knows token ids only, so that what it says quotes nobody.
    said = {"said": str(problem)} if isinstance(problem, EngineError) else {}
    fields = {"request_id": request_id, **said}
    _logger.error("a request failed", exc_info=problem, extra={"fields": fields})


def unknown_model(name: str, served_name: str) -> Refusal:
    """Return the refusal of a model that isn't served here."""
    message = f"The model '{name:.100}' is not served here; leave it out, or give '{served_name}'."
    return Refusal(404, "model_not_found", message, param="model")
