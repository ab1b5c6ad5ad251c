"""Shapes that a stranger might send to keep an engine busy: exponential, recursive, huge, damaged.

The same number always gives the same shapes; each is one that StructuredOutput takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from inferno.errors import InvalidRequest
from inferno.structured import StructuredOutput
from inferno.text.parsers.calls.shape import CallableTool, shape_of_calls
from inferno.text.parsers.calls.syntax import ToolDialect
from tests.engine.sampling.hostile_schemas import (
    alternatives,
    circles,
    conditions,
    constants,
    counted_items,
    counted_members,
    crossed,
    crossed_patterns,
    damaged,
    deep,
    doubling,
    extreme_counts,
    extreme_numbers,
    huge_constant,
    in_tools,
    long_enum,
    long_texts,
    many_names,
    many_properties,
    mutual,
    negations,
    nested,
    numbers,
    overlapping_names,
    products,
    reference_chain,
    unevaluated,
    wide,
    without_end,
)

Maker = Callable[[random.Random], StructuredOutput]


def shapes(count: int) -> list[StructuredOutput]:
    """So many shapes, each kind as often as any other, and larger from one round to the next."""
    return [_shape(number) for number in range(count)]


def _shape(number: int) -> StructuredOutput:
    make = MAKERS[number % len(MAKERS)]
    for attempt in range(99):
        try:
            return make(random.Random(number + 10_000 * attempt))
        except InvalidRequest:  # it is too large to be a shape
            pass
    raise AssertionError(f"{make} makes no shape")


def of_json(make: Callable[[random.Random], Any]) -> Maker:
    return lambda random: StructuredOutput(json=make(random))


def of_regex(make: Callable[[random.Random], str]) -> Maker:
    return lambda random: StructuredOutput(regex=make(random))


def of_grammar(make: Callable[[random.Random], str]) -> Maker:
    return lambda random: StructuredOutput(grammar=make(random))


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


def of_tag(make: Callable[[random.Random], Any]) -> Maker:
    return lambda random: StructuredOutput(
        structural_tag={"type": "structural_tag", "format": make(random)}
    )


def of_choice(make: Callable[[random.Random], list[str]]) -> Maker:
    return lambda random: StructuredOutput(choice=make(random))


def of_calls(make: Callable[[random.Random], Any]) -> Maker:
    """Calls of tools whose arguments have such schemas, in one dialect or another."""

    def made(random: random.Random) -> StructuredOutput:
        dialect = random.choice(
            [ToolDialect.HERMES, ToolDialect.QWEN_XML, ToolDialect.MISTRAL_ARGS]
        )
        tools = [
            CallableTool(f"tool_{i}", make(random), is_strict=random.random() < 0.7)
            for i in range(random.choice([1, 3, 20]))
        ]
        shape = shape_of_calls(
            dialect, tools, must_call=random.random() < 0.7, is_parallel=random.random() < 0.7
        )
        assert shape is not None
        return shape

    return made


def nested_quantifiers(random: random.Random) -> str:
    pattern = random.choice(["a", "ab", "[a-c]", "."])
    for _ in range(random.randint(2, 12)):
        pattern = f"({pattern}{random.choice(['*', '+', '?', '{2,}', '{0,3}', '{5}', '|x', 'y'])})"
        pattern += random.choice(["", "*", "+", "{1,7}"])
    return pattern


def huge_counts(random: random.Random) -> str:
    one = random.choice(["a", r"\d", "(ab?)", "[^x]", "(a|bc)", r"\p{Lu}"])
    count = random.choice([1000, 65_535, 10**6, 10**9])
    other = random.choice([1000, 10**6])
    return random.choice(
        [
            f"{one}{{{count}}}",
            f"{one}{{0,{count}}}b",
            f"({one}{{{count},}}|x)",
            f"({one}{{1,{other}}}){{1,{count}}}",
            f"({one}{{0,{count}}}c){{{other}}}",
            f"x(?:{one}?){{{count}}}y",
        ]
    )


def alternation(random: random.Random) -> str:
    count = random.choice([1000, 8000, 20_000])
    kind = random.randrange(3)
    parts = [
        (f"a{i}", f"{i}z*", f"[a-{chr(98 + i % 24)}]{{{i % 7 + 1}}}")[kind] for i in range(count)
    ]
    return "(" + "|".join(parts) + ")" + random.choice(["", "+", "{3}", "{1,50}", ".*x"])


def unicode_classes(random: random.Random) -> str:
    names = ["L", "Lu", "N", "P", "S", "Han", "Greek", "Script=Thai", "Alphabetic", "Nope", "Cyrl"]
    parts = "".join(
        rf"[\p{{{random.choice(names)}}}\P{{{random.choice(names)}}}\w{random.choice('abc')}]"
        + random.choice(["", "*", "{2,40}", "{500}"])
        for _ in range(random.choice([2, 10, 60]))
    )
    return random.choice(
        [parts, f"({parts}|{parts[::2]})*" if parts[::2] else parts, f"(?i){parts}"]
    )


def around(random: random.Random) -> str:
    """Looks ahead and behind, and what refers back."""
    parts = [
        *("(?=a)", "(?!b)", "(?<=a)", "(?<!b)", r"\b", r"\B", "^", "$", r"\1", "(a|b)", ".*"),
        *(r"(?P<n>x+)", r"(?P=n)", "(?>a+)", "a++", r"\G", "(?=.*a)", "(?!.*(a|b){20})", "(?i)"),
    ]
    return "".join(random.choices(parts, k=random.choice([3, 12, 100, 2000])))


def catastrophes(random: random.Random) -> str:
    """Patterns that take backtracking engines for ever, or whose automata are large."""
    n = random.choice([5, 20, 300])
    return random.choice(
        [
            "(a+)+$",
            "([a-zA-Z]+)*x",
            "(a|aa)+b" * n,
            f"(.*a){{{n}}}",
            f"(.*)(.*)(.*){{{n}}}" + "x?" * n,
            f"[ab]*a[ab]{{{n}}}c[ab]*b[ab]{{{n}}}",
            "|".join(f".*{chr(97 + i)}.{{{n}}}{chr(97 + i)}.*" for i in range(6)),
            f"((a{{0,{n}}}b)*c{{0,{n}}}d)*",
            "(" + "|".join(f"(a{{{i}}})*" for i in range(2, 2 + min(n, 40))) + ")b",
        ]
    )


def left_recursive(random: random.Random) -> str:
    count = random.choice([2, 30, 1000])
    rules = [
        f'r{i}: r{(i + 1) % count} "{i}" | r{random.randrange(count)} "x"' for i in range(count)
    ]
    if random.random() < 0.2:  # else all of them go round and round
        rules[0] += ' | "y"'
    return "\n".join(["start: r0 | s", *dict.fromkeys(rules), 's: "z"'])


def right_recursive(random: random.Random) -> str:
    count = random.choice([1, 30, 3000])
    return "start: r0\n" + "\n".join(
        f'r{i}: "{i}" r{(i + 1) % count} | "{i}" r{i} | ' for i in range(count)
    )


def empty_rules(random: random.Random) -> str:
    count = random.choice([10, 300, 4000])
    rules = "\n".join(
        f"e{i}: "
        + random.choice([f"e{i + 1} e{i + 1}", f"e{i + 1}* e{i + 1}?", f"e{i + 1} | ", ""])
        for i in range(count)
    )
    return f'start: e0 "a" e0\n{rules}\ne{count}: '


def nested_groups(random: random.Random) -> str:
    """Groups one in another, in a rule or in a terminal, more deeply than a stack goes."""
    depth = random.choice([100, 1000, 20_000, 80_000])
    opened, closed = random.choice([("(", ")"), ("[", "]"), ("(", ")*"), ('("a" ', ")?")])
    name = random.choice(["start", "start: T\nT"])
    return f"{name}: " + opened * depth + '"x"' + closed * depth


def ignoring(random: random.Random) -> str:
    ignored = random.choice([r"/\s+/", r"/(a|b)*/", r"/.*/", '"a"', r"/[^x]{0,1000}/"])
    rest = random.choice(
        ['start: ("a" | "b")+', "start: T+\nT: /[a-z]{1,300}/", 'start: "a" start?']
    )
    return f"%ignore {ignored}\n" * random.choice([1, 30]) + rest


def long_grammar(random: random.Random) -> str:
    count = random.choice([200, 2000, 7000])
    return random.choice(
        [
            "start: " + " ".join(f'"{i}"' for i in range(count * 3)),
            "start: " + " | ".join(f'"{i}" /x{{{i % 90}}}/' for i in range(count)),
            "\n".join(["start: r0"] + [f'r{i}: "a" r{i + 1} "b"' for i in range(count)])
            + f'\nr{count}: "c"',
            "\n".join(["start: T0"] + [f'T{i}: "a" T{i + 1} "b"' for i in range(count)])
            + f'\nT{count}: "c"',
            f"start: a{{{count * 1000}}} b\na: /[a-z]+/\nb: a{{{count},}}",
            'start: "' + "x" * count * 30 + '"i',
        ]
    )


def in_lark(random: random.Random) -> str:
    """What llguidance adds to Lark's notation, used against it."""
    return random.choice(
        [
            'start: %json {"type": "array", "items": {"$ref": "#"}}',
            "start: %json " + '{"items":' * 300 + "{}" + "}" * 300,
            'start: %json {"pattern": "^(a{1,999}){1,999}$"}',
            'start: T\nT[lazy]: /.*/ "x"',
            "start: T\nT[max_tokens=5]: /(a|b)*c/",
            "start: T\nT: /a/ & /b/ & ~/c{1,5000}/",
            "start: T\nT: " + " & ".join(f"/(a{{{i}}})*/" for i in (2, 3, 5, 7, 11, 13, 17, 19)),
            "start: T\nT: ~(" + " | ".join(f"/.*{i}.*/" for i in range(300)) + ")",
            "start: @other",
            "start: gen\ngen[stop=/x{9000}/]: /.*/",
            "start: T\nT: /" + "(a|b)?" * 3000 + "/",
            'start: start start | "a" | ',
            "%llguidance {}\nstart: <[0-200000]>",
            "start: <[^0-5]>* <nothing>",
            "start: " + "(" * 99 + '"a"' + "?)*" * 99,
        ]
    )


