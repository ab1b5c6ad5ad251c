"""The shape of an answer that calls tools: which calls there may be, and what their arguments are.

It is a structural tag made of the same texts as the readers of calls read: see CallSyntax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno.structured import StructuredOutput
from inferno.text.parsers.calls.syntax import SYNTAXES, CallSyntax, Encoding, ToolDialect
from inferno.text.parsers.harmony_header import Mark

_NO_ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}

_Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool that may be called.

    parameters  the JSON Schema of its arguments; None where it takes none.
    is_strict   a schema that can't be kept to refuses the request; else it asks for any object.
    """

    name: str
    parameters: Mapping[str, Any] | None
    is_strict: bool


def shape_of_calls(
    dialect: ToolDialect, tools: Sequence[CallableTool], *, must_call: bool, is_parallel: bool
) -> StructuredOutput | None:
    """Return the shape of answers that call these tools and no others.

    must_call   the answer is a call, or several; else it is free text until a call begins.
    is_parallel there may be several calls.

    None where free text can't be told from a call before it is whole: then nothing binds it.
    """
    syntax = SYNTAXES[dialect]
    calls = [_call(syntax, tool) for tool in tools]
    is_single = syntax.is_single or not is_parallel
    if dialect is ToolDialect.HARMONY:
        return _of_channels(calls, must_call=must_call)
    if must_call:
        return _tag(_run(syntax, calls, is_single=is_single))
    trigger = next((mark for mark in syntax.marks if _first_text(syntax).startswith(mark)), None)
    if trigger is None:
        return None
    if syntax.opens:
        content = _run(syntax, calls, is_single=is_single, is_open=True)
        calls = [{"type": "tag", "begin": syntax.opens, "content": content, "end": syntax.closes}]
        is_single = True
    return _tag(
        {
            "type": "triggered_tags",
            "triggers": [trigger],
            "tags": calls,
            "stop_after_first": is_single,
        }
    )


def _run(
    syntax: CallSyntax, calls: Sequence[_Node], *, is_single: bool, is_open: bool = False
) -> _Node:
    """Return one call, or several with separators; is_open: without the texts around all."""
    several = {
        "type": "tags_with_separator",
        "tags": list(calls),
        "separator": syntax.separator,
        "at_least_one": True,
        "stop_after_first": is_single,
    }
    if is_open:
        return several
    around = [_text(syntax.opens), several, _text(syntax.closes)]
    return {"type": "sequence", "elements": [each for each in around if each.get("value") != ""]}


def _of_channels(calls: Sequence[_Node], *, must_call: bool) -> StructuredOutput:
    """Return the shape of what follows the mark of a channel: a call, or the final message."""
    begun = [
        {**call, "begin": call["begin"].removeprefix(Mark.CHANNEL), "end": ""} for call in calls
    ]
    if not must_call:
        final = [_text(f"final{Mark.MESSAGE}"), {"type": "any_text"}]
        begun.append({"type": "sequence", "elements": final})
    return _tag({"type": "or", "elements": begun})


def _call(syntax: CallSyntax, tool: CallableTool) -> _Node:
    schema = _NO_ARGUMENTS if tool.parameters is None else tool.parameters
    content: _Node = {"type": "json_schema", "json_schema": schema, "is_strict": tool.is_strict}
    if syntax.encoding is Encoding.PARAMETERS:
        assert syntax.parameter is not None, "parameters are written somehow"
        content |= {
            "type": "parameters",
            "before_name": syntax.parameter.before_name,
            "after_name": syntax.parameter.after_name,
            "end": syntax.parameter.end,
        }
    return {"type": "tag", "begin": syntax.begin(tool.name), "content": content, "end": syntax.end}


def _first_text(syntax: CallSyntax) -> str:
    return syntax.opens or syntax.before_name


def _text(text: str) -> _Node:
    return {"type": "const_string", "value": text}


def _tag(node: _Node) -> StructuredOutput:
    return StructuredOutput(structural_tag={"type": "structural_tag", "format": node})
