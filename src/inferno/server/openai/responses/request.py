"""Define the fields of a request for a response, and make a chat's fields of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from inferno.errors import InvalidRequest
from inferno.server.openai.request_types import (
    ChatRequest,
    JsonSchemaFormat,
    Logprobs,
    Name,
    NamedFunction,
    NamedTool,
    Positive,
    ReasoningEffort,
    ResponseFormat,
    SharedFields,
    Tool,
    ToolFunction,
    ToolName,
    Unsupported,
)
from inferno.server.openai.responses.items import INPUT_SCHEMA, messages_of
from inferno.text.tools import MAX_TOOLS

LOGPROBS = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"
_STATELESS = "Nothing is stored here: send the earlier items as input."

_UNSUPPORTED: Unsupported = {
    "background": (False,),
    "context_management": (),
    "conversation": (),
    "max_tool_calls": (),
    "moderation": (),
    "previous_response_id": (),
    "prompt": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "truncation": ("disabled",),
    "watermarking": (False,),
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
    "mm_payload": (),
    "return_mm_kwargs": (False,),
    "enable_response_messages": (False,),
    "previous_input_messages": (),
    "kv_transfer_params": (),
    "ec_transfer_params": (),
    "vllm_xargs": (),
}


class ResponseStreamOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of a response's stream."""

    include_obfuscation: bool | None = False  # has no effect: events are never padded


class TextFormat(Struct, kw_only=True, forbid_unknown_fields=True):
    """The format of an answer; by a JSON Schema, strict or not, it is kept to in full."""

    type: Literal["text", "json_object", "json_schema"]
    name: ToolName | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of an answer's text: its format, and how wordy it is."""

    format: TextFormat | None = None
    verbosity: Name | None = None


class ReasoningOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of reasoning: its effort; there are no summaries of it."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class FunctionTool(Struct, kw_only=True, forbid_unknown_fields=True):
    """A function that the model may call, described in one flat object."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ChosenFunction(Struct, kw_only=True, forbid_unknown_fields=True):
    """The one function that the model is to call."""

    type: Literal["function"]
    name: ToolName


_TOOLS_SCHEMA = {
    "items": {
        "type": "object",
        "properties": {
            "type": {"const": "function"},
            "name": {"type": "string"},
            "description": {"type": "string"},
            "parameters": {"type": "object"},
            "strict": {"type": "boolean"},
        },
        "required": ["type", "name"],
    }
}


class ResponseRequest(SharedFields, kw_only=True):
    """A conversation to answer with a response; nothing of it is stored."""

    unsupported: ClassVar[Unsupported] = _UNSUPPORTED
    advice: ClassVar[Mapping[str, str]] = {
        "background": "Ask with stream: true, and read the answer while it is written.",
        "conversation": _STATELESS,
        "previous_response_id": _STATELESS,
        "prompt": "Send the prompt's text as instructions and input.",
    }

    input: Annotated[
        Any,
        Meta(
            description="A text, or the items of the conversation: messages, function_call, "
            "function_call_output and reasoning.",
            extra_json_schema=INPUT_SCHEMA,
        ),
    ]
    instructions: Annotated[
        str | None, Meta(description="What the system's message says, before the input.")
    ] = None
    max_output_tokens: Annotated[
        Positive | None,
        Meta(
            description="New tokens at most; absent, the model's own max_new_tokens, or else the "
            "rest of the context."
        ),
    ] = None
    include: Annotated[
        list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None,
        Meta(
            description="message.output_text.logprobs tells log-probabilities; "
            "reasoning.encrypted_content is named in x-inferno-ignored."
        ),
    ] = None
    top_logprobs: Annotated[
        Logprobs, Meta(description="Tell the log-probabilities of so many of the likeliest tokens.")
    ] = 0
    text: Annotated[
        TextOptions | None,
        Meta(
            description="format: text, json_object or json_schema; verbosity is named in "
            "x-inferno-ignored, but for medium."
        ),
    ] = None
    tools: Annotated[
        Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS, extra_json_schema=_TOOLS_SCHEMA)]
        | None,
        Meta(description="Functions that the model may call."),
    ] = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | ChosenFunction | None,
        Meta(description="Whether the model calls tools, or the one function that it must call."),
    ] = None
    parallel_tool_calls: Annotated[
        bool, Meta(description="With false, an answer ends where a second call would begin.")
    ] = True
    reasoning: Annotated[
        ReasoningOptions | None,
        Meta(
            description="effort, for the chat template; it is ignored by name where it doesn't "
            "take it, and summary always."
        ),
    ] = None
    include_reasoning: Annotated[bool, Meta(description="Tell the reasoning.")] = True
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Meta(description="The chat template's own options; others are ignored by name."),
    ] = None
    stream_options: Annotated[
        ResponseStreamOptions | None, Meta(description="Hint. Events are never padded.")
    ] = None

    @property
    def effort(self) -> ReasoningEffort | None:
        """Return how much the model is to reason; None where the request doesn't say."""
        return None if self.reasoning is None else self.reasoning.effort


