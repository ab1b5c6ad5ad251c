"""Shapes that a stranger might send to keep an engine busy: exponential, recursive, huge, damaged.

The same number always gives the same shapes; each is one that StructuredOutput takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from inferno.structured import StructuredOutput

Maker = Callable[[random.Random], StructuredOutput]


def shapes(count: int) -> list[StructuredOutput]:
    """So many shapes, each kind as often as any other, and larger from one round to the next."""
    return [MAKERS[i % len(MAKERS)](random.Random(i)) for i in range(count)]


def of_json(make: Callable[[random.Random], Any]) -> Maker:
    return lambda random: StructuredOutput(json=make(random))


def of_regex(make: Callable[[random.Random], str]) -> Maker:
    return lambda random: StructuredOutput(regex=make(random))


def of_grammar(make: Callable[[random.Random], str]) -> Maker:
    return lambda random: StructuredOutput(grammar=make(random))


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


def repeated(random: random.Random) -> str:
    pattern = random.choice(["a", "[a-z]", r"\w", "(a|ab|b)", r"\p{L}", ".", "(a|b)*"])
    for _ in range(random.randint(1, 6)):
        pattern = f"({pattern}{{{random.randint(0, 3)},{random.choice([9, 99, 1000, 9999])}}})"
    return pattern


def far_ahead(random: random.Random) -> str:
    """An automaton of 2**n states: which of the last n characters were an a."""
    pattern = f"(a|b)*a(a|b){{{random.randint(10, 2000)}}}"
    return random.choice([pattern, f"({pattern})|(b{pattern}c)", f"{pattern}[c-e]*{pattern}"])


def stacked(random: random.Random) -> str:
    depth = random.randint(50, 30_000)
    return random.choice(
        [
            "(" * depth + "a" + ")" * depth,
            "(a?" * depth + ")*" * depth,
            "a?" * depth + "a" * depth,
            "(?:" * depth,
            "[" * depth,
            "a{2}" + "{2}" * min(depth, 200),
        ]
    )


def looking(random: random.Random) -> str:
    words = "".join(random.choice("abc.*+?|") for _ in range(random.randint(5, 40)))
    return random.choice(
        [
            f"(?=.*{words})" * random.randint(1, 30) + ".*",
            f"(?!{words}).*",
            r"(a+)\1+",
            "(?R)",
            words,
        ]
    )


def many_words(random: random.Random) -> str:
    words = ["".join(random.choices("abcdefgh", k=8)) for _ in range(random.randint(500, 9000))]
    return "(" + "|".join(words) + "){1,40}"


def classes(random: random.Random) -> str:
    ranges = "".join(f"\\u{i:04x}" for i in range(256, 256 + 2 * random.randint(100, 9000), 2))
    return f"[{ranges}]{{1,{random.choice([5, 500])}}}"


def ambiguous(random: random.Random) -> str:
    return random.choice(
        [
            'start: e\ne: e e | e e e | "a" | "ab"',
            "start: " + " ".join(["x?"] * random.randint(50, 2000)) + '\nx: "a" | x x | ',
            "start: x\nx: " + " | ".join(f'x "{i}" x' for i in range(random.randint(9, 900))),
        ]
    )


def tower(random: random.Random) -> str:
    height = random.randint(20, 3000)
    rules = "\n".join(f"r{i}: r{i + 1} r{i + 1} | " for i in range(height))
    return f'start: r0\n{rules}\nr{height}: "a"'


def terminals(random: random.Random) -> str:
    count = random.randint(100, 3000)
    names = "\n".join(f"T{i}: /[a-z]{{1,{i % 50 + 1}}}x{i}/" for i in range(count))
    return "start: (" + " | ".join(f"T{i}" for i in range(count)) + ")+\n" + names


def nonsense(random: random.Random) -> str:
    return "".join(random.choice('start: |"/()[]{}\n%+*?&~ab\\') for _ in range(2000))


MAKERS: list[Maker] = [
    *map(of_json, (nested, circles, crossed, crossed_patterns, wide, counted_members)),
    *map(of_json, (counted_items, long_texts, many_names, numbers, alternatives, constants)),
    *map(of_json, (damaged, damaged, *map(doubling, ("allOf", "anyOf", "oneOf", "prefixItems")))),
    *map(of_regex, (repeated, far_ahead, stacked, looking, many_words, classes)),
    *map(of_grammar, (ambiguous, tower, terminals, nonsense)),
]
