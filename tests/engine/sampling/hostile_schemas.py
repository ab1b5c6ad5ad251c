"""JSON Schemas that a stranger might send to keep an engine busy; see hostile_shapes.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def nested(random: random.Random) -> Any:
    schema: Any = {"type": random.choice(["string", "null", "number"])}
    for _ in range(random.randint(20, 90)):
        schema = random.choice(
            [
                {"type": "array", "items": schema},
                an_object(a=schema),
                {"anyOf": [schema, {"type": "null"}]},
            ]
        )
    return schema


def doubling(keyword: str) -> Callable[[random.Random], Any]:
    """A schema of 2**n parts, written with n references."""

    def make(random: random.Random) -> Any:
        last = random.randint(12, 60)
        definitions: dict[str, Any] = {
            f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * random.randint(2, 3)}
            for i in range(last)
        }
        definitions[f"d{last}"] = {"type": "array", "items": {"type": "integer"}}
        return {"$ref": "#/$defs/d0", "$defs": definitions}

    return make


def circles(random: random.Random) -> Any:
    number = random.randint(1, 40)
    keyword = random.choice(["allOf", "anyOf", "oneOf", "not"])
    definitions = {}
    for i in range(number):
        target: Any = {"$ref": f"#/$defs/d{(i + 1) % number}"}
        definitions[f"d{i}"] = {keyword: target if keyword == "not" else [target]}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def crossed(random: random.Random) -> Any:
    """Intersections of unions: what is to be tried is their product."""
    width, height = random.randint(3, 9), random.randint(4, 14)
    return {
        "allOf": [
            {"anyOf": [an_object(**{f"p{i}_{j}": {"type": "string"}}) for j in range(width)]}
            for i in range(height)
        ]
    }


def crossed_patterns(random: random.Random) -> Any:
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23][: random.randint(4, 9)]
    return {"type": "string", "allOf": [{"pattern": f"^(a{{{each}}})*$"} for each in primes]}


def wide(random: random.Random) -> Any:
    names = [f"key_{i}" for i in range(random.randint(300, 6000))]
    return an_object(**{name: {"type": "integer"} for name in names})


def counted_members(random: random.Random) -> Any:
    names = {f"k{i}": {"type": "boolean"} for i in range(random.randint(20, 200))}
    most = len(names)
    return {
        "type": "object",
        "properties": names,
        "minProperties": most // 2,
        "maxProperties": most,
    }


def counted_items(random: random.Random) -> Any:
    least = random.choice([100, 30_000, 10**9])
    return {
        "type": "array",
        "items": {"type": "array", "items": {"type": "string"}, "minItems": least},
        "minItems": least,
        "maxItems": least * 3,
    }


def long_texts(random: random.Random) -> Any:
    lengths = [random.choice([50, 5000, 10**6, 10**12]) for _ in range(30)]
    texts = {f"t{i}": {"type": "string", "maxLength": n} for i, n in enumerate(lengths)}
    return an_object(**texts)


def many_names(random: random.Random) -> Any:
    patterns = {f"^(x|{i}){{1,{random.randint(2, 99)}}}": {"type": "null"} for i in range(40)}
    return {"type": "object", "patternProperties": patterns, "additionalProperties": False}


def numbers(random: random.Random) -> Any:
    return {
        "type": random.choice(["integer", "number"]),
        "multipleOf": random.choice([99_991, 1e-9, 12_345_678, 0.3, 7]),
        "minimum": -(10 ** random.randint(1, 300)),
        "maximum": 10 ** random.randint(1, 300),
    }


def alternatives(random: random.Random) -> Any:
    return {"enum": [f"value number {i}" for i in range(random.randint(500, 8000))]}


def constants(random: random.Random) -> Any:
    value: Any = "x" * random.randint(1, 5000)
    for _ in range(random.randint(2, 90)):
        value = [value, random.random()]
    return {"const": value}


def damaged(random: random.Random) -> Any:
    return random.choice(
        [
            {"type": "strin"},
            {"type": "array", "uniqueItems": True, "minItems": 10**6},
            {"properties": {"a": {"$ref": "#/$defs/none"}}},
            {"$ref": "https://example.com/schema.json"},
            {"type": "string", "pattern": "(" * 500},
            {"type": "string", "pattern": "(?<=a)b\\1"},
            {"type": "string", "minLength": -1},
            {"minimum": "1e999999999", "type": "number"},
            {"items": {"type": ["string", 3]}},
            {"required": "a", "properties": []},
            {"if": {"pattern": "^(a+)+$"}, "then": False, "else": {"not": {}}},
            {"unevaluatedProperties": False, "allOf": [{"patternProperties": {"(a*)*b": {}}}] * 30},
            {"dependentSchemas": {f"{i}": {"$ref": "#"} for i in range(300)}},
            {"contains": {"contains": {"contains": {"pattern": "x{9999}"}}}, "minContains": 9999},
        ]
    )


def reference_chain(random: random.Random) -> Any:
    """A chain of references that comes to something, to nothing, or back to itself."""
    length = random.choice([50, 300, 2000, 4000])
    definitions: dict[str, Any] = {
        f"d{i}": random.choice(
            [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}", "description": "x"}]
        )
        for i in range(length)
    }
    definitions[f"d{length}"] = random.choice([{"type": "integer"}, {"$ref": "#/$defs/d0"}, False])
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def mutual(random: random.Random) -> Any:
    """Objects and lists that contain one another, with a smallest one or without any."""
    count = random.choice([2, 10, 60, 200])
    definitions: dict[str, Any] = {}
    for i in range(count):
        others = [{"$ref": f"#/$defs/d{random.randrange(count)}"} for _ in range(3)]
        definitions[f"d{i}"] = random.choice(
            [
                an_object(a=others[0], b=others[1]),
                {"type": "array", "items": others[0], "minItems": random.choice([0, 1, 2])},
                {"anyOf": others},
                {"allOf": others[:2]},
            ]
        )
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def products(random: random.Random) -> Any:
    """Products of alternatives, several levels of them."""
    schema: Any = {"type": random.choice(["string", "integer", "array"])}
    for level in range(random.randint(2, 6)):
        keyword = random.choice(["anyOf", "oneOf", "allOf"])
        longest = level + random.randint(1, 9)
        parts = [{"minimum": level}, {"maxLength": longest}, {"not": schema}, schema]
        schema = {keyword: parts, random.choice(["anyOf", "allOf"]): parts[::-1]}
    return schema


def many_properties(random: random.Random) -> Any:
    value = random.choice([{"type": "string"}, {}, {"$ref": "#"}, {"enum": [1, "a", None]}])
    names = [f"p{i}" for i in range(random.choice([500, 5000, 9000]))]
    schema: dict[str, Any] = {"type": "object", "properties": dict.fromkeys(names, value)}
    if random.random() < 0.4:
        schema["required"] = random.sample(names, len(names) // random.choice([1, 2, 9]))
    if random.random() < 0.5:
        schema["additionalProperties"] = random.choice([False, {"type": "null"}])
    return schema


def long_enum(random: random.Random) -> Any:
    count = random.choice([1000, 10_000, 20_000])
    kind = random.randrange(4)
    schema: Any = {"enum": [(i, f"{i:x}", [i], {"a": i})[kind] for i in range(count)]}
    return random.choice([schema, {"type": "array", "items": schema}, {"not": schema}])


def overlapping_names(random: random.Random) -> Any:
    letters = "abcdefgh"
    patterns = {
        random.choice(["{0}", "^{0}", "{0}$", "^[^{0}]+$", "({0}.*){{3}}", "{0}{0}|{1}"]).format(
            random.choice(letters), random.choice(letters)
        ): random.choice([{"type": "string"}, {"minimum": 3}, {}, False, {"maxLength": 9}])
        for _ in range(random.choice([5, 12, 40]))
    }
    return {
        "type": "object",
        "patternProperties": patterns,
        "properties": {name: {"minLength": 2} for name in letters},
        "additionalProperties": random.choice([False, True, {"type": "integer"}]),
    }


def extreme_numbers(random: random.Random) -> Any:
    numbers: list[float] = [0, 1, 1e-300, 1e308, 2**63, 10**308, 0.1, 1 / 3, 123456789.123456789]
    numbers += [5e-324, 10**4000]
    schema: dict[str, Any] = {"type": random.choice(["integer", "number"])}
    for keyword in random.sample(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"], 3
    ):
        schema[keyword] = random.choice([1, -1]) * random.choice(numbers)
    return random.choice([schema, {"not": schema, "type": "number"}, {"allOf": [schema] * 50}])


def extreme_counts(random: random.Random) -> Any:
    count = random.choice([10**4, 10**6, 10**9, 10**18, 10**300])
    return random.choice(
        [
            {"type": "string", "minLength": count},
            {"type": "string", "maxLength": count, "pattern": "^(ab|c)*$"},
            {"type": "string", "minLength": count, "pattern": random.choice(["a", "^[ab]+$"])},
            {"type": "array", "items": {"type": "null"}, "minItems": count},
            {"type": "array", "maxItems": count, "prefixItems": [True] * 50},
            {"type": "array", "contains": {"const": 1}, "minContains": count},
            {"type": "array", "contains": {"const": 1}, "maxContains": count},
            {"type": "object", "minProperties": count},
            {"type": "object", "maxProperties": count, "additionalProperties": {"type": "null"}},
            {"type": "array", "uniqueItems": True, "minItems": count},
            {"type": "object", "propertyNames": {"maxLength": count}, "minProperties": count},
        ]
    )


def huge_constant(random: random.Random) -> Any:
    value: Any = random.choice(["x", 1, None, "\u4e16", '\\"\n'])
    kind = random.choice(["text", "list", "object", "both"])
    if kind == "text":
        return {"const": str(value) * random.choice([1000, 60_000])}
    if kind == "list":
        return {"const": [value] * random.choice([1000, 20_000])}
    if kind == "object":
        return {"const": {f"n{i}": value for i in range(random.choice([1000, 9000]))}}
    return {"enum": [{f"n{i}": [value] * j for i in range(30)} for j in range(30)]}


def negations(random: random.Random) -> Any:
    schema: Any = an_object(a={"type": "string"}, b={"pattern": "^(a|b)*c"})
    for i in range(random.randint(1, 40)):
        schema = random.choice(
            [
                {"not": schema},
                {"not": {"anyOf": [schema, {"minLength": i}]}},
                {"if": schema, "then": {"maxLength": i}, "else": {"not": schema}},
                {"oneOf": [schema, {"type": "integer"}, {"required": [f"p{i}"]}]},
                {"not": {"required": [f"q{i}"]}, "allOf": [schema]},
            ]
        )
    return schema


def conditions(random: random.Random) -> Any:
    """Conditions side by side: what holds of a value is one of 2**n combinations."""
    count = random.choice([4, 9, 16, 60])
    return {
        "type": "object",
        "properties": {f"k{i}": {"enum": ["a", "b"]} for i in range(count)},
        "allOf": [
            {
                "if": {"properties": {f"k{i}": {"const": "a"}}, "required": [f"k{i}"]},
                "then": {"required": [f"x{i}"]},
                "else": {"required": [f"y{i}"]},
            }
            for i in range(count)
        ],
    }


def unevaluated(random: random.Random) -> Any:
    schema: Any = {"properties": {"a": {"type": "string"}}}
    for i in range(random.choice([3, 20, 60])):
        schema = {
            random.choice(["allOf", "anyOf", "oneOf"]): [schema, {"properties": {f"p{i}": {}}}],
            random.choice(["unevaluatedProperties", "unevaluatedItems"]): random.choice(
                [False, {"type": "string"}]
            ),
        }
    return schema


def deep(random: random.Random) -> str:
    """As text, for it is nested more deeply than Python's own writer goes."""
    depth = random.choice([50, 150, 1000, 10_000])
    before, after = random.choice(
        [
            ('{"items":', "}"),
            ('{"not":', "}"),
            ('{"allOf":[', "]}"),
            ('{"properties":{"a":', "}}"),
            ('{"anyOf":[{"type":"null"},', "]}"),
            ('{"const":[', "]}"),
            ('{"$defs":{"a":', "}}"),
        ]
    )
    return before * depth + "{}" + after * depth


def without_end(random: random.Random) -> Any:
    """Recursion without a base case, hidden more or less well."""
    inner = random.choice(
        [
            {"$ref": "#"},
            {"anyOf": [{"$ref": "#"}, {"$ref": "#/properties/a"}]},
            {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
            {"allOf": [{"$ref": "#"}, {"type": "object"}]},
            {"oneOf": [{"$ref": "#"}, False]},
            {"if": {"$ref": "#"}, "then": {"$ref": "#"}},
        ]
    )
    return an_object(a=inner)


def in_tools(random: random.Random) -> Any:
    """A hostile schema as that of a tool's arguments, which is an object's."""
    make = random.choice(
        [mutual, products, overlapping_names, extreme_counts, negations, conditions, unevaluated]
    )
    inner = make(random)
    definitions = inner.pop("$defs", {})
    return {**an_object(value=inner, other={"type": "string"}), "$defs": definitions}
