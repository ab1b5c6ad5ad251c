"""Define the types of answers: OpenAI's objects, with the extras that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

FinishReasonName = Literal["stop", "length", "tool_calls", "repetition"]


class Metrics(Struct, frozen=True):
    """Times and rates of one request, in milliseconds from its arrival and tokens per second.

    speculative_decoding    by who proposed: how many tokens were proposed, and how many accepted.
    """

    time_to_first_token_ms: float | None
    generation_time_ms: float | None
    mean_itl_ms: float | None
    tokens_per_second: float | None
    queue_time_ms: float | None
    speculative_decoding: Mapping[str, Mapping[str, int]] | UnsetType = UNSET


class PromptDetails(Struct, frozen=True):
    """A part of the usage: how many of the prompts' tokens the prefix cache spared."""

    cached_tokens: int


class CompletionDetails(Struct, frozen=True):
    """A part of the usage: new tokens that were reasoning; the prediction's that stood or fell."""

    reasoning_tokens: int
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(Struct, frozen=True):
    """Tokens of all prompts and of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class TopLogprob(Struct, frozen=True):
    """A likely token at one place, with its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(Struct, frozen=True):
    """A chosen token with its log-probability, and the likeliest others at its place."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """The log-probabilities of a chat's tokens: of a whole choice, or of one event of a stream."""

    content: list[ChatLogprob]
    refusal: None = None


class PromptLogprob(Struct, frozen=True):
    """A token at one place of the prompt; rank 1 is the likeliest."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class CompletionLogprobs(Struct, frozen=True):
    """The log-probabilities of a completion's tokens: lists of equal length, an entry per token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class FunctionCall(Struct, frozen=True):
    """The function that the model calls, and its arguments as the model wrote them: JSON."""

    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    """A call that the model wants made."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class FunctionDelta(Struct, frozen=True):
    """The new part of a call's arguments; its first part has the function's name."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(Struct, frozen=True):
    """The new part of one call in one event of a stream; its first has the id and the name."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Message(Struct, frozen=True):
    """The assistant's message, which answers a conversation; calls may take the content's place."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True):
    """One of the n answers to a conversation."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: FinishReasonName
    stop_reason: str | int | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct, frozen=True):
    """The answer to a conversation."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class Delta(Struct, frozen=True):
    """The new part of the assistant's message in one event of a stream."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    """The new part of one choice in one event of a chat's stream."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReasonName | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(Struct, frozen=True):
    """An event of the streamed answer to a conversation."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class CompletionChoice(Struct, frozen=True):
    """One text of a completion, or its new part in one event of a stream."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReasonName | None
    stop_reason: str | int | None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Struct, frozen=True):
    """The answer to one prompt or to several, whole or as one event of a stream."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    object: Literal["text_completion"] = "text_completion"
    usage: Usage | UnsetType | None = UNSET
    metrics: Metrics | UnsetType = UNSET


class ModelCard(Struct, frozen=True):
    """A name that `model` may have."""

    id: str
    created: int
    root: str
    max_model_len: int
    object: Literal["model"] = "model"
    owned_by: str = "inferno"
    parent: None = None
    permission: tuple[()] = ()


class ModelList(Struct, frozen=True):
    """All names that `model` may have."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Tokenized(Struct, frozen=True):
    """The token ids of a prompt or of a conversation."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct, frozen=True):
    """The text of token ids."""

    prompt: str


class ErrorDetails(Struct, frozen=True):
    """The details of an error: its message, its kind, and the field at fault if there is one."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct, frozen=True):
    """OpenAI's error object."""

    error: ErrorDetails


class Version(Struct, frozen=True):
    """inferno's version."""

    version: str
