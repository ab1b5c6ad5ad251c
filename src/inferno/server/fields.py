"""The fields of requests, with their bounds: those that routes share, and those of each.

A null counts as absent. Where a description begins with "Hint", the field changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from inferno.requests import (
    MAX_BAD_WORDS,
    MAX_LISTED_IDS,
    MAX_LOGIT_BIAS,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_SAMPLES,
    MAX_SEED,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    MAX_TOKEN_ID,
)
from inferno.server.refused import CHAT, COMPLETION, NOTHING, TOKENIZE, Harmless
from inferno.text.chat import MAX_TEMPLATE_BYTES

MAX_TOKEN_IDS = 4096  # of stops and biases
MAX_PRIORITY = 2**31
_MAX_NAME = 512
_TIMEOUT = 7 * 24 * 3600.0

Name = Annotated[str, Meta(max_length=_MAX_NAME)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
TokenIds = Annotated[list[TokenId], Meta(max_length=MAX_TOKEN_IDS)]
Logprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
Count = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
Positive = Annotated[int, Meta(ge=1, le=MAX_TOKEN_ID)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-MAX_PENALTY, le=MAX_PENALTY)]
Bias = Annotated[float, Meta(ge=-MAX_LOGIT_BIAS, le=MAX_LOGIT_BIAS)]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]
Template = Annotated[str, Meta(max_length=MAX_TEMPLATE_BYTES)]
Salt = Annotated[str, Meta(max_length=128, pattern=r"^[^@/\\\x00]*$")]
RequestId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,128}$(?!\n)")]

_PART_SCHEMA = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_MESSAGE_SCHEMA = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": _PART_SCHEMA, "minItems": 1},
                {"type": "null"},
            ]
        },
    },
    "required": ["role"],
    # Only an assistant may have said something else than a text: a call of a tool, say.
    "if": {"properties": {"role": {"const": "assistant"}}},
    "else": {"properties": {"content": {"not": {"type": "null"}}}, "required": ["content"]},
}
_TOKEN_IDS_SCHEMA = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_ID},
    "minItems": 1,
}
Message = Annotated[dict[str, Any], Meta(extra_json_schema=_MESSAGE_SCHEMA)]


class StreamOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of a stream: whether its events tell usage besides the text."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = False  # has no effect: events are never padded


class RequestFields(Struct, kw_only=True):
    """The fields of a request's body.

    refused     the other fields that clients know, and the values of them that change nothing.
    """

    refused: ClassVar[Harmless] = NOTHING


class GenerateFields(RequestFields, kw_only=True):
    """The fields that chats and completions share."""

    model: Annotated[Name | None, Meta(description="The served model where absent.")] = None
    n: Annotated[int, Meta(ge=1, le=MAX_SAMPLES, description="Choices per prompt.")] = 1
    stream: Annotated[bool, Meta(description="Answer with server-sent events.")] = False
    stream_options: Annotated[
        StreamOptions | None,
        Meta(description="Only with stream: include_usage, continuous_usage_stats."),
    ] = None
    stream_interval: Annotated[
        Positive, Meta(description="Tokens per event of a stream, at least.")
    ] = 1
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=100)] | None,
        Meta(description="0 is greedy. As for every sampling field: the model's own default."),
    ] = None
    top_p: Annotated[
        Fraction | None,
        Meta(
            description="Keep the likeliest tokens up to this probability; 0 keeps the likeliest."
        ),
    ] = None
    top_k: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)] | None,
        Meta(description="Keep the k likeliest tokens; 0 and -1 keep all."),
    ] = None
    min_p: Annotated[
        Fraction | None, Meta(description="Drop tokens below this share of the likeliest.")
    ] = None
    repetition_penalty: Annotated[
        Annotated[float, Meta(gt=0, le=100)] | None,
        Meta(description="Above 1 discourages tokens of prompt and output."),
    ] = None
    presence_penalty: Annotated[
        Penalty | None, Meta(description="Taken once from tokens of the output.")
    ] = None
    frequency_penalty: Annotated[
        Penalty | None, Meta(description="Taken per occurrence from tokens of the output.")
    ] = None
    logit_bias: Annotated[
        Annotated[dict[str, Bias], Meta(max_length=MAX_TOKEN_IDS)] | None,
        Meta(description="Token id to a number that is added to its logit."),
    ] = None
    seed: Annotated[
        Annotated[int, Meta(ge=-MAX_SEED - 1, le=MAX_SEED)] | None,
        Meta(description="The same request with the same seed has the same answer."),
    ] = None
    stop: Annotated[
        Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None,
        Meta(description="Texts that end the output."),
    ] = None
    stop_token_ids: Annotated[TokenIds | None, Meta(description="Tokens that end the output.")] = (
        None
    )
    include_stop_str_in_output: Annotated[
        bool, Meta(description="Whether the text keeps the stop that ended it.")
    ] = False
    ignore_eos: Annotated[bool, Meta(description="Go on past the end-of-sequence token.")] = False
    min_tokens: Annotated[
        Count, Meta(description="No end-of-sequence or stop token before so many.")
    ] = 0
    skip_special_tokens: Annotated[
        bool, Meta(description="Leave special tokens out of the text.")
    ] = True
    allowed_token_ids: Annotated[
        Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_LISTED_IDS)] | None,
        Meta(description="Only these tokens may be chosen."),
    ] = None
    bad_words: Annotated[
        Annotated[list[Stop], Meta(max_length=MAX_BAD_WORDS)] | None,
        Meta(description="Texts whose tokens are never completed."),
    ] = None
    truncate_prompt_tokens: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)] | None,
        Meta(description="Cut the prompt to so many tokens; -1 to what the context holds."),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"], Meta(description="Which end of the prompt is cut off.")
    ] = "left"
    prompt_logprobs: Annotated[
        Logprobs | None,
        Meta(description="Log-probabilities of the prompt's tokens; not with stream."),
    ] = None
    return_token_ids: Annotated[bool, Meta(description="Tell token_ids and prompt_token_ids.")] = (
        False
    )
    return_tokens_as_token_ids: Annotated[
        bool, Meta(description="Tokens of logprobs are written as token_id:123.")
    ] = False
    priority: Annotated[
        int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Higher runs first.")
    ] = 0
    cache_salt: Annotated[
        Salt | None,
        Meta(description="Cached prefixes are shared only within the same salt."),
    ] = None
    request_id: Annotated[
        RequestId | None, Meta(description="What the answer's id is made of.")
    ] = None
    timeout: Annotated[
        Annotated[float, Meta(ge=1, le=_TIMEOUT)] | None,
        Meta(description="Seconds after which the request ends with an error."),
    ] = None
    user: Annotated[Name | None, Meta(description="Hint.")] = None
    safety_identifier: Annotated[Name | None, Meta(description="Hint.")] = None
    prompt_cache_key: Annotated[Name | None, Meta(description="Hint.")] = None
    session_id: Annotated[Name | None, Meta(description="Hint. Named in x-inferno-ignored.")] = None
    metadata: Annotated[dict[str, Any] | None, Meta(description="Hint.")] = None
    service_tier: Annotated[
        Literal["auto", "default", "flex", "priority", "scale"],
        Meta(description="Hint. Named in x-inferno-ignored, but for auto and default."),
    ] = "auto"
    store: Annotated[
        bool, Meta(description="Hint. Nothing is stored: true is named in x-inferno-ignored.")
    ] = False
    verbosity: Annotated[
        Name | None, Meta(description="Hint. Named in x-inferno-ignored, but for medium.")
    ] = None

    @property
    def includes_usage(self) -> bool:
        """Return whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def repeats_usage(self) -> bool:
        """Return whether each event of a stream tells the usage so far."""
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


