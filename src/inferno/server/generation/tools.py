"""Tools of a request: checked, and as the chat template shows them to the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from inferno.errors import InvalidRequest
from inferno.sampling_params import SamplingParams
from inferno.server.openai.request_types import (
    ChatRequest,
    NamedTool,
    TokenizeRequest,
    Tool,
    ToolFunction,
)
from inferno.structured import MAX_GRAMMAR_BYTES, has_grammars
from inferno.text.parsers.calls.shape import CallableTool, shape_of_calls
from inferno.text.parsers.calls.syntax import ToolUse

_NO_PARAMETERS = {"type": "object", "properties": {}}


def template_tools(fields: ChatRequest | TokenizeRequest) -> list[dict[str, Any]] | None:
    """Return the tools that the template is to show, or None where there are none.

    Each has the keys that templates read, all of them, for some fail without, and in the order in
    which models were trained on them. What the client sent besides is not for the model's eyes.
    """
    tools = shown_tools(fields)
    return None if tools is None else [_for_template(tool) for tool in tools]


def shown_tools(fields: ChatRequest | TokenizeRequest) -> list[Tool] | None:
    """Return the tools that the model may call, checked: none where tool_choice is `none`."""
    choice = fields.tool_choice if isinstance(fields, ChatRequest) else None
    if fields.tools is None:
        if choice not in (None, "none"):
            raise InvalidRequest("tool_choice needs tools", param="tool_choice")
        return None
    names: set[str] = set()
    for index, tool in enumerate(fields.tools):
        if tool.function.name in names:
            raise InvalidRequest(
                f"tools[{index}] has the name {tool.function.name!r} of another tool; give each "
                "function a name of its own",
                param="tools",
            )
        names.add(tool.function.name)
        _check_parameters(tool.function, f"tools[{index}].function.parameters")
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise InvalidRequest(
            f"tool_choice names {choice.function.name!r}, which is none of the tools",
            param="tool_choice",
        )
    return None if choice == "none" else fields.tools


def with_calls(
    params: SamplingParams, fields: ChatRequest, tool_use: ToolUse | None
) -> SamplingParams:
    """Return sampling parameters that bind an answer to the calls that it must or may make.

    An answer that needn't call is bound as soon as a call begins; where the library for that isn't
    installed, and nothing asks for it by name, it is free.
    """
    if tool_use is None:
        return params
    if params.structured is not None:
        raise InvalidRequest(
            "a shape of the answer can't be combined with tools yet; leave one of them out, or "
            'give tool_choice "none"',
            param="response_format" if fields.structured_outputs is None else "structured_outputs",
        )
    tools, choice = shown_tools(fields) or [], fields.tool_choice
    must_call = choice not in (None, "auto")
    if not must_call and not any(tool.function.strict for tool in tools) and not has_grammars():
        return params
    named = choice.function.name if isinstance(choice, NamedTool) else None
    shape = shape_of_calls(
        tool_use.dialect,
        [
            CallableTool(function.name, function.parameters, must_call or bool(function.strict))
            for function in (tool.function for tool in tools)
            if named in (None, function.name)
        ],
        must_call=must_call,
        is_parallel=fields.parallel_tool_calls is not False and named is None,
    )
    return params if shape is None else replace(params, structured=shape)


def _check_parameters(function: ToolFunction, place: str) -> None:
    parameters = function.parameters
    if parameters is None:
        return
    if parameters.get("type", "object") != "object":
        raise InvalidRequest(
            f'{place} must be a JSON Schema of type "object": arguments have names', param="tools"
        )
    if len(msgspec.json.encode(parameters)) > MAX_GRAMMAR_BYTES:
        raise InvalidRequest(
            f"{place} must be a JSON Schema of at most {MAX_GRAMMAR_BYTES:,} bytes", param="tools"
        )


def _for_template(tool: Tool) -> dict[str, Any]:
    function = tool.function
    return {
        "type": tool.type,
        "function": {
            "name": function.name,
            "description": function.description or "",
            "parameters": function.parameters or _NO_PARAMETERS,
        },
    }
