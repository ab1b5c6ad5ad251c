"""Define the types of a response: its items with their parts, and the events of its stream."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from inferno.server.openai.response_types import ChatLogprob

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(Struct, frozen=True, tag_field="type", tag="output_text"):
    """A text of the answer."""

    text: str
    logprobs: list[ChatLogprob] = []
    annotations: tuple[()] = ()


class ReasoningText(Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """A text of the reasoning."""

    text: str


class OutputMessage(Struct, frozen=True, tag_field="type", tag="message"):
    """A message of the assistant."""

    id: str
    status: Status
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """The reasoning before an answer or a call; there are no summaries of it."""

    id: str
    status: Status
    content: list[ReasoningText]
    summary: tuple[()] = ()


class FunctionCallItem(Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call that the model wants made; `arguments` is JSON, as the model wrote it."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = OutputMessage | ReasoningItem | FunctionCallItem


class InputTokensDetails(Struct, frozen=True):
    """A part of the usage: how many of the input's tokens the prefix cache spared."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    """A part of the usage: how many of the output's tokens were reasoning."""

    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True):
    """Tokens of a response's input and output."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(Struct, frozen=True):
    """The reason why an answer is not whole."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseError(Struct, frozen=True):
    """The error that ended a response; `type` is inferno's own code of it."""

    code: Literal["server_error", "invalid_prompt"]
    message: str
    type: str
    param: str | None


class ResponseText(Struct, frozen=True):
    """The options of the text, as asked for."""

    format: dict[str, Any]
    verbosity: str


class ResponseReasoning(Struct, frozen=True):
    """The options of the reasoning, as asked for."""

    effort: str | None
    summary: None = None


class ResponseObject(Struct, frozen=True, kw_only=True):
    """A response, with the settings that it was made by."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    completed_at: int | None = None
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None = None
    metadata: dict[str, Any]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: None = None
    prompt_cache_key: str | None
    reasoning: ResponseReasoning
    safety_identifier: str | None
    service_tier: Literal["default"] = "default"
    store: bool = False
    temperature: float
    text: ResponseText
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None


class ResponseEvent(Struct, frozen=True, kw_only=True):
    """An event of a streamed response; which keys it has depends on its type."""

    type: str
    sequence_number: int
    response: ResponseObject | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    part: OutputText | ReasoningText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: list[ChatLogprob] | UnsetType = UNSET