class ChatRequest(GenerateFields, kw_only=True):
    """A conversation to go on with."""

    refused: ClassVar[Harmless] = CHAT

    messages: Annotated[list[Message], Meta(min_length=1, description="The conversation so far.")]
    max_completion_tokens: Annotated[
        Positive | None, Meta(description="New tokens at most; the rest of the context.")
    ] = None
    max_tokens: Annotated[
        Positive | None, Meta(description="The older name of max_completion_tokens.")
    ] = None
    logprobs: Annotated[bool, Meta(description="Tell the chosen tokens' log-probabilities.")] = (
        False
    )
    top_logprobs: Annotated[
        Logprobs, Meta(description="And those of so many of the likeliest; needs logprobs.")
    ] = 0
    reasoning_effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None,
        Meta(description="For the chat template; ignored by name where it doesn't take it."),
    ] = None
    include_reasoning: Annotated[bool, Meta(description="Tell the reasoning.")] = True
    echo: Annotated[
        bool, Meta(description="Put the last message before the answer, if it is the assistant's.")
    ] = False
    add_generation_prompt: Annotated[bool, Meta(description="Begin the assistant's turn.")] = True
    continue_final_message: Annotated[
        bool, Meta(description="Go on with the last message; not with add_generation_prompt.")
    ] = False
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Meta(description="The chat template's own options; others are ignored by name."),
    ] = None
    documents: Annotated[
        list[dict[str, Any]] | None,
        Meta(description="For chat templates that read them; else ignored by name."),
    ] = None
    chat_template: Annotated[
        Template | None, Meta(description="Needs --trust-request-chat-template.")
    ] = None


