"""Fields of requests become sampling parameters, each of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferno import RepetitionDetection, SamplingParams
from inferno.errors import InvalidRequest
from inferno.server.generation.engine_requests import chat_params, completion_params, tools_of
from inferno.server.openai.request_types import ChatRequest, CompletionRequest

ALIKE: dict[str, Any] = {
    "n": 3,
    "temperature": 0.25,
    "top_p": 0.5,
    "top_k": 7,
    "min_p": 0.125,
    "repetition_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "seed": -9,
    "stop": ["a", "b"],
    "stop_token_ids": [4],
    "ignore_eos": True,
    "min_tokens": 2,
    "skip_special_tokens": False,
    "allowed_token_ids": [4, 5],
    "bad_words": ["bad"],
    "prompt_logprobs": 1,
    "logprob_token_ids": [7, 5],
}
# The same to HTTP, and to the library.
PATTERN = {"max_pattern_size": 4, "min_count": 3}
REPEATED = RepetitionDetection(max_pattern_size=4, min_pattern_size=1, min_count=3)


def test_every_field_of_a_chat_is_honoured() -> None:
    fields = {
        **ALIKE,
        "messages": [{}],
        "logit_bias": {"5": 1.5},
        "include_stop_str_in_output": True,
        "max_tokens": 11,
        "logprobs": True,
        "top_logprobs": 2,
        "repetition_detection": PATTERN,
    }
    expected = SamplingParams(
        **ALIKE,
        logit_bias={5: 1.5},
        include_stop_in_output=True,
        max_tokens=11,
        logprobs=2,
        repetition_detection=REPEATED,
    )
    assert chat_params(msgspec.convert(fields, ChatRequest), {}) == expected


def test_every_field_of_a_completion_is_honoured() -> None:
    fields = {**ALIKE, "prompt": "a", "max_tokens": 2, "logprobs": 4, "echo": True}
    fields["repetition_detection"] = PATTERN
    expected = SamplingParams(
        **{**ALIKE, "prompt_logprobs": 4},
        max_tokens=2,
        logprobs=4,
        repetition_detection=REPEATED,
    )
    assert completion_params(msgspec.convert(fields, CompletionRequest), {}) == expected


@pytest.mark.parametrize(
    ("fields", "defaults", "expected"),
    [
        ({}, {}, None),
        ({}, {"max_tokens": 9}, 9),
        ({"max_tokens": 3}, {"max_tokens": 9}, 3),
        ({"max_tokens": 3, "max_completion_tokens": 4}, {}, 4),
    ],
)
def test_a_chat_may_fill_the_context_unless_limited(
    fields: dict[str, Any], defaults: dict[str, int], expected: int | None
) -> None:
    chat = msgspec.convert({"messages": [{}], **fields}, ChatRequest)
    assert chat_params(chat, defaults).max_tokens == expected


def test_the_models_defaults_fill_the_gaps() -> None:
    defaults = {"temperature": 0.5, "top_p": 0.9}
    chat = msgspec.convert({"messages": [{}], "top_p": 0.1, "top_k": -1}, ChatRequest)
    params = chat_params(chat, defaults)
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.1, 0)
    completion = msgspec.convert({"prompt": "a"}, CompletionRequest)
    assert completion_params(completion, defaults).max_tokens == 16


@pytest.mark.parametrize("detection", [{}, {"min_count": 2}, {"max_pattern_size": 0}])
def test_a_pattern_of_no_size_is_not_sought(detection: dict[str, int]) -> None:
    chat = msgspec.convert({"messages": [{}], "repetition_detection": detection}, ChatRequest)
    assert chat_params(chat, {}).repetition_detection is None


def test_a_prompt_that_is_only_scored_has_no_new_tokens_to_tell_of() -> None:
    fields = {"prompt": "a", "max_tokens": 0, "logprobs": 1, "logprob_token_ids": [5]}
    with pytest.raises(InvalidRequest, match="new tokens"):
        completion_params(msgspec.convert(fields, CompletionRequest), {})


@pytest.mark.parametrize("deferred", [None, False, True])
def test_a_function_that_is_to_be_found_first_is_refused(deferred: bool | None) -> None:
    tool = {"type": "function", "function": {"name": "f", "defer_loading": deferred}}
    fields = msgspec.convert({"messages": [{}], "tools": [tool]}, ChatRequest)
    if deferred:
        with pytest.raises(InvalidRequest, match="defer_loading is not supported"):
            tools_of(fields)
    else:
        assert tools_of(fields) is not None
