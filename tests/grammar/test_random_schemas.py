"""Random schemas and values: a grammar has exactly the values that jsonschema finds valid."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from inferno.grammar.json_schema import UnsupportedSchema, compile_schema
from tests.grammar.acceptor import Acceptor, Sampler
from tests.grammar.test_official_suite import spellings

_NAMES = ("a", "b", "ab", "c")
_TYPES = (
    *("object", "array", "string", "integer", "number"),
    *(["object", "array"], ["string", "null"], ["integer", "string", "object"]),
)
_SMALL = (True, {"type": "integer"}, {"type": "string"}, False, {"type": ["null", "number"]})


class _Chance(random.Random):
    """Random schemas and values over few names, texts and numbers, so that they often meet."""

    def value(self, depth: int) -> Any:
        kind = self.randrange(8 if depth else 6)
        if kind < 2:
            return self.choice([None, True, False])
        if kind < 4:
            return self.choice([0, 1, 2, 3, 4, 6, -1, -2, 0.5, 1.5, 2.5, 10, 100])
        if kind < 6:
            return self.choice(["", "a", "b", "ab", "aa", "c", "abc"])
        if kind == 6:
            return [self.value(depth - 1) for _ in range(self.randrange(4))]
        return {name: self.value(depth - 1) for name in self.names(0)}

    def names(self, least: int) -> list[str]:
        return self.sample(_NAMES, self.randrange(least, 4))

    def schema(self, depth: int) -> Any:
        if depth == 0 or self.random() < 0.1:
            return self.choice([*_SMALL, {"enum": [self.value(1) for _ in range(3)]}])
        schema: dict[str, Any] = {}
        if self.random() < 0.5:
            schema["type"] = self.choice(_TYPES)
        for keyword in self.choices(list(_KEYWORDS), k=self.randrange(1, 4)):
            schema[keyword] = _KEYWORDS[keyword](self, depth - 1)
        if "if" in schema:
            schema["then"] = self.schema(depth - 1)
            schema["else"] = self.schema(depth - 1)
        return schema

    def schemas(self, depth: int) -> list[Any]:
        return [self.schema(depth) for _ in range(self.randrange(1, 4))]


def _one_of(*values: Any) -> Callable[[_Chance, int], Any]:
    return lambda chance, depth: chance.choice(values)


_KEYWORDS: dict[str, Callable[[_Chance, int], Any]] = {
    **dict.fromkeys(
        (
            *("additionalProperties", "items", "contains", "not", "if"),
            *("unevaluatedProperties", "unevaluatedItems"),
        ),
        _Chance.schema,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _Chance.schemas),
    "properties": lambda chance, depth: {name: chance.schema(depth) for name in chance.names(1)},
    "patternProperties": lambda chance, depth: {
        pattern: chance.schema(depth) for pattern in chance.sample(["^a", "b", "^.$", "c$"], 2)
    },
    "dependentSchemas": lambda chance, depth: {chance.choice(_NAMES): chance.schema(depth)},
    "dependentRequired": lambda chance, depth: {chance.choice(_NAMES): chance.names(1)},
    "required": lambda chance, depth: chance.names(0),
    "propertyNames": _one_of({"maxLength": 1}, {"pattern": "^a"}, {"not": {"const": "a"}}),
    **dict.fromkeys(
        ("minProperties", "minItems", "minLength", "maxProperties", "maxItems", "maxLength"),
        _one_of(0, 1, 2, 3),
    ),
    "pattern": _one_of("^a", "b$", "^[ab]*$", "aa|c"),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _one_of(0, -1.5, 2.5, 3)
    ),
    "multipleOf": _one_of(1, 2, 3, 0.5, 1.5),
    "enum": lambda chance, depth: [chance.value(2) for _ in range(3)],
    "const": lambda chance, depth: chance.value(2),
    "$ref": _one_of("#/$defs/x", "#/$defs/y"),
}


@pytest.mark.parametrize("seed", range(60))
def test_a_random_schema_is_kept_to_exactly_or_refused(seed: int) -> None:
    chance = _Chance(seed)
    schema = {"allOf": [chance.schema(3)], "$defs": {"x": chance.schema(2), "y": chance.schema(1)}}
    checked = jsonschema.Draft202012Validator(schema)
    values = [chance.value(2) for _ in range(40)]
    try:
        grammar = compile_schema(schema, whitespace=None)
    except UnsupportedSchema as problem:
        if "nothing can satisfy" in str(problem):
            assert not any(map(checked.is_valid, values))
        return
    acceptor, sampler = Acceptor(grammar), Sampler(grammar, seed)
    for _ in range(6):
        text = sampler.text(25)
        assert acceptor.accepts(text)
        checked.validate(json.loads(text))
    for value in values:
        texts = islice(spellings(value), 3000)
        assert any(map(acceptor.accepts, texts)) == checked.is_valid(value), value