def nested_tags(random: random.Random) -> Any:
    part: Any = random.choice(
        [
            {"type": "any_text"},
            {"type": "regex", "pattern": far_ahead(random)},
            {"type": "json_schema", "json_schema": products(random)},
        ]
    )
    for i in range(random.choice([3, 14, 60])):
        tag = {"type": "tag", "begin": f"<{i % 9}>", "content": part, "end": f"</{i % 9}>"}
        part = random.choice(
            [
                tag,
                {"type": "sequence", "elements": [part, part] if i < 9 else [part]},
                {"type": "or", "elements": [part, tag] if i < 9 else [tag]},
                {"type": "triggered_tags", "triggers": ["<"], "tags": [tag]},
                {"type": "tags_with_separator", "tags": [tag], "separator": "<"},
            ]
        )
    return part


def many_tags(random: random.Random) -> Any:
    count = random.choice([50, 256, 3000])
    schema = random.choice([many_properties, extreme_counts, overlapping_names])(random)
    tags = [
        {
            "type": "tag",
            "begin": "<" + "a" * (i % 70) + f"{i}>",
            "content": {"type": "json_schema", "json_schema": schema if i < 3 else {"const": i}},
            "end": "</a>",
        }
        for i in range(count)
    ]
    triggers = random.choice([["<"], ["<a", "<0", "<1"], [f"<{'a' * i}" for i in range(60)], [""]])
    return {
        "type": "triggered_tags",
        "triggers": triggers,
        "tags": tags,
        "at_least_one": random.random() < 0.5,
        "stop_after_first": random.random() < 0.5,
    }


