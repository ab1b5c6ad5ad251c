"""Read and check the tools of a request, show them to a model, and constrain answers to them."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferno.errors import InvalidRequest
from inferno.sampling_params import SamplingParams
from inferno.structured import MAX_GRAMMAR_BYTES, has_grammars
from inferno.text.parsers.calls.shape import CallableTool, shape_of_calls
from inferno.text.parsers.calls.syntax import ToolDialect, ToolUse

MAX_TOOLS = 128
MAX_TOOL_DESCRIPTION = 1 << 15  # characters
TOOL_NAME = r"^[A-Za-z0-9_-]{1,64}$(?!\n)"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_NO_PARAMETERS = {"type": "object", "properties": {}}
_TOOL = '{"type": "function", "function": {"name": ..., "parameters": ...}}'


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that a model may call.

    parameters  the JSON Schema of the object of arguments; None where the function takes none.
    is_strict   the arguments of a call keep to the schema.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request, and whether an answer may or must call them.

    choice      `auto`: the model calls as it likes. `none`: the model isn't shown the functions.
                `required`: an answer is at least one call.
    named       the one function that an answer calls; then `choice` is `required`.
    is_parallel an answer may have several calls.

    Raises InvalidRequest where functions have one name, or a schema isn't one of arguments.
    """

    functions: Sequence[ToolFunction]
    choice: str = "auto"
    named: str | None = None
    is_parallel: bool = True

    def __post_init__(self) -> None:
        names: set[str] = set()
        for index, function in enumerate(self.functions):
            if function.name in names:
                raise InvalidRequest(
                    f"tools[{index}] has the name {function.name!r} of another tool; give each "
                    "function a name of its own",
                    param="tools",
                )
            names.add(function.name)
            _check_parameters(function, f"tools[{index}].function.parameters")
        if self.named is not None and self.named not in names:
            raise InvalidRequest(
                f"tool_choice names {self.named!r:.80}, which is none of the tools",
                param="tool_choice",
            )

    @property
    def are_shown(self) -> bool:
        """Return whether the model is shown the functions."""
        return self.choice != "none"

    def for_template(self) -> list[dict[str, Any]] | None:
        """Return the functions for a chat template to show, or None where none is to be shown.

        Each function has all keys that templates read, for some templates fail without, in the
        order on which models were trained.
        """
        return list(map(_for_template, self.functions)) if self.are_shown else None

    def bind(
        self, params: SamplingParams, tool_use: ToolUse, *, is_continuation: bool = False
    ) -> tuple[SamplingParams, ToolUse]:
        """Return sampling parameters that constrain an answer to the calls it must or may make.

        An answer that needn't call has the shape that the parameters ask for; without one, it is
        constrained as soon as a call begins. Where the library for that isn't installed, and
        nothing asks for a shape by name, the answer is free.

        tool_use    how the model calls; the returned one says how to read the answer.
        is_continuation     the answer continues a message. In Harmony such a message holds no call,
                    for each call is a message, so an answer that needn't call is free.
        """
        must_call = self.choice == "required"
        document = None if must_call else params.structured
        is_asked = document is not None or any(each.is_strict for each in self.functions)
        is_within_message = is_continuation and tool_use.dialect is ToolDialect.HARMONY
        if is_within_message and not must_call:
            return params, replace(tool_use, has_document=document is not None)
        if not must_call and not is_asked and not has_grammars():
            return params, tool_use
        shape = shape_of_calls(
            tool_use.dialect,
            [
                CallableTool(each.name, each.parameters, must_call or each.is_strict)
                for each in self.functions
                if self.named in (None, each.name)
            ],
            must_call=must_call,
            is_parallel=self.is_parallel and self.named is None,
            document=document,
        )
        if shape is not None:
            params = replace(params, structured=shape)
        return params, replace(tool_use, has_document=document is not None)


def read_tools(
    tools: object, choice: object = None, *, is_parallel: bool | None = True
) -> Tools | None:
    """Return the tools that a request gives in JSON, as OpenAI's API takes them; None without.

    tools   a list of `{"type": "function", "function": {...}}`, or of the inner objects alone. An
            empty one is none: some programs without tools send it, and `auto` with it.
    choice  `none`, `auto`, `required`, `{"type": "function", "function": {"name": ...}}`, or None.

    Raises InvalidRequest, which names the value at fault.
    """
    if tools is None or (isinstance(tools, list | tuple) and not tools):
        if choice not in (None, "none") and (tools is None or choice != "auto"):
            raise InvalidRequest("tool_choice needs tools", param="tool_choice")
        return None
    if not isinstance(tools, list | tuple) or len(tools) > MAX_TOOLS:
        raise _refuse("tools", tools, f"a list of 1 to {MAX_TOOLS} tools such as {_TOOL}")
    if not isinstance(is_parallel, bool | None):
        raise _refuse("parallel_tool_calls", is_parallel, "true or false")
    functions = [_function(each, f"tools[{index}]") for index, each in enumerate(tools)]
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return Tools(functions, "required", name)
        case None | "none" | "auto" | "required":
            return Tools(functions, str(choice or "auto"), is_parallel=is_parallel is not False)
    expected = 'none, auto, required or {"type": "function", "function": {"name": ...}}'
    raise _refuse("tool_choice", choice, expected)


def _function(tool: object, where: str) -> ToolFunction:
    if isinstance(tool, Mapping) and "function" in tool:
        if tool.get("type", "function") != "function":
            raise _refuse(f"{where}.type", tool["type"], '"function"')
        tool, where = tool["function"], f"{where}.function"
    if not isinstance(tool, Mapping) or "name" not in tool:
        raise _refuse(where, tool, f"an object with a name, as in {_TOOL}")
    name, description = tool["name"], tool.get("description")
    parameters, is_strict = tool.get("parameters"), tool.get("strict")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise _refuse(f"{where}.name", name, "1 to 64 letters, digits, _ and -")
    if not isinstance(description, str | None) or len(description or "") > MAX_TOOL_DESCRIPTION:
        expected = f"a text of at most {MAX_TOOL_DESCRIPTION:,} characters"
        raise _refuse(f"{where}.description", description, expected)
    if not isinstance(parameters, Mapping | None):
        raise _refuse(f"{where}.parameters", parameters, "a JSON Schema of an object")
    if not isinstance(is_strict, bool | None):
        raise _refuse(f"{where}.strict", is_strict, "true or false")
    return ToolFunction(name, description or "", parameters, bool(is_strict))


def _check_parameters(function: ToolFunction, place: str) -> None:
    parameters = function.parameters
    if parameters is None:
        return
    if parameters.get("type", "object") != "object":
        raise InvalidRequest(
            f'{place} must be a JSON Schema of type "object": arguments have names', param="tools"
        )
    try:
        text = json.dumps(parameters, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidRequest(
            f"{place} must be a JSON Schema, not what JSON can't say ({problem})", param="tools"
        ) from None
    if len(text.encode(errors="replace")) > MAX_GRAMMAR_BYTES:
        raise InvalidRequest(
            f"{place} must be a JSON Schema of at most {MAX_GRAMMAR_BYTES:,} bytes", param="tools"
        )


def _for_template(function: ToolFunction) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": function.name,
            "description": function.description,
            "parameters": function.parameters or _NO_PARAMETERS,
        },
    }


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    param = re.split(r"[.\[]", name)[0]
    return InvalidRequest(f"{name} must be {expected}, not {reprlib.repr(value)}", param=param)
