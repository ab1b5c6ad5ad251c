"""Define the fields of requests with their bounds, shared by routes or of one route.

A null counts as absent. Where a description begins with "Hint", the field changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from inferno.json_file import MAX_TEMPLATE_BYTES
from inferno.option_table import table
from inferno.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LISTED_IDS,
    MAX_LOGIT_BIAS,
    MAX_LOGPROB_IDS,
    MAX_PATTERN_SIZE,
    MAX_REPETITIONS,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    MAX_TOKEN_ID,
    SamplingParams,
)
from inferno.text.tools import MAX_TOOL_DESCRIPTION, MAX_TOOLS, TOOL_NAME

MAX_TOKEN_IDS = 4096  # of stops and biases
MAX_PRIORITY = 2**31
_MAX_NAME = 512
_TIMEOUT = 7 * 24 * 3600.0


def bounds(name: str, *, low: int | None = None) -> Meta:
    """Return the bounds of a sampling parameter, from its table.

    low         another lower bound, for a value that means something in requests only.
    """
    facts = table(SamplingParams)[name].facts
    if facts.is_low_excluded:
        return Meta(gt=facts.low, le=facts.high)
    return Meta(ge=facts.low if low is None else low, le=facts.high)


def described(name: str, more: str = "") -> Meta:
    """Return the description of a sampling parameter, from its table, followed by `more`."""
    return Meta(description=f"{table(SamplingParams)[name].facts.help} {more}".rstrip())


Name = Annotated[str, Meta(max_length=_MAX_NAME)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
TokenIds = Annotated[list[TokenId], Meta(max_length=MAX_TOKEN_IDS)]
Logprobs = Annotated[int, bounds("logprobs")]
Count = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
Positive = Annotated[int, Meta(ge=1, le=MAX_TOKEN_ID)]
Bias = Annotated[float, Meta(ge=-MAX_LOGIT_BIAS, le=MAX_LOGIT_BIAS)]
StopText = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]
Template = Annotated[str, Meta(max_length=MAX_TEMPLATE_BYTES)]
Salt = Annotated[str, Meta(max_length=128, pattern=r"^[^@/\\\x00]*$")]
ToolName = Annotated[str, Meta(pattern=TOOL_NAME)]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
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

# Fields that clients know and inferno doesn't support, with the values beside null that are taken.
Unsupported = Mapping[str, tuple[Any, ...]]
_EVERYWHERE: Unsupported = {
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "best_of": (1,),
    "watermarking": (False,),
    "return_token_offsets": (False,),
    "routed_experts_prompt_start": (0,),
    "mm_payload": (),
    "return_mm_kwargs": (False,),
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
    "kv_transfer_params": (),
    "ec_transfer_params": (),
    "vllm_xargs": (),
}

UNSUPPORTED_IN_CHATS: Unsupported = {
    **_EVERYWHERE,
    "functions": (),
    "function_call": ("none",),
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "web_search_options": (),
}

UNSUPPORTED_IN_COMPLETIONS: Unsupported = {**_EVERYWHERE, "suffix": ("",), "prompt_embeds": ()}

UNSUPPORTED_IN_TOKENIZE: Unsupported = {
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
}

NO_FIELDS: Unsupported = {}


class StreamOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of a stream: whether its events have usage besides the text."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = False  # has no effect: events are never padded


class JsonSchemaFormat(Struct, kw_only=True, forbid_unknown_fields=True):
    """A JSON Schema that the answer keeps to; strict or not, it is kept to in full."""

    name: Annotated[str, Meta(pattern=TOOL_NAME)]
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(Struct, kw_only=True, forbid_unknown_fields=True):
    """The format of an answer: text, JSON of any kind or by a schema, or text with such parts.

    A "json_object" may have its schema as `schema`, which is llama.cpp's way, or as `value`, which
    is what huggingface_hub makes of every "json_schema".
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    schema: dict[str, Any] | None = None
    value: dict[str, Any] | None = None
    format: dict[str, Any] | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None


class StructuredOutputs(Struct, kw_only=True, forbid_unknown_fields=True):
    """The shape of an answer, by exactly one of the first six fields."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: dict[str, Any] | str | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None


class RepetitionDetection(Struct, kw_only=True, forbid_unknown_fields=True):
    """The rule by which an output ends that has a pattern of such a size so often in a row.

    A min_pattern_size of 0 is 1, and a max_pattern_size of 0 detects nothing, as in vLLM.
    """

    max_pattern_size: Annotated[int, Meta(ge=0, le=MAX_PATTERN_SIZE)] = 0
    min_pattern_size: Annotated[int, Meta(ge=0, le=MAX_PATTERN_SIZE)] = 0
    min_count: Annotated[int, Meta(ge=0, le=MAX_REPETITIONS)] = 0


class TextPart(Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a text."""

    type: Literal["text"]
    text: str


