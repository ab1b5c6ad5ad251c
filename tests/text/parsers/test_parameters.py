"""Arguments that are written one by one: bound to their schemas, and read as what they are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from inferno.engine.sampling.grammar_child import grammar_source
from inferno.errors import InvalidRequest
from inferno.text.parsers.answer import join_pieces
from inferno.text.parsers.calls.shape import CallableTool, shape_of_calls
from inferno.text.parsers.calls.syntax import ToolDialect
from tests.grammar.acceptor import Acceptor
from tests.text.parsers.calling import parsed, tokenizer_of

XML = ToolDialect.QWEN_XML
DEFINITIONS = {"color": {"type": "string", "enum": ["red", "blue"]}, "size": {"type": "integer"}}


def object_of(**properties: Any) -> dict[str, Any]:
    required = list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": DEFINITIONS,
        "additionalProperties": False,
    }


def acceptor(schema: dict[str, Any], *, is_strict: bool) -> Acceptor:
    tools = [CallableTool("f", schema, is_strict)]
    shape = shape_of_calls(XML, tools, must_call=True, is_parallel=False)
    assert shape is not None
    grammar = grammar_source(shape).grammar
    assert grammar is not None
    return Acceptor(grammar)


def call(**values: str) -> str:
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"


def arguments_in(text: str, schema: dict[str, Any]) -> Any:
    """What the one call in a text says, in which its marks are letters."""
    ids = tokenizer_of("hf/Qwen3-0.6B").encode(text, add_special_tokens=False)
    tools = [{"name": "f", "parameters": schema}]
    [found] = join_pieces(parsed("hf/Qwen3-0.6B", XML, [ids], tools=tools)).tool_calls
    return json.loads(found.arguments)


@pytest.mark.parametrize(
    ("own", "written", "value"),
    [
        ({"type": "string"}, 'say "hi"', 'say "hi"'),
        ({"type": "string"}, "a\n\n<b>", "a\n\n<b>"),
        ({"type": ["string", "null"]}, '"red"', "red"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, '"5"', "5"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/color"}, "red", "red"),
        ({"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}]}, '"red"', "red"),
        ({"$ref": "#/$defs/size"}, "5", 5),
        ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29"),
        (
            {"type": "object", "properties": {"m": {"$ref": "#"}}},
            '{"m": {"x": {}}}',
            {"m": {"x": {}}},
        ),
        ({"type": "array", "items": {"$ref": "#/$defs/color"}}, '["red"]', ["red"]),
        ({}, '"a"', "a"),
    ],
)
def test_what_a_schema_allows_is_read_as_it_was_bound(own: Any, written: str, value: Any) -> None:
    schema = object_of(x=own)
    text = call(x=written)
    assert acceptor(schema, is_strict=True).accepts(text)
    assert acceptor(schema, is_strict=False).accepts(text)
    assert arguments_in(text, schema) == {"x": value}


@pytest.mark.parametrize(
    ("own", "written"),
    [
        ({"$ref": "#/$defs/color"}, "green"),
        ({"$ref": "#/$defs/color"}, '"red"'),
        ({"type": "string", "enum": ["a", "b"], "pattern": "^a"}, "b"),
        ({"type": "string", "not": {"const": "a"}}, "a"),
        ({"type": "string", "format": "date"}, "2024-02-30"),
        ({"type": "string", "maxLength": 3}, "four"),
        ({"anyOf": [{"type": "string", "maxLength": 2}, {"const": "xyz"}]}, "abc"),
        ({"type": "object", "properties": {"m": {"$ref": "#"}}}, '{"m": {}}'),
        ({"type": "string"}, "a</parameter>b"),
    ],
)
def test_a_value_keeps_to_all_of_its_schema(own: Any, written: str) -> None:
    assert not acceptor(object_of(x=own), is_strict=True).accepts(call(x=written))


ITEMS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (object_of(x=ITEMS), "#/properties/x/uniqueItems can't be kept to"),
        (object_of(x={"type": "string", "pattern": "(?<=a)b"}), "#/properties/x/pattern"),
        (object_of(x={"type": "string", "minLength": "a"}), "#/properties/x/minLength"),
        (object_of(x="text"), "#/properties/x"),
        ({**object_of(), "anyOf": [{"required": ["x"]}]}, "#/anyOf can't be kept to"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "#/$ref can't be kept to"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "#/$ref can't be kept to"),
        ({"$ref": "#/$defs/absent", "$defs": {}}, "#/$ref can't be kept to"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": object_of()}, "properties": {"x": {}}},
            "#/$ref can't be kept to",
        ),
        ({**object_of(), "minProperties": 1}, "#/minProperties can't be kept to"),
        ({**object_of(), "requierd": ["x"]}, "#/requierd is no keyword"),
        ({**object_of(), "required": ["x"]}, "nothing can satisfy the schema"),
        ({**object_of(), "required": True}, "#/required is true"),
        ({**object_of(), "properties": []}, "#/properties is []"),
    ],
)
def test_what_can_not_be_kept_to_is_refused_where_it_is_strict_alone(
    schema: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        acceptor(schema, is_strict=True)
    acceptor(schema, is_strict=False)


# As Pydantic writes a type that contains itself, with a reference in between.
NODE = object_of(name={"type": "string"}, next={"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})
RECURSIVE = {
    "$defs": {"node": {"$ref": "#/$defs/n"}, "n": {**NODE, "title": "Node"}},
    "$ref": "#/$defs/node",
    "description": "A list.",
}


@pytest.mark.parametrize("schema", [RECURSIVE, {**RECURSIVE, "type": "object"}])
@pytest.mark.parametrize("is_strict", [False, True])
def test_a_reference_to_all_arguments_is_followed(schema: dict[str, Any], is_strict: bool) -> None:
    answers = acceptor(schema, is_strict=is_strict)
    good = call(name='say "hi"', next='{"name": "b", "next": null}')
    assert answers.accepts(good)
    assert arguments_in(good, schema) == {
        "name": 'say "hi"',
        "next": {"name": "b", "next": None},
    }
    assert not answers.accepts(call(name="a"))
    assert not answers.accepts(call(name="a", next='{"name": 5}'))
    assert not answers.accepts(call(name="a", next="null", more="1"))
    assert arguments_in(call(name="5", next="null"), schema)["name"] == "5"


def test_where_a_schema_is_not_kept_to_any_value_may_stand() -> None:
    answers = acceptor(object_of(x=ITEMS), is_strict=False)
    assert answers.accepts(call(x='["a", "b"]'))
    assert answers.accepts(call(x="5"))
    assert not answers.accepts(call(x="a"))


def test_required_arguments_are_there_whether_listed_or_not() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "required": ["b", "a"]}
    answers = acceptor(schema, is_strict=True)
    assert answers.accepts(call(a="1", b='"x"'))
    assert not answers.accepts(call(a="1"))
    assert not answers.accepts(call(b='"x"'))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object"}, [{}, {"a": "1", "b-2": "x y"}], [{"a b": "1"}]),
        ({"additionalProperties": {"type": "integer"}}, [{}, {"a": "1", "b": "2"}], [{"a": "x"}]),
        ({"properties": {}}, [{}], [{"a": "1"}]),
        ({"additionalProperties": False}, [{}], [{"a": "1"}]),
    ],
)
@pytest.mark.parametrize("is_strict", [False, True])
def test_without_properties_there_may_be_any_arguments(
    schema: dict[str, Any], good: list[dict[str, str]], bad: list[dict[str, str]], is_strict: bool
) -> None:
    answers = acceptor(schema, is_strict=is_strict)
    assert [each for each in good if not answers.accepts(call(**each))] == []
    assert [each for each in bad if answers.accepts(call(**each))] == []


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_loose_grammar_has_any_arguments_where_they_need_not_be_so(is_strict: bool) -> None:
    tools = [CallableTool("f", object_of(x={"type": "integer"}), is_strict)]
    shape = shape_of_calls(XML, tools, must_call=True, is_parallel=False)
    assert shape is not None
    grammar = grammar_source(shape, is_loose=True).grammar
    assert grammar is not None
    answers = Acceptor(grammar)
    assert answers.accepts(call(x="5"))
    assert answers.accepts(call(x="a", y="b")) is not is_strict
    assert answers.accepts(call()) is not is_strict
