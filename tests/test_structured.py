"""What may be asked of an answer's shape."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferno import InfernoError, SamplingParams, StructuredOutput
from inferno.structured import MAX_GRAMMAR_BYTES, MAX_TEXTS


def test_a_schema_is_kept_as_text_with_its_keys_in_order() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    assert StructuredOutput(json=schema).json == ('{"type":"object","properties":{"b":{},"a":{}}}')


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "exactly one of"),
        ({"regex": "a", "choice": ["b"]}, "regex, choice"),
        ({"json": "{"}, "not valid JSON"),
        ({"json": '{"a":1,"a":2}'}, "twice"),
        ({"json": "[]"}, "not an object"),
        ({"json": {"a": float("nan")}}, "what JSON can't say"),
        ({"json": {"a": object()}}, "what JSON can't say"),
        ({"json": 3}, "a text as json"),
        ({"regex": ""}, "an empty one"),
        ({"regex": "a" * (MAX_GRAMMAR_BYTES + 1)}, "at most"),
        ({"choice": "yes"}, "a list of texts"),
        ({"choice": ["yes", ""]}, "none of them empty"),
        ({"choice": ["a"] * (MAX_TEXTS + 1)}, f"up to {MAX_TEXTS} texts"),
        ({"json_object": "yes"}, "json_object"),
        ({"regex": "a", "disable_any_whitespace": True}, "beside a shape of JSON alone"),
        ({"json_object": True, "disable_any_whitespace": 1}, "disable_any_whitespace"),
    ],
)
def test_what_is_no_shape_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InfernoError, match=said):
        StructuredOutput(**given)


def test_parameters_take_a_shape_and_nothing_else() -> None:
    shape = StructuredOutput(choice=("yes", "no"))
    assert SamplingParams(structured=shape).structured is shape
    with pytest.raises(InfernoError, match="structured must be a StructuredOutput"):
        SamplingParams(structured={"json_object": True})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shape",
    [
        StructuredOutput(json={"type": "object"}),
        StructuredOutput(json_object=True, disable_any_whitespace=True),
        StructuredOutput(choice=["yes", "no"]),
        StructuredOutput(grammar="start: /a/"),
    ],
)
def test_a_shape_reaches_an_engine_in_another_process_as_it_is(shape: StructuredOutput) -> None:
    packed = msgspec.msgpack.encode(shape)
    assert msgspec.msgpack.decode(packed, type=StructuredOutput) == shape