class Prediction(Struct, kw_only=True, forbid_unknown_fields=True):
    """A text that the answer may be like, or its parts."""

    type: Literal["content"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """Return the text, its parts put together."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ToolFunction(Struct, kw_only=True, forbid_unknown_fields=True):
    """A function that the model may call.

    parameters      a JSON Schema of the object that its arguments are; absent, it takes none.
    strict          the arguments of a call keep to the schema.
    defer_loading   false: the function is shown at once, as all are.
    """

    name: ToolName
    description: Annotated[str, Meta(max_length=MAX_TOOL_DESCRIPTION)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Tool(Struct, kw_only=True, forbid_unknown_fields=True):
    """A tool that the model may use; all tools are functions."""

    type: Literal["function"]
    function: ToolFunction


class NamedFunction(Struct, kw_only=True, forbid_unknown_fields=True):
    """The name of one of the functions."""

    name: ToolName


class NamedTool(Struct, kw_only=True, forbid_unknown_fields=True):
    """The one tool that the model is to call."""

    type: Literal["function"]
    function: NamedFunction


Tools = Annotated[list[Tool], Meta(max_length=MAX_TOOLS)]


class RequestFields(Struct, kw_only=True):
    """The fields of a request's body.

    unsupported     the other fields that clients know, and the values of them that change nothing.
    advice          what to do instead of giving one of them, where there is something to do.
    """

    unsupported: ClassVar[Unsupported] = NO_FIELDS
    advice: ClassVar[Mapping[str, str]] = {}


class SharedFields(RequestFields, kw_only=True):
    """The fields that every route has that generates text."""

    model: Annotated[Name | None, Meta(description="The served model where absent.")] = None
    stream: Annotated[bool, Meta(description="Answer with server-sent events.")] = False
    temperature: Annotated[
        Annotated[float, bounds("temperature")] | None,
        described("temperature", "As for every sampling field: the model's own default."),
    ] = None
    top_p: Annotated[Annotated[float, bounds("top_p")] | None, described("top_p")] = None
    top_k: Annotated[
        Annotated[int, bounds("top_k", low=-1)] | None, described("top_k", "So does -1.")
    ] = None
    min_p: Annotated[Annotated[float, bounds("min_p")] | None, described("min_p")] = None
    repetition_penalty: Annotated[
        Annotated[float, bounds("repetition_penalty")] | None, described("repetition_penalty")
    ] = None
    presence_penalty: Annotated[
        Annotated[float, bounds("presence_penalty")] | None, described("presence_penalty")
    ] = None
    frequency_penalty: Annotated[
        Annotated[float, bounds("frequency_penalty")] | None, described("frequency_penalty")
    ] = None
    logit_bias: Annotated[
        Annotated[dict[str, Bias], Meta(max_length=MAX_TOKEN_IDS)] | None, described("logit_bias")
    ] = None
    seed: Annotated[Annotated[int, bounds("seed")] | None, described("seed")] = None
    stop: Annotated[
        StopText | Annotated[list[StopText], Meta(max_length=MAX_STOPS)] | None,
        described("stop", "Or a list of them."),
    ] = None
    stop_token_ids: Annotated[TokenIds | None, described("stop_token_ids")] = None
    include_stop_str_in_output: Annotated[bool, described("include_stop_in_output")] = False
    ignore_eos: Annotated[bool, described("ignore_eos")] = False
    min_tokens: Annotated[int, bounds("min_tokens"), described("min_tokens")] = 0
    skip_special_tokens: Annotated[bool, described("skip_special_tokens")] = True
    spaces_between_special_tokens: Annotated[
        bool, Meta(description="Hint. The text is as the tokenizer writes it, which puts none.")
    ] = True
    allowed_token_ids: Annotated[
        Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_LISTED_IDS)] | None,
        described("allowed_token_ids"),
    ] = None
    bad_words: Annotated[
        Annotated[list[StopText], Meta(max_length=MAX_BAD_WORDS)] | None, described("bad_words")
    ] = None
    thinking_token_budget: Annotated[
        Annotated[int, bounds("thinking_token_budget")] | None, described("thinking_token_budget")
    ] = None
    structured_outputs: Annotated[
        StructuredOutputs | None,
        Meta(
            description="The shape of the answer: json (a schema), json_object, regex, choice, "
            "grammar (Lark) or structural_tag; disable_any_whitespace, "
            "disable_additional_properties, whitespace_pattern."
        ),
    ] = None
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


class GenerateFields(SharedFields, kw_only=True):
    """The fields that chats and completions share."""

    n: Annotated[int, bounds("n"), described("n")] = 1
    stream_options: Annotated[
        StreamOptions | None,
        Meta(description="Only with stream: include_usage, continuous_usage_stats."),
    ] = None
    stream_interval: Annotated[
        Positive, Meta(description="Tokens per event of a stream, at least.")
    ] = 1
    response_format: Annotated[
        ResponseFormat | None,
        Meta(
            description="text, json_object, json_schema with a schema that the answer keeps to, or "
            "structural_tag."
        ),
    ] = None
    truncate_prompt_tokens: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)] | None,
        Meta(description="Cut the prompt to so many tokens; -1 to what the context holds."),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"], Meta(description="Which end of the prompt is cut off.")
    ] = "left"
    repetition_detection: Annotated[
        RepetitionDetection | None, described("repetition_detection")
    ] = None
    logprob_token_ids: Annotated[
        Annotated[list[TokenId], Meta(max_length=MAX_LOGPROB_IDS)] | None,
        described("logprob_token_ids", "Needs logprobs."),
    ] = None
    prompt_logprobs: Annotated[
        Logprobs | None, described("prompt_logprobs", "Not with stream.")
    ] = None
    return_token_ids: Annotated[bool, Meta(description="Tell token_ids and prompt_token_ids.")] = (
        False
    )
    return_tokens_as_token_ids: Annotated[
        bool, Meta(description="Tokens of logprobs are written as token_id:123.")
    ] = False
    verbosity: Annotated[
        Name | None, Meta(description="Hint. Named in x-inferno-ignored, but for medium.")
    ] = None

    @property
    def has_logprob_ids(self) -> bool:
        """Return whether tokens are named whose log-probabilities are told for the likeliest."""
        return bool(self.logprob_token_ids)

    @property
    def includes_usage(self) -> bool:
        """Return whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def repeats_usage(self) -> bool:
        """Return whether each event of a stream has the usage so far."""
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


class ChatRequest(GenerateFields, kw_only=True):
    """A conversation to go on with."""

    unsupported: ClassVar[Unsupported] = UNSUPPORTED_IN_CHATS

    messages: Annotated[list[Message], Meta(min_length=1, description="The conversation so far.")]
    max_completion_tokens: Annotated[
        Positive | None,
        Meta(
            description="New tokens at most; absent, the model's own max_new_tokens, or else the "
            "rest of the context."
        ),
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
    prediction: Annotated[
        Prediction | None, described("prediction", "Hint, without effect on the answer.")
    ] = None
    tools: Annotated[Tools | None, Meta(description="Functions that the model may call.")] = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | NamedTool | None,
        Meta(
            description="Whether the model calls tools: none (they are not shown to it), auto (as "
            "it likes: the default), required (at least one), or the one that is named."
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool, Meta(description="With false, an answer ends where a second call would begin.")
    ] = True
    reasoning_effort: Annotated[
        ReasoningEffort | None,
        Meta(description="For the chat template; ignored by name where it doesn't take it."),
    ] = None
    add_special_tokens: Annotated[
        bool, Meta(description="Put what a raw prompt begins with before what the template writes.")
    ] = False
    return_prompt_text: Annotated[
        bool, Meta(description="Tell prompt_text, which is what the chat template has written.")
    ] = False
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

    unsupported: ClassVar[Unsupported] = UNSUPPORTED_IN_COMPLETIONS

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

    unsupported: ClassVar[Unsupported] = UNSUPPORTED_IN_TOKENIZE

    model: Annotated[Name | None, Meta(description="The served model where absent.")] = None
    prompt: Annotated[str | None, Meta(description="A text; or give messages.")] = None
    messages: Annotated[
        Annotated[list[Message], Meta(min_length=1)] | None,
        Meta(description="A conversation; or give a prompt."),
    ] = None
    tools: Annotated[
        Tools | None, Meta(description="Functions for the chat template; with messages.")
    ] = None
    add_special_tokens: Annotated[
        bool | None,
        Meta(description="Begin as a raw prompt does; true for a prompt, false for messages."),
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
