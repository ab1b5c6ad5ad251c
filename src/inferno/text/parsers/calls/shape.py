"""Make the shape of an answer that calls tools: the calls allowed, and their arguments.

A shape is a structural tag, made of the texts that the readers of calls look for: see CallSyntax.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferno.errors import InvalidRequest
from inferno.structured import HOLD_SCHEMAS_BY_NAME, HOLD_VALUES, StructuredOutput
from inferno.text.parsers.calls.in_xml import resolved, types_of
from inferno.text.parsers.calls.syntax import SYNTAXES, CallSyntax, Encoding, ToolDialect
from inferno.text.parsers.harmony_header import Mark

_NO_ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}

_ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object"}
# The schemas of tools that need not be strict, together: objects in them, of which 400 take a
# quarter of a second to compile, and bytes, of which a shape has 256 KiB.
_MOST_OBJECTS, _MOST_BYTES = 400, 128 << 10

_Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool that may be called.

    parameters  the JSON Schema of the arguments; None where the tool takes none.
    is_strict   a schema that can't be kept to refuses the request. If not strict, any object is
                allowed instead, also where the schema would make the whole shape too large.
    """

    name: str
    parameters: Mapping[str, Any] | None
    is_strict: bool


def shape_of_calls(
    dialect: ToolDialect,
    tools: Sequence[CallableTool],
    *,
    must_call: bool,
    is_parallel: bool,
    document: StructuredOutput | None = None,
) -> StructuredOutput | None:
    """Return the shape of answers that call the given tools and no others.

    must_call   the answer is one call or several; else free text may come before a call.
    is_parallel there may be several calls.
    document    the shape of an answer without calls, which then has no free text.

    Returns None where free text can't be told from a call before the call is whole: then nothing
    constrains answers. InvalidRequest where the document's shape can't be told from a call.
    """
    syntax = SYNTAXES[dialect]
    tools = _loosened(tools)
    calls = [_call(syntax, tool) for tool in tools]
    is_single = syntax.is_single or not is_parallel
    if dialect is ToolDialect.HARMONY:
        return _of_channels(calls, must_call=must_call, document=document)
    if must_call:
        return _tag(_run(syntax, calls, is_single=is_single))
    if document is not None:
        said = _document(document)
        if syntax.first_mark is None and said["type"] == "json_schema":
            return _tag(_any_json(said["json_schema"], syntax, tools), document)
        either = [said, _run(syntax, calls, is_single=is_single)]
        return _tag({"type": "or", "elements": either}, document)
    trigger = syntax.first_mark
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


def _of_channels(
    calls: Sequence[_Node], *, must_call: bool, document: StructuredOutput | None
) -> StructuredOutput:
    """Return the shape of what follows the mark of a channel: a call, or the final message."""
    begun = [
        {**call, "begin": call["begin"].removeprefix(Mark.CHANNEL), "end": ""} for call in calls
    ]
    if not must_call:
        said = {"type": "any_text"} if document is None else _document(document)
        final = [_text(f"final{Mark.MESSAGE}"), said]
        begun.append({"type": "sequence", "elements": final})
    return _tag({"type": "or", "elements": begun}, document)


def _document(shape: StructuredOutput) -> _Node:
    """Return an answer of a shape as a part of another; InvalidRequest where it can't be one."""
    if shape.json is not None:
        return {"type": "json_schema", "json_schema": json.loads(str(shape.json))}
    if shape.json_object:
        return {"type": "json_schema", "json_schema": {"type": "object"}}
    if shape.regex is not None:
        return {"type": "regex", "pattern": shape.regex}
    if shape.choice:
        return {"type": "regex", "pattern": "|".join(map(re.escape, shape.choice))}
    given = "grammar" if shape.grammar is not None else "structural_tag"
    raise InvalidRequest(
        "the shape of an answer must be json, json_object, regex or choice where there are tools, "
        f'not {given}: leave one of them out, or give tool_choice "none" or "required"',
        param="structured",
    )


