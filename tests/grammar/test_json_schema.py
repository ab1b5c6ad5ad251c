"""JSON Schemas as grammars, compared with jsonschema in both directions."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from inferno.grammar.json_schema import UnsupportedSchema, compile_schema
from inferno.grammar.lark import to_lark
from inferno.grammar.regex import char_set, repeat
from tests.grammar.acceptor import Acceptor, Sampler
from tests.grammar.schemas import BOOLEAN, INTEGER, NULL, SCHEMAS, STRING, closed

# What jsonschema has no exact idea of without further packages.
_WITHOUT_FORMATS = [
    name for name, schema in SCHEMAS.items() if '"format"' not in json.dumps(schema)
]


def validator(schema: Any) -> Any:
    """A validator that reads numbers exactly."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    kind = jsonschema.validators.validator_for(exact, jsonschema.Draft202012Validator)
    return kind(exact, format_checker=jsonschema.FormatChecker())


def parse(text: str) -> Any:
    """Parse JSON exactly; a name may not come twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), f"a name comes twice: {text}"
        return dict(pairs)

    return json.loads(text, parse_float=Decimal, object_pairs_hook=unique)


def dump(value: Any) -> str:
    """Write JSON without spaces, numbers as they are."""
    if isinstance(value, Decimal):
        return f"{value:f}" if abs(value.adjusted()) < 12 else str(value)
    if isinstance(value, list):
        return f"[{','.join(map(dump, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{dump(name)}:{dump(held)}' for name, held in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def accepts(schema: Any, *texts: str, **options: Any) -> list[bool]:
    acceptor = Acceptor(compile_schema(schema, **options))
    return [acceptor.accepts(text) for text in texts]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_text_of_the_grammar_is_valid(name: str) -> None:
    schema = SCHEMAS[name]
    grammar = compile_schema(schema)
    sampler, checked, acceptor = Sampler(grammar, seed=1), validator(schema), Acceptor(grammar)
    for _ in range(2 if "two hundred" in name else 8):
        text = sampler.text()
        checked.validate(json.loads(text, parse_float=Decimal))
        assert acceptor.accepts(text)


@pytest.mark.parametrize("name", _WITHOUT_FORMATS)
def test_a_changed_document_is_accepted_if_and_only_if_it_is_valid(name: str) -> None:
    schema = SCHEMAS[name]
    grammar = compile_schema(schema, whitespace=None)
    sampler, checked, acceptor = Sampler(grammar, seed=2), validator(schema), Acceptor(grammar)
    chance = random.Random(3)
    for _ in range(1 if "two hundred" in name else 5):
        document = json.loads(sampler.text(), parse_float=Decimal)
        for changed in list(changes(document, chance))[:60]:
            assert acceptor.accepts(dump(changed)) == checked.is_valid(changed), dump(changed)


def changes(value: Any, chance: random.Random) -> Iterator[Any]:
    """Yield values that differ from a value in one place; names that are new come last."""
    yield value
    yield from chance.sample([None, True, 0, 1, "", "a", [], {}], 3)
    match value:
        case dict():
            names = list(value)
            for name in chance.sample(names, min(len(names), 8)):
                rest = {other: held for other, held in value.items() if other != name}
                yield rest
                yield {**rest, f"{name}_": value[name]}
                for inner in changes(value[name], chance):
                    yield {**value, name: inner}
            yield {**value, "zz": None}
        case list():
            yield [*value, None]
            if value:
                yield value[1:]
                yield [*value, value[-1]]
                place = chance.randrange(len(value))
                for inner in changes(value[place], chance):
                    yield [*value[:place], inner, *value[place + 1 :]]
        case str():
            yield value[:-1]
            yield f"{value}a"
            yield f"{value[:1]}\u00e9\n{value[1:]}"
        case bool():
            yield not value
        case int():
            yield from (-value, value + 1, value * 10, value + 12, Decimal(value) + Decimal("0.5"))
        case Decimal() if len(str(value)) < 12 and "E" not in str(value):
            yield from map(Decimal.normalize, (-value, value + Decimal("0.25"), value / 10))


def test_a_grammar_grows_with_its_schema_and_not_faster() -> None:
    sizes = []
    for num_properties in (100, 200, 400):
        properties = {f"property_{i}": BOOLEAN for i in range(num_properties)}
        grammar = compile_schema({"properties": properties, "type": "object"})
        sizes.append(len(to_lark(grammar)))
    assert sizes[2] < 5 * sizes[0]


# Spellings.


def test_space_stands_where_json_allows_it_and_not_without_end() -> None:
    schema = closed({"a": {"type": "array", "items": INTEGER}, "b": closed({})})
    good = ('{"a":[1,2],"b":{}}', '{\n  "a" : [\n 1 , 2 ],\n\t"b" :{ } }', '{ "a": [], "b": {\n} }')
    bad = (
        '{  "a": [], "b": {}}',
        '{\n\n"a": [], "b": {}}',
        '{"a": [], "b": {}} ',
        ' {"a":[],"b":{}}',
    )
    assert accepts(schema, *good) == [True] * 3
    assert accepts(schema, *bad) == [False] * 4
    assert accepts(schema, *good, whitespace=None) == [True, False, False]
    wide = repeat(char_set(" \n\t"), 0, None)
    assert accepts(schema, *good, *bad, whitespace=wide) == [True] * 5 + [False] * 2


def test_other_texts_than_json_space_cannot_stand_between() -> None:
    with pytest.raises(ValueError, match="spaces, tabs and line ends"):
        compile_schema(INTEGER, whitespace=repeat(char_set(" \n#"), 0, 1))


def test_members_come_in_the_order_of_the_schema_and_once() -> None:
    schema = {"properties": {"a": INTEGER, "b": INTEGER}, "required": ["c", "b"], "type": "object"}
    good = ('{"a":1,"b":2,"c":3,"z":4}', '{"b":2,"c":[]}', '{"b":2,"c":3,"y":null,"x":1}')
    bad = ('{"b":2,"a":1,"c":3}', '{"c":3,"b":2}', '{"b":2,"b":2,"c":1}', '{"b":2,"c":3,"a":1}')
    assert accepts(schema, *good, *bad) == [True] * 3 + [False] * 4


def test_a_listed_name_cannot_come_again_in_other_letters() -> None:
    schema = {"properties": {"a": INTEGER}, "type": "object"}
    assert accepts(schema, '{"a":1,"\\u0061":"x"}', '{"\\u0061":"x"}', '{"b":1}') == [
        False,
        False,
        True,
    ]


def test_any_string_may_have_any_escape_but_half_a_pair() -> None:
    good = ('"\\u00e9\\/\\b"', '"\\ud83d\\ude00"', '"\\uD83D\\uDE00"', '"\U0001f600"')
    bad = ('"\\ud83d"', '"\\ude00\\ud83d"', '"\\u12"', '"\\x"', '"\n"', '"\\ud83d\\u0041"')
    assert accepts(STRING, *good, *bad) == [True] * 4 + [False] * 6


def test_lengths_are_of_code_points_however_they_are_spelled() -> None:
    schema = {"type": "string", "minLength": 2, "maxLength": 2}
    good = ('"ab"', '"\U0001f600\u00e9"', '"\\ud83d\\ude00\\n"', '"\\u0061b"')
    bad = ('"a"', '"\U0001f600"', '"\\ud83d\\ude00"', '"abc"', '""')
    assert accepts(schema, *good, *bad) == [True] * 4 + [False] * 5


def test_a_pattern_is_of_the_text_and_not_of_its_spelling() -> None:
    assert accepts({"type": "string", "pattern": "^.n$"}, '"\\\\n"', '"\\n"', '"an"') == [
        True,
        False,
        True,
    ]
    assert accepts({"const": 'a"\\\n\x01/'}, '"a\\"\\\\\\n\\u0001/"') == [True]
    assert accepts({"type": "string", "not": {"const": "a"}}, '"a"', '"\\u0061"', '"b"') == [
        False,
        False,
        True,
    ]


def test_integers_have_no_fraction_and_bounded_numbers_no_exponent() -> None:
    assert accepts(INTEGER, "0", "-12", "1.0", "1e2", "-0", "007") == [True, True] + [False] * 4
    number = {"type": "number"}
    assert (
        accepts(number, "0.50", "-1.5E-7", "1e289", "1e400", ".5", "1.") == [True] * 3 + [False] * 3
    )
    assert accepts({**number, "minimum": 0.5}, "0.5", "0.50", "7", "0.49", "5e-1") == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_objects_can_be_closed_unless_they_say_otherwise() -> None:
    schema = {
        "properties": {"a": {"type": "object"}, "b": {"properties": {}}, "c": INTEGER},
        "type": "object",
    }
    texts = ('{"a":{"x":1},"c":1}', '{"b":{"x":1}}', '{"x":1}', "{}")
    closed_ones = accepts(schema, *texts, disable_additional_properties=True)
    assert closed_ones == [True, False, False, True]
    assert accepts(
        {**schema, "additionalProperties": True}, '{"x":1}', disable_additional_properties=True
    ) == [True]


def test_an_anchor_is_found_below_a_property_that_is_named_as_a_keyword() -> None:
    for name in ("default", "const", "$anchor"):
        schema = closed({name: {"$anchor": "a", "type": "integer"}, "b": {"$ref": "#a"}})
        assert accepts(schema, f'{{"{name}": 1, "b": 2}}', f'{{"{name}": 1, "b": "c"}}') == [
            True,
            False,
        ]
    noted = {"default": {"$anchor": "a"}, "$defs": {"n": {"$anchor": "a", "type": "null"}}}
    assert accepts({**noted, "$ref": "#a"}, "null", "1") == [True, False]


def test_a_schema_may_be_text_a_mapping_or_a_boolean() -> None:
    assert accepts('{"type": "integer"}', "1") == accepts(INTEGER, "1") == accepts(True, "1")
    with pytest.raises(UnsupportedSchema, match="nothing can satisfy"):
        compile_schema(False)


# Refusals.

REFUSED: list[tuple[Any, str]] = [
    ({"properties": {"a": {"uniqueItems": True}}}, "#/properties/a/uniqueItems"),
    ({"properties": {"a/b~": {"type": "strin"}}}, r'#/properties/a~1b~0/type is "strin"'),
    ({"items": {"format": "uri-template"}}, '#/items/format is "uri-template"'),
    ({"pattern": "(a)\\1"}, "#/pattern: "),
    ({"pattern": 1}, "#/pattern is 1"),
    ({"requierd": ["a"]}, "#/requierd is no keyword; expected required"),
    ({"minlength": 2}, "#/minlength is no keyword; expected minLength"),
    ({"type": "object", "additionalproperties": False}, "#/additionalproperties is no keyword"),
    ({"ref": "#"}, "#/ref is no keyword"),
    ({"nullable": True, "type": "string"}, "#/nullable can't be kept to"),
    ({"$ref": "#"}, "#/\\$ref refers to itself"),
    ({"allOf": [{"$ref": "#"}]}, "# refers to itself"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "itself",
    ),
    ({"$ref": "#/$defs/a"}, '#/\\$ref is "#/\\$defs/a", which isn\'t there'),
    (
        {"$ref": "#a", "$defs": {"b": {"$anchor": "a"}, "c": {"$anchor": "a"}}},
        '#/\\$defs/c/\\$anchor is "a", as another\'s is',
    ),
    ({"$ref": "http://example.com/schema"}, '#/\\$ref is "http://example.com/schema"'),
    ({"items": {"$id": "x", "$ref": "#"}}, "#/items/\\$id names a schema"),
    ({"$schema": "http://example.com/mine"}, "#/\\$schema is"),
    ({"$dynamicRef": "#a"}, "#/\\$dynamicRef"),
    ({"properties": {"a": False}, "required": ["a"], "type": "object"}, "#: nothing can satisfy"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "#: nothing can satisfy"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "#: nothing can satisfy"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "#: nothing can satisfy"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "#: nothing can satisfy"),
    ({"enum": []}, "#: nothing can satisfy"),
    (
        closed({"a": closed({"b": {"type": "string", "pattern": "^a", "const": "b"}})}),
        "#/properties/a: nothing can satisfy",
    ),
    (
        {"$ref": "#/$defs/n", "$defs": {"n": closed({"n": {"$ref": "#/$defs/n"}})}},
        "nothing can satisfy",
    ),
    ({"enum": 1}, "#/enum is 1"),
    ({"minLength": -1}, "#/minLength is -1"),
    ({"minItems": 1.5}, "#/minItems is 1.5"),
    ({"maximum": "1"}, '#/maximum is "1"'),
    ({"multipleOf": 0}, "#/multipleOf is 0"),
    ({"multipleOf": 7.1, "type": "number"}, "#/multipleOf"),
    ({"minimum": 10**500}, "#/minimum is 1"),
    ({"required": "a"}, '#/required is "a"'),
    ({"properties": []}, "#/properties is"),
    ({"properties": {"a": 1}}, "#/properties/a is 1; expected a schema"),
    ({"anyOf": []}, "#/anyOf is"),
    ({"prefixItems": {}}, "#/prefixItems"),
    ({"items": {}, "additionalItems": False}, "#/additionalItems has no meaning"),
    ({"type": "object", "minProperties": 2}, "#/minProperties is 2"),
    ({"not": closed({"a": INTEGER})}, "#/not would need to say that one of the properties"),
    ({"properties": {"a": {"const": "\ud800"}}}, "#/properties/a/const has '\\\\ud800'"),
    ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}]}, "depends on which"),
    ("[]", "# is no JSON Schema"),
    ('{"type": "string", "type": "integer"}', "# is no JSON Schema"),
    ({"maximum": float("nan")}, "# is no JSON Schema"),
]


@pytest.mark.parametrize(("schema", "said"), REFUSED, ids=lambda each: str(each)[:50])
def test_what_cannot_be_kept_to_is_named_with_its_place(schema: Any, said: str) -> None:
    with pytest.raises(UnsupportedSchema, match=said):
        compile_schema(schema)


def test_what_restricts_nothing_is_taken_as_that() -> None:
    notes = {
        "$id": "urn:a",
        "$comment": "",
        "title": "",
        "description": "",
        "default": 1,
        "examples": [1],
        "deprecated": True,
        "readOnly": True,
        "writeOnly": True,
        "contentMediaType": "a/b",
        "x-order": 1,
        "propertyOrdering": ["a"],
        "uniqueItems": False,
    }
    assert accepts({**notes, "type": "null"}, "null", "1") == [True, False]


# Unions whose branches share no value, or whose overlap can be taken away.


def test_values_that_look_alike_are_told_apart_whatever_was_read_before() -> None:
    alike = [1, True, "1", "true", 1.5, None]
    for keyword in ("const", "enum"):
        for value in alike:
            said: Any = value if keyword == "const" else [value]
            for schema in ({keyword: said}, {"anyOf": [{keyword: said}, {"const": "other"}]}):
                assert accepts(schema, *map(json.dumps, alike)) == [each is value for each in alike]


def test_what_was_read_before_is_refused_with_a_word_that_is_not() -> None:
    sound: dict[str, Any] = {"type": "string", "maxLength": 7}
    for wrong, place in (
        ({**sound, "minlength": 3}, "#/properties/b/minlength"),
        ({"anyOf": [sound, {**sound, "$id": "x"}]}, "#/properties/b/anyOf/1/$id"),
    ):
        for schema in (closed({"a": sound}), closed({"a": {"anyOf": [sound, sound]}})):
            compile_schema(schema)
        with pytest.raises(UnsupportedSchema, match=re.escape(place)):
            compile_schema(closed({"a": sound, "b": wrong}))


def test_then_and_else_say_nothing_without_if() -> None:
    for said in (5, {"properties": {"a": True}}):
        for keyword in ("then", "else"):
            schema = {"type": "object", "unevaluatedProperties": False, keyword: said}
            assert accepts(schema, "{}", '{"a":1}') == [True, False]


def test_one_of_is_exact_where_branches_overlap() -> None:
    schema = {"oneOf": [{"type": "integer", "maximum": 5}, {"type": "number", "minimum": 3}]}
    assert accepts(schema, "2", "3", "5", "5.5", "6", "4.5") == [
        True,
        False,
        False,
        True,
        True,
        True,
    ]
    open_ones = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}
    assert accepts(open_ones, '{"a":1}', '{"b":1}', '{"a":1,"b":1}', "{}") == [
        True,
        True,
        False,
        False,
    ]


def test_arrays_have_as_many_items_as_they_may() -> None:
    schema = {"type": "array", "prefixItems": [INTEGER, STRING, NULL], "minItems": 1, "maxItems": 4}
    texts = ("[]", "[1]", '[1,"a"]', '[1,"a",null]', '[1,"a",null,2]', '[1,"a",null,2,3]')
    assert accepts(schema, *texts) == [False, True, True, True, True, False]
    bounded = {"type": "array", "items": INTEGER, "maxItems": 1}
    others = {"type": "array", "not": bounded, "items": INTEGER}
    assert accepts(others, "[]", "[1]", "[1,2]", "[1,2,3]") == [False, False, True, True]


def test_one_of_a_hundred_tagged_objects_is_one_of_them() -> None:
    kinds = [closed({"kind": {"const": f"k{i}"}, "v": INTEGER}) for i in range(100)]
    assert accepts({"oneOf": kinds}, '{"kind":"k99","v":1}', '{"kind":"k100","v":1}') == [
        True,
        False,
    ]


# Schemas that nobody means well with.


def nested(keyword: str, depth: int) -> Any:
    schema: Any = NULL
    for _ in range(depth):
        schema = {keyword: [schema, STRING]}
    return schema


def in_properties(depth: int) -> Any:
    schema: Any = NULL
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


HOSTILE: dict[str, Any] = {
    "deep": in_properties(250),
    "deeper": in_properties(3000),
    "deep anyOf": nested("anyOf", 200),
    "deep allOf": nested("allOf", 200),
    "deep oneOf": nested("oneOf", 55),
    "references one after the other": {
        "$ref": "#/$defs/0",
        "$defs": {**{str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(6000)}, "6000": NULL},
    },
    "references one in the other": {
        "$ref": "#/$defs/0",
        "$defs": {
            **{str(i): {"items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(2000)},
            "2000": NULL,
        },
    },
    "references to itself": {"properties": {f"p{i}": {"$ref": "#"} for i in range(2000)}},
    "products of alternatives": {
        "allOf": [
            {"anyOf": [{"required": [f"{i} {j}"], "type": "object"} for i in range(9)]}
            for j in range(9)
        ]
    },
    "products of patterns": {
        "allOf": [{"anyOf": [{"pattern": f"a{i}.*b{j}"} for i in range(20)]} for j in range(20)]
    },
    "doubled at each step": {
        "$ref": "#/$defs/0",
        "$defs": {
            **{
                str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2 + [{"minItems": i}]}
                for i in range(40)
            },
            "40": {"type": "array"},
        },
    },
    "a long list of words": {"enum": [f"word {i}" for i in range(8000)]},
    "a long list of numbers": {"enum": list(range(20_000))},
    "a long list of objects": {"enum": [{"a": i} for i in range(2000)]},
    "many items": {"type": "array", "items": NULL, "minItems": 10**9, "maxItems": 10**10},
    "some items": {"type": "array", "items": NULL, "maxItems": 10**9},
    "long texts": {"type": "string", "minLength": 10**5, "maxLength": 10**9},
    "many members": {"type": "object", "maxProperties": 10**9, "minProperties": 1},
    "many patterns": {"patternProperties": {f"a{i}": NULL for i in range(30)}},
    "many conditions": {"dependentRequired": {f"a{i}": [f"b{i}"] for i in range(30)}},
    "a pattern of many states": {"pattern": "(a|b)*a(a|b){200}", "maxLength": 5000},
    "a small divisor": {"multipleOf": 1e-300},
    "a large divisor": {"multipleOf": 10**300},
    "a wide range": {"minimum": 1e-300, "maximum": 1e300, "type": "number"},
    "counted items": {"contains": NULL, "minContains": 100, "minItems": 10**6},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_in_a_grammar_or_a_refusal(name: str) -> None:
    grammar = None
    said = "#"
    try:
        grammar = compile_schema(HOSTILE[name])
    except UnsupportedSchema as problem:
        said = str(problem)
    assert said.startswith("#")
    assert len(said) < 2000
    if grammar is not None:
        assert len(to_lark(grammar)) < 4_000_000
        Acceptor(grammar)