class CompletionRequest(GenerateFields, kw_only=True):
    """A prompt to complete, or several."""

    refused: ClassVar[Harmless] = COMPLETION

    prompt: Annotated[
        Any,
        Meta(
            description="A text, token ids, or a list of either.",
            extra_json_schema={
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    _TOKEN_IDS_SCHEMA,
                    {"type": "array", "items": _TOKEN_IDS_SCHEMA, "minItems": 1},
                ]
            },
        ),
    ]
    max_tokens: Annotated[
        Count, Meta(description="New tokens at most; with 0 the prompt is only scored.")
    ] = 16
    logprobs: Annotated[
        Logprobs | None, Meta(description="Tell log-probabilities of so many likeliest tokens.")
    ] = None
    echo: Annotated[bool, Meta(description="Put the prompt before the output.")] = False
    add_special_tokens: Annotated[
        bool, Meta(description="Begin a text as the model expects, with <s> for instance.")
    ] = True


class TokenizeRequest(RequestFields, kw_only=True):
    """A prompt or messages whose token ids are asked for."""

    refused: ClassVar[Harmless] = TOKENIZE

    model: Annotated[Name | None, Meta(description="The served model where absent.")] = None
    prompt: Annotated[str | None, Meta(description="A text; or give messages.")] = None
    messages: Annotated[
        Annotated[list[Message], Meta(min_length=1)] | None,
        Meta(description="A conversation; or give a prompt."),
    ] = None
    add_special_tokens: Annotated[
        bool | None, Meta(description="true for a prompt; messages take false alone.")
    ] = None
    return_token_strs: Annotated[
        bool, Meta(description="Tell the tokens in the vocabulary's own spelling too.")
    ] = False
    add_generation_prompt: Annotated[bool, Meta(description="Begin the assistant's turn.")] = True
    continue_final_message: Annotated[
        bool, Meta(description="End within the last message; not with add_generation_prompt.")
    ] = False
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Meta(description="The chat template's own options; others are ignored by name."),
    ] = None
    documents: Annotated[
        list[dict[str, Any]] | None,
        Meta(description="For chat templates that read them; else ignored by name."),
    ] = None
    chat_template: Annotated[
        Template | None, Meta(description="Needs --trust-request-chat-template.")
    ] = None


class DetokenizeRequest(RequestFields, kw_only=True):
    """Token ids whose text is asked for."""

    model: Annotated[Name | None, Meta(description="The served model where absent.")] = None
    tokens: Annotated[list[TokenId], Meta(description="Token ids.")]