def choices(random: random.Random) -> list[str]:
    count = random.choice([2, 300, 1024])
    return random.choice(
        [
            ["a" * (i + 1) for i in range(min(count, 600))],
            [f"{'x' * (200_000 // count)}{i}" for i in range(count)],
            ["".join(random.choices("ab", k=20)) for _ in range(count)],
            ["\U0001f600" * 99 + chr(0x4E00 + i) for i in range(count)],
        ]
    )


MAKERS: list[Maker] = [
    *map(of_json, (nested, circles, crossed, crossed_patterns, wide, counted_members)),
    *map(of_json, (counted_items, long_texts, many_names, numbers, alternatives, constants)),
    *map(of_json, (damaged, damaged, *map(doubling, ("allOf", "anyOf", "oneOf", "prefixItems")))),
    *map(of_json, (reference_chain, mutual, products, many_properties, long_enum)),
    *map(of_json, (overlapping_names, extreme_numbers, extreme_counts, extreme_counts)),
    *map(of_json, (huge_constant, negations, conditions, unevaluated, deep, without_end)),
    *map(of_regex, (repeated, far_ahead, stacked, looking, many_words, classes)),
    *map(of_regex, (nested_quantifiers, huge_counts, alternation, unicode_classes, around)),
    *map(of_regex, (catastrophes, nested_quantifiers)),
    *map(of_grammar, (ambiguous, tower, terminals, nonsense)),
    *map(of_grammar, (left_recursive, right_recursive, empty_rules, nested_groups, ignoring)),
    *map(of_grammar, (long_grammar, in_lark)),
    *map(of_tag, (nested_tags, many_tags)),
    of_choice(choices),
    of_calls(in_tools),
]
