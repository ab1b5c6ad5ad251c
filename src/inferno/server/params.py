"""A request's fields become sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.errors import InvalidRequest
from inferno.requests import SamplingParams
from inferno.server.fields import ChatRequest, CompletionRequest, GenerateFields

_ALIKE = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("allowed_token_ids", "bad_words"),
)


def chat_params(fields: ChatRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Return a chat's sampling parameters; without a limit, an answer may fill the context."""
    if fields.top_logprobs and not fields.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    most = fields.max_completion_tokens or fields.max_tokens or defaults.get("max_tokens")
    return _params(
        fields,
        defaults,
        max_tokens=most,
        logprobs=fields.top_logprobs if fields.logprobs else None,
        prompt_logprobs=fields.prompt_logprobs,
    )


def completion_params(fields: CompletionRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Return a completion's sampling parameters; an echo tells the prompt's logprobs too."""
    wanted = [fields.prompt_logprobs, fields.logprobs if fields.echo else None]
    return _params(
        fields,
        defaults,
        max_tokens=fields.max_tokens,
        logprobs=fields.logprobs,
        prompt_logprobs=max((num for num in wanted if num is not None), default=None),
    )


def _params(
    fields: GenerateFields, defaults: Mapping[str, Any], **own: int | None
) -> SamplingParams:
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    if fields.prompt_logprobs is not None and fields.stream:
        raise InvalidRequest("prompt_logprobs can't be streamed", param="prompt_logprobs")
    given = {name: value for name in _ALIKE if (value := getattr(fields, name)) is not None}
    if given.get("top_k") == -1:
        given["top_k"] = 0
    chosen: dict[str, Any] = {
        **defaults,
        **given,
        **own,
        "n": fields.n,
        "min_tokens": fields.min_tokens,
        "ignore_eos": fields.ignore_eos,
        "include_stop_in_output": fields.include_stop_str_in_output,
        "skip_special_tokens": fields.skip_special_tokens,
        "logit_bias": _biases(fields.logit_bias or {}),
    }
    return SamplingParams(**chosen)


def _biases(by_text: Mapping[str, float]) -> dict[int, float]:
    biases = {_token_id(text): bias for text, bias in by_text.items()}
    if len(biases) < len(by_text):
        raise InvalidRequest("logit_bias names a token twice", param="logit_bias")
    return biases


def _token_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise InvalidRequest(
            f"logit_bias must have token ids as keys, not {text[:40]!r}", param="logit_bias"
        )
    return int(text)