def chat_of(fields: ResponseRequest) -> tuple[ChatRequest, tuple[str, ...]]:
    """Return the chat that a request stands for, and the names of what has no effect.

    Raises InvalidRequest, which names the field of the request at fault.
    """
    messages, ignored = messages_of(fields.input, fields.instructions)
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(fields.tools or ())]
    chat = ChatRequest(
        **{name: getattr(fields, name) for name in SharedFields.__struct_fields__},
        messages=messages,
        max_completion_tokens=fields.max_output_tokens,
        logprobs=bool(fields.top_logprobs) or LOGPROBS in (fields.include or ()),
        top_logprobs=fields.top_logprobs,
        response_format=_format(fields.text),
        verbosity=None if fields.text is None else fields.text.verbosity,
        tools=tools or None,
        tool_choice=_choice(fields.tool_choice, has_tools=bool(tools)),
        parallel_tool_calls=fields.parallel_tool_calls,
        reasoning_effort=fields.effort,
        include_reasoning=fields.include_reasoning,
        chat_template_kwargs=fields.chat_template_kwargs,
    )
    return chat, ignored + _ignored(fields)


def _ignored(fields: ResponseRequest) -> tuple[str, ...]:
    reasoning = fields.reasoning or ReasoningOptions()
    is_ignored = {
        f"include.{_ENCRYPTED}": _ENCRYPTED in (fields.include or ()),
        "reasoning.summary": reasoning.summary is not None,
        "reasoning.generate_summary": reasoning.generate_summary is not None,
    }
    return tuple(name for name, is_so in is_ignored.items() if is_so)


def _tool(given: dict[str, Any], where: str) -> Tool:
    kind = given.get("type")
    if kind != "function":
        shown = f"of type {kind[:40]!r}" if isinstance(kind, str) else "without a type"
        raise InvalidRequest(
            f"{where} is {shown}: only tools of type 'function' are there, which the client runs",
            param="tools",
        )
    try:
        present = {name: value for name, value in given.items() if value is not None}
        tool = msgspec.convert(present, FunctionTool)
        function = msgspec.convert(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": tool.strict,
                "defer_loading": tool.defer_loading,
            },
            ToolFunction,
        )
    except msgspec.ValidationError as problem:
        raise InvalidRequest(f"{where}: {problem}".replace("`", "'"), param="tools") from None
    return Tool(type="function", function=function)


def _choice(
    given: Literal["none", "auto", "required"] | ChosenFunction | None, *, has_tools: bool
) -> Literal["none", "auto", "required"] | NamedTool | None:
    if isinstance(given, ChosenFunction):
        return NamedTool(type="function", function=NamedFunction(name=given.name))
    return None if given == "auto" and not has_tools else given


def _format(text: TextOptions | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    given = text.format
    if given.type != "json_schema":
        of_schemas = {"name": given.name, "schema": given.schema, "strict": given.strict}
        for name, value in of_schemas.items():
            if value is not None:
                raise InvalidRequest(
                    f'text.format of type "{given.type}" takes no {name}', param="text.format"
                )
        return ResponseFormat(type=given.type)
    if given.schema is None or given.name is None:
        raise InvalidRequest(
            'text.format of type "json_schema" needs name and schema', param="text.format"
        )
    return ResponseFormat(
        type="json_schema", json_schema=JsonSchemaFormat(name=given.name, schema=given.schema)
    )