def _call(syntax: CallSyntax, tool: CallableTool) -> _Node:
    schema = _schema_of(tool)
    content: _Node = {"type": "json_schema", "json_schema": schema, "is_strict": tool.is_strict}
    if syntax.encoding is Encoding.PARAMETERS:
        assert syntax.parameter is not None, "parameters are written somehow"
        schema = resolved(schema)
        properties = schema.get("properties")
        names = list(properties) if isinstance(properties, Mapping) else []
        content |= {
            "type": "parameters",
            "json_schema": schema,
            "before_name": syntax.parameter.before_name,
            "after_name": syntax.parameter.after_name,
            "end": syntax.parameter.end,
            "raw": [name for name in names if types_of(schema, name) == {"string"}],
        }
    return {"type": "tag", "begin": syntax.begin(tool.name), "content": content, "end": syntax.end}


def _loosened(tools: Sequence[CallableTool]) -> Sequence[CallableTool]:
    """Return the tools, the last of which ask for any object where all ask for too much."""
    num_objects = num_bytes = 0
    found = []
    for tool in tools:
        if not tool.is_strict and tool.parameters is not None:
            objects, size = _count(tool.parameters), len(json.dumps(tool.parameters))
            if num_objects + objects > _MOST_OBJECTS or num_bytes + size > _MOST_BYTES:
                found.append(replace(tool, parameters=_ANY_ARGUMENTS))
                continue
            num_objects, num_bytes = num_objects + objects, num_bytes + size
        found.append(tool)
    return found


def _count(schema: object) -> int:
    """Return how many objects a schema has, itself among them."""
    parts = schema if isinstance(schema, list | tuple) else ()
    if isinstance(schema, Mapping):
        parts = list(schema.values())
    return isinstance(schema, Mapping) + sum(map(_count, parts))


def _schema_of(tool: CallableTool) -> Mapping[str, Any]:
    # Arguments have names, whether the schema says so or not.
    return _NO_ARGUMENTS if tool.parameters is None else {**tool.parameters, "type": "object"}


def _text(text: str) -> _Node:
    return {"type": "const_string", "value": text}


def _any_json(
    schema: Mapping[str, Any], syntax: CallSyntax, tools: Sequence[CallableTool]
) -> _Node:
    """Return JSON that is a document or one call, where calls are JSON that no mark begins.

    As one schema: of two grammars whose texts begin alike, llguidance may follow only one.
    """
    branches: list[Mapping[str, Any]] = [_moved(schema, "#/anyOf/0")]
    for tool in tools:
        arguments = _schema_of(tool) if tool.is_strict else {"type": "object"}
        call = json.loads(syntax.begin(tool.name) + "{}" + syntax.end)
        place = f"#/anyOf/{len(branches)}/properties/"
        properties = {
            key: _moved(arguments, place + key) if value == {} else {"const": value}
            for key, value in call.items()
        }
        branches.append(
            {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }
        )
    return {"type": "json_schema", "json_schema": {"anyOf": branches}}


def _moved(schema: Any, place: str) -> Any:
    """Return a schema as it is written at this place of another: its references find themselves."""
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {}
    for key, value in schema.items():
        is_reference = key == "$ref" and isinstance(value, str) and re.match("#(/|$)", value)
        if is_reference:
            moved[key] = place + value.removeprefix("#")
        elif key in HOLD_SCHEMAS_BY_NAME and isinstance(value, Mapping):
            moved[key] = {name: _moved(each, place) for name, each in value.items()}
        else:
            moved[key] = value if key in HOLD_VALUES else _moved(value, place)
    return moved


def _tag(node: _Node, document: StructuredOutput | None = None) -> StructuredOutput:
    """Return the whole shape; JSON in it is written as in the document, where there is one."""
    shape = StructuredOutput(structural_tag={"type": "structural_tag", "format": node})
    if document is None:
        return shape
    return replace(
        shape,
        disable_any_whitespace=document.disable_any_whitespace,
        disable_additional_properties=document.disable_additional_properties,
        whitespace_pattern=document.whitespace_pattern,
    )
