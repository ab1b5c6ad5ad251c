"""Tests of inferno.text.parsers.calls: each dialect's calls, whole or malformed, however cut."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.answer import Answer, ToolCall, join_pieces
from inferno.text.parsers.calls.in_python import python_to_json
from inferno.text.parsers.calls.in_xml import types_of, value_in_json
from inferno.text.parsers.calls.parser import CallMarks
from inferno.text.parsers.calls.syntax import SYNTAXES, Encoding, ToolDialect
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.parser import Call, Part, Piece
from tests.text.loaded import real_tokenizer
from tests.text.parsers.calling import (
    SPECIAL,
    TOOLS,
    answer_of_texts,
    parsed,
    spelled,
    tokenizer_of,
)
from tests.text.parsers.feeding import GPT_OSS, QWEN3

HERMES, XML, LLAMA = ToolDialect.HERMES, ToolDialect.QWEN_XML, ToolDialect.LLAMA
LIST, ARGS, DEEPSEEK = ToolDialect.MISTRAL_LIST, ToolDialect.MISTRAL_ARGS, ToolDialect.DEEPSEEK
MISTRAL = "hf/Mistral-7B-Instruct-v0.3"


def f(arguments: str, name: str = "get_x", call_id: str | None = None) -> ToolCall:
    return ToolCall(name, arguments, call_id)


def said(content: str, *calls: ToolCall) -> Answer:
    return Answer("", content, calls)


def hermes(*calls: str) -> str:
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def xml(name: str, **values: str) -> str:
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def deepseek(*calls: tuple[str, str]) -> str:
    each = (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return "<｜tool▁calls▁begin｜>" + "\n".join(each) + "<｜tool▁calls▁end｜>"


DEEP = '{"a": {"b": [1, {"c": "}]{[\\""}]}, "é": "世😀\\u00e9", "d": "<tool_call> ```"}'
G = '{"name": "g", "arguments": {}}'
GOOD = [
    (HERMES, "Four.", said("Four.")),
    (HERMES, hermes('{"name": "get_x", "arguments": {"n": 1}}'), said("", f('{"n": 1}'))),
    (HERMES, hermes(f'{{"name": "get_x", "arguments": {DEEP}}}'), said("", f(DEEP))),
    (HERMES, hermes(f'{{"arguments": {DEEP}, "name": "get_x"}}'), said("", f(DEEP))),
    (HERMES, hermes(G, G), said("", f("{}", "g"), f("{}", "g"))),
    (HERMES, f"I look.\n\n{hermes(G)}\n", said("I look.", f("{}", "g"))),
    (HERMES, f" \n{hermes(G)}\n\n", said("", f("{}", "g"))),
    (HERMES, f"a\n{hermes(G)}\nb\n{hermes(G)} c ", said("a\nb c ", *[f("{}", "g")] * 2)),
    (HERMES, f"<tool_call>{G}</tool_call><tool_call>{G}", said("", *[f("{}", "g")] * 2)),
    (HERMES, hermes('{"type": "x", "l": [{}], "name": "other"}'), said("", f("{}", "other"))),
    (HERMES, hermes('{"name":"g","parameters":{ }}'), said("", f("{ }", "g"))),
    (HERMES, hermes('{"name": "\\u0067", "arguments": {}}'), said("", f("{}", "g"))),
    (HERMES, hermes('{"id": "1", "name": "g", "arguments": {}}'), said("", f("{}", "g", "1"))),
    (XML, f"Hm.\n\n{xml('g')}\n", said("Hm.", f("{}", "g"))),
    (XML, f"{xml('get_x', n='5', s='5')}", said("", f('{"n": 5, "s": "5"}'))),
    (
        XML,
        xml("get_x", s='\n"a"\\\n\n<b></parameter\n', o='{"k": [1]}'),
        said("", f('{"s": "\\n\\"a\\"\\\\\\n\\n<b></parameter\\n", "o": {"k": [1]}}')),
    ),
    (XML, xml("get_x", m="null", n="many"), said("", f('{"m": null, "n": "many"}'))),
    (XML, xml("get_x", s="null", u="true"), said("", f('{"s": "null", "u": true}'))),
    (XML, f"{xml('g')}\n{xml('get_x', n='1')}", said("", f("{}", "g"), f('{"n": 1}'))),
    (XML, xml("g", a="é世😀", b="[1, 'x']"), said("", f('{"a": "é世😀", "b": [1, "x"]}', "g"))),
    (XML, "<function=g>\n</function>\n</tool_call>", said("", f("{}", "g"))),
    (XML, "<tool_call><function=g></tool_call> b", said(" b", f("{}", "g"))),
    (
        XML,
        xml("g", a="1", b="2").replace(
            "</function>", "<parameter=a>\n3\n</parameter>\n</function>"
        ),
        said("", f('{"a": 1, "b": 2}', "g")),
    ),
    (XML, xml("get_x", n="1").replace("\n", ""), said("", f('{"n": 1}'))),
    (LLAMA, '{"name": "get_x", "parameters": {"n": 1}}', said("", f('{"n": 1}'))),
    (LLAMA, f'\n{{"name": "get_x", "parameters": {DEEP}}}\n', said("", f(DEEP))),
    (LLAMA, f"{G}; {G};{G}", said("", *[f("{}", "g")] * 3)),
    (LLAMA, f"[{G}, {G}]", said("", *[f("{}", "g")] * 2)),
    (LLAMA, f"<|python_tag|>{G}", said("", f("{}", "g"))),
    (LLAMA, f"Well.\n<|python_tag|>{G}; {G}", said("Well.", *[f("{}", "g")] * 2)),
    (LLAMA, '<|python_tag|>find.call(q="a, b")', said("", f('{"q": "a, b"}', "find"))),
    (LLAMA, "<|python_tag|>a.b()", said("", f("{}", "a.b"))),
    (LLAMA, "[g(), get_x( n = 1 , s='x' )]", said("", f("{}", "g"), f('{"n": 1, "s": "x"}'))),
    (
        LLAMA,
        """[get_x(s='it\\'s "x"', l=[1, (2.5, None)], d={'k': True, "e": {}}, t="é\\n\\x41😀",)]""",
        said(
            "",
            f(
                '{"s": "it\'s \\"x\\"", "l": [1, [2.5, null]], "d": {"k": true, "e": {}}, '
                '"t": "é\\nA😀"}'
            ),
        ),
    ),
    (LIST, f"[TOOL_CALLS] [{G}]", said("", f("{}", "g"))),
    (LIST, f"Hm. [TOOL_CALLS][{G}, {G} ]", said("Hm.", *[f("{}", "g")] * 2)),
    (LIST, f"[TOOL_CALLS] {G}", said("", f("{}", "g"))),
    (
        LIST,
        '[TOOL_CALLS][{"id": "abcdefghi", "name": "get_x", "arguments": {"n": 1}}]',
        said("", f('{"n": 1}', call_id="abcdefghi")),
    ),
    (
        LIST,
        '[TOOL_CALLS][{"name": "get_x", "arguments": {"n": 1}, "id": "abcdefghi"}]',
        said("", f('{"n": 1}')),  # it comes too late
    ),
    (ARGS, f"[TOOL_CALLS]get_x[ARGS]{DEEP}", said("", f(DEEP))),
    (ARGS, "[TOOL_CALLS]g[CALL_ID]abc123DEF[ARGS]{}", said("", f("{}", "g", "abc123DEF"))),
    (ARGS, "a[TOOL_CALLS]g[ARGS]{}[TOOL_CALLS]g[ARGS] {} b", said("a b", *[f("{}", "g")] * 2)),
    (ARGS, "[TOOL_CALLS]g{}", said("", f("{}", "g"))),
    (DEEPSEEK, deepseek(("get_x", DEEP)), said("", f(DEEP))),
    (
        DEEPSEEK,
        f"Hm.\n{deepseek(('g', '{}'), ('get_x', DEEP))}",
        said("Hm.", f("{}", "g"), f(DEEP)),
    ),
    (
        DEEPSEEK,
        deepseek(("g", "{}")).removeprefix("<｜tool▁calls▁begin｜>").replace("json\n", "json "),
        said("", f("{}", "g")),
    ),
]
T = "<tool_call>"
# The text of a call that is none stays as it was, but for marks that are special tokens.
NO_CALLS = [
    (HERMES, f"{T}\nnothing\n</tool_call>"),
    (HERMES, f"\n {T}\n"),
    (HERMES, f'{T}\n{{"name": "g", "arguments": "{{}}"}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name": "g", "arguments": [{{}}]}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name": 5, "arguments": {{}}}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name": "", "arguments": {{}}}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name": "a b", "arguments": {{}}}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name": "\\ud83d", "arguments": {{}}}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name": "{"g" * 300}", "arguments": {{}}}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"arguments": {{}}}}\n</tool_call>'),
    (HERMES, f'{T}\n{{"name" "g"}}\n</tool_call>'),
    (HERMES, f"{T}\n{{'name': 'g', 'arguments': {{}}}}\n</tool_call>"),
    (HERMES, f'{T}\n{{"name": "g'),
    (HERMES, f'{T}\n{{"name": "g", '),
    (HERMES, f'{T}\n{{"arguments": {{"a": 1}}'),
    (HERMES, f'{T}\n{{"na\nme": "g"}}'),
    (HERMES, "a < b and <tool_cal and <tool_callx"),
    (XML, f"{T}\n<functionx=g>\n</function>\n</tool_call>"),
    (XML, f"{T}\n<function=>\n</function>\n</tool_call>"),
    (XML, f"{T}\n<function=g\n</function>\n</tool_call>"),
    (XML, f"{T}\n<function=g h>\n</function>\n</tool_call>"),
    (XML, "<function=unknown>\n</function>"),
    (XML, f"{T}\n<function=g"),
    (LLAMA, "Four."),
    (LLAMA, '{"name": "unknown", "parameters": {"a": 1}}'),
    (LLAMA, '{"name": "g"}'),
    (LLAMA, '{"answer": [1, 2]}'),
    (LLAMA, f"It is {G}"),
    (LLAMA, "[1, 2]"),
    (LLAMA, "[]"),
    (LLAMA, "[unknown(a=1)]"),
    (LLAMA, "[g(1)]"),
    (LLAMA, "[g(a=x)]"),
    (LLAMA, "[g(a={1})]"),
    (LLAMA, "[g(a='"),
    (LLAMA, "g(a=1)"),
    (LLAMA, "\n "),
    (LLAMA, "<|python_tag|>print(1)\n"),
    (LLAMA, "<|python_tag|>x = 1"),
    (LLAMA, "<|python_tag|>"),
    (LIST, "[TOOL_CALLS][]"),
    (LIST, "[TOOL_CALLS] ["),
    (LIST, "Say [TOOL_CALLS]."),
    (LIST, "[TOOL_CALLS"),
    (ARGS, "[TOOL_CALLS]g[ARGS]"),
    (ARGS, "[TOOL_CALLS]g[CALL_ID]1[ARGS]5"),
    (ARGS, "[TOOL_CALLS][ARGS]{}"),
    (ARGS, "[TOOL_CALLS]g h[ARGS]{}"),
    (DEEPSEEK, "<｜tool▁calls▁begin｜>function"),
    (DEEPSEEK, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n{}"),
    (DEEPSEEK, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n{}\n```"),
]
# A call that was told stays; its arguments are as they came, and what follows is content.
CUT_OFF = [
    (HERMES, f'{T}\n{{"name": "g", "arguments": {{"a": "b', said("", f('{"a": "b', "g"))),
    (HERMES, f'{T}\n{{"name": "g", "arguments": {{"a": "\\', said("", f('{"a": "\\', "g"))),
    (HERMES, f'{T}\n{{"name": "g", "arguments": {{}}', said("", f("{}", "g"))),
    (
        HERMES,
        f'{T}\n{{"name": "g", "arguments": {{"a": [1}}\n</tool_call>\n{hermes(G)}',
        said("", f('{"a": [1}\n', "g"), f("{}", "g")),
    ),
    (HERMES, f"{T}{G}}}\n</tool_call> b", said("} b", f("{}", "g"))),
    (HERMES, f'{T}{{"name": "g", "arguments": {{}} "x"', said(' "x"', f("{}", "g"))),
    (HERMES, f"{hermes(G)}\n{T}no", said(f"\n{T}no", f("{}", "g"))),
    (XML, f"{T}<function=get_x>\n<parameter=s>\nab\n", said("", f('{"s": "ab\\n'))),
    (
        XML,
        f"{T}<function=get_x><parameter=n>\n5\n",
        said("<parameter=n>\n5\n", f("{")),
    ),
    (XML, f"{T}<function=g>\nwhy", said("\nwhy", f("{", "g"))),
    (XML, f"{T}<function=g>\n", said("", f("{", "g"))),
    (LLAMA, "[get_x(n=1, s=oops)] yes", said(", s=oops)] yes", f('{"n": 1'))),
    (LLAMA, "[g(), 5]", said(", 5]", f("{}", "g"))),
    (LLAMA, f"{G}; x", said("; x", f("{}", "g"))),
    (LLAMA, f"{G} and", said(" and", f("{}", "g"))),
    (LIST, f"[TOOL_CALLS][{G}, x", said(", x", f("{}", "g"))),
    (ARGS, "[TOOL_CALLS]g[ARGS]{", said("", f("{", "g"))),
    (DEEPSEEK, deepseek(("g", '{"a": ')).partition("\n```<")[0], said("", f('{"a": ', "g"))),
]
NOTHING_SPECIAL = {
    dialect: CallMarks(dialect, real_tokenizer(QWEN3), is_shown=True) for dialect in SYNTAXES
}
ALL_SPECIAL = {
    dialect: CallMarks(dialect, tokenizer_of(SPECIAL), is_shown=True) for dialect in SYNTAXES
}


def shown(text: str, marks: CallMarks) -> str:
    """The text as the tokenizer with special tokens writes it: SentencePiece has its spaces."""
    for mark, spelling in marks.spellings.items():
        text = text.replace(mark, marks.shown[spelling])
    return text


@pytest.mark.parametrize("is_special", [False, True], ids=["text", "special"])
@pytest.mark.parametrize(
    ("dialect", "output", "expected"),
    [*GOOD, *((d, text, said(text)) for d, text in NO_CALLS), *CUT_OFF],
)
def test_calls_are_found_however_the_text_is_cut(
    dialect: ToolDialect, output: str, expected: Answer, is_special: bool
) -> None:
    marks = (ALL_SPECIAL if is_special else NOTHING_SPECIAL)[dialect]
    text = spelled(output, marks)
    if is_special:
        inside = any(
            mark in call.arguments for mark in marks.spellings for call in expected.tool_calls
        )
        if inside:
            return  # a special token within a string breaks it, the same letters don't
        expected = said(shown(expected.content, marks), *expected.tool_calls)
    assert answer_of_texts(dialect, [text], marks) == expected
    assert answer_of_texts(dialect, list(text), marks) == expected
    for at in range(1, len(text)):
        assert answer_of_texts(dialect, [text[:at], text[at:]], marks) == expected


@pytest.mark.parametrize(("dialect", "output", "expected"), [*GOOD, *CUT_OFF])
def test_calls_are_found_in_tokens(dialect: ToolDialect, output: str, expected: Answer) -> None:
    ids = real_tokenizer(QWEN3).encode(output)
    assert join_pieces(parsed(QWEN3, dialect, [[i] for i in ids])) == expected


def test_marks_that_are_special_tokens_are_seen_and_not_shown() -> None:
    ids = tokenizer_of(MISTRAL).encode(f"Say [TOOL_CALLS] [{G}]", add_special_tokens=False)
    assert join_pieces(parsed(MISTRAL, LIST, [ids])) == said("Say", f("{}", "g"))
    ids = tokenizer_of(MISTRAL).encode("Say [TOOL_CALLS] no", add_special_tokens=False)
    assert join_pieces(parsed(MISTRAL, LIST, [ids])).content == "Say  no"
    answer = join_pieces(parsed(MISTRAL, LIST, [ids], skips=False))
    assert answer.content == tokenizer_of(MISTRAL).decode(ids, skip_special_tokens=False)


def test_letters_of_a_special_token_are_no_mark() -> None:
    tokenizer = tokenizer_of(MISTRAL)
    parts = [tokenizer.encode(text, add_special_tokens=False) for text in ("[TOOL_CAL", "LS][]")]
    spelled_out = [token_id for part in parts for token_id in part]
    ids = [*spelled_out, *tokenizer.encode(f"[TOOL_CALLS][{G}]", add_special_tokens=False)]
    answer = join_pieces(parsed(MISTRAL, LIST, [ids]))
    assert answer.tool_calls == (f("{}", "g"),)
    assert answer.content == tokenizer.decode(spelled_out)


def test_reasoning_comes_before_calls_and_has_none() -> None:
    output = f"<think>\nMaybe {T}{G}</tool_call>?\n</think>\n\n{hermes(G)}"
    ids = real_tokenizer(QWEN3).encode(output)
    answer = join_pieces(parsed(QWEN3, HERMES, [ids], reasoning=Dialect.THINK))
    assert answer == Answer(f"Maybe {T}{G}</tool_call>?", "", (f("{}", "g"),))
    output = f"<think>Hm</think>\nI call.{deepseek(('g', '{}'))}"
    ids = real_tokenizer(QWEN3).encode(output)
    answer = join_pieces(parsed(QWEN3, DEEPSEEK, [ids], reasoning=Dialect.THINK))
    assert answer == Answer("Hm", "I call.", (f("{}", "g"),))


def test_a_character_ends_at_a_mark_in_its_own_place() -> None:
    tokenizer = real_tokenizer(QWEN3)
    [half, *rest] = tokenizer.encode("𝔘")
    [mark] = tokenizer.encode(T)
    decoder = IncrementalDecoder(tokenizer, marks={mark: "\ud800"})
    assert decoder.feed([half, mark]) == "\ufffd\ud800"
    assert decoder.feed([half, *rest]) == "𝔘"


@pytest.mark.parametrize("skips", [True, False])
def test_marks_within_reasoning_are_as_without_tools(skips: bool) -> None:
    output = f"<think>Use {T}, é</think>Then {T}?"
    ids = tokenizer_of(SPECIAL).encode(output, add_special_tokens=False)
    answers = [
        join_pieces(
            parsed(SPECIAL, HERMES, [ids], reasoning=Dialect.THINK, tools=tools, skips=skips)
        )
        for tools in (TOOLS, [])
    ]
    assert answers[0] == answers[1]
    assert (T in answers[0].reasoning, T in answers[0].content) == (not skips, not skips)
    assert "é" in answers[0].reasoning


def test_harmony_finds_its_calls_by_itself() -> None:
    output = "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}<|call|>"
    ids = tokenizer_of(GPT_OSS).encode(output)
    for tools in (TOOLS, []):
        pieces = parsed(GPT_OSS, ToolDialect.HARMONY, [ids], reasoning=Dialect.HARMONY, tools=tools)
        assert join_pieces(pieces) == said("", f("{}", "g"))


@pytest.mark.parametrize(("dialect", "output", "expected"), GOOD)
def test_without_tools_calls_are_content(
    dialect: ToolDialect, output: str, expected: Answer
) -> None:
    tokenizer = real_tokenizer(QWEN3)
    ids = tokenizer.encode(output)
    pieces = parsed(QWEN3, dialect, [[i] for i in ids], tools=[])
    assert join_pieces(pieces) == said(tokenizer.decode(ids))


def test_arguments_come_with_their_tokens() -> None:
    output = hermes('{"name": "g", "arguments": {"a": "one two three four"}}')
    ids = real_tokenizer(QWEN3).encode(output)
    pieces = parsed(QWEN3, HERMES, [[i] for i in ids])
    assert {piece.call for piece in pieces} == {Call(0, "g")}
    assert [p.text for p in pieces if "t" in p.text] == [" two", " three"]
    output = xml("get_x", s="one two three")
    pieces = parsed(QWEN3, XML, [[i] for i in real_tokenizer(QWEN3).encode(output)])
    assert [p.text for p in pieces][-5:] == ["one", " two", " three", '"', "}"]


def test_a_call_is_told_when_its_name_and_its_first_bracket_are_there() -> None:
    parts = ['<tool_call>\n{"name": "g"', ', "arguments": ', "{", "}", "}\n</tool_call>"]
    ids = [real_tokenizer(QWEN3).encode(part) for part in parts]
    for count, expected in ((2, []), (3, [Piece(Part.TOOL_CALL, "{", Call(0, "g"))])):
        pieces = parsed(QWEN3, HERMES, ids[:count])
        assert [piece for piece in pieces if piece.call] == expected


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
JSON_DIALECTS = [d for d, s in SYNTAXES.items() if s.encoding is Encoding.JSON]


@pytest.mark.parametrize("dialect", [d for d in JSON_DIALECTS if d is not ToolDialect.HARMONY])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_a_syntax_writes_is_read(dialect: ToolDialect, data: st.DataObject) -> None:
    arguments = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES)
    calls = data.draw(st.lists(st.tuples(NAMES, arguments), min_size=1, max_size=3))
    ascii_only = data.draw(st.booleans())
    syntax = SYNTAXES[dialect]
    written = [json.dumps(each, ensure_ascii=ascii_only) for _, each in calls]
    bodies = [
        syntax.begin(name) + text + syntax.end
        for (name, _), text in zip(calls, written, strict=True)
    ]
    output = syntax.opens + syntax.separator.join(bodies) + syntax.closes
    tools = [{"name": name} for name, _ in calls]
    size = data.draw(st.integers(1, 12))
    texts = [output[at : at + size] for at in range(0, len(output), size)]
    answer = answer_of_texts(dialect, texts, NOTHING_SPECIAL[dialect], tools)
    expected = [f(text, name) for (name, _), text in zip(calls, written, strict=True)]
    assert answer == said("", *expected)


@settings(deadline=None, max_examples=200)
@given(VALUES)
def test_pythons_literals_mean_the_same_in_json(value: Any) -> None:
    written = python_to_json(repr(value))
    assert written is not None
    assert json.loads(written) == value


@pytest.mark.parametrize(
    "literal",
    ["", "x", "1 2", "{1}", "{1: 2}", "f'a'", "'a' 'b'", "1, 2", "'a", "007", "(1,)", "__import__"],
)
def test_what_json_can_not_say_is_none(literal: str) -> None:
    assert python_to_json(literal) is None


@pytest.mark.parametrize(
    ("value", "types", "expected"),
    [
        ("5", {"integer"}, "5"),
        (" 5\n", {"integer"}, "5"),
        ("5.5", {"integer"}, '"5.5"'),
        ("5.5", {"number"}, "5.5"),
        ("-1e3", {"number"}, "-1e3"),
        ("NaN", {"number"}, '"NaN"'),
        ("05", {"integer"}, '"05"'),
        ("5", {"string", "integer"}, "5"),
        ("True", {"boolean"}, "true"),
        ("yes", {"boolean"}, '"yes"'),
        ("None", {"string", "null"}, "null"),
        ("nil", {"string", "null"}, '"nil"'),
        ('"nil"', {"string", "null"}, '"nil"'),
        (' "5"\n', {"string", "integer"}, '"5"'),
        ('"a", "b": "c"', {"string", "null"}, '"\\"a\\", \\"b\\": \\"c\\""'),
        ('"', {"string", "null"}, '"\\""'),
        ('{"a": 1}', {"object"}, '{"a": 1}'),
        ("{'a': 1}", {"object"}, '{"a": 1}'),
        ('{}, "b": {}', {"object"}, '"{}, \\"b\\": {}"'),
        ("[1", {"array"}, '"[1"'),
        ("{}", {"array"}, '"{}"'),
        ("{}", set(), "{}"),
        ("x", set(), '"x"'),
        ('"x"', set(), '"x"'),
        ('{"": 1, "": 2}', {"object"}, '{"": 1, "": 2}'),
        ('{"a": NaN}', {"object"}, '"{\\"a\\": NaN}"'),
        ("[" * 9000 + "]" * 9000, {"array"}, f'"{"[" * 9000}{"]" * 9000}"'),
        ("false", set(), "false"),
    ],
)
def test_a_value_becomes_json_of_its_types(value: str, types: set[str], expected: str) -> None:
    assert value_in_json(value, types) == expected


@pytest.mark.parametrize(
    ("own", "types"),
    [
        ({"$ref": "#/$defs/color"}, {"string"}),
        ({"$ref": "#/$defs/color", "default": "red"}, {"string"}),
        ({"allOf": [{"$ref": "#/$defs/color"}]}, {"string"}),
        ({"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}]}, {"string", "null"}),
        ({"$ref": "#/definitions/a~1b"}, {"integer"}),
        ({"$ref": "#/$defs/loop"}, {"null"}),
        ({"$ref": "#/$defs/absent"}, set()),
        ({"$ref": "#/properties/x"}, set()),
        ({"$ref": 5}, set()),
    ],
)
def test_a_parameter_has_the_types_of_what_it_refers_to(own: Any, types: set[str]) -> None:
    loop = [{"$ref": "#/$defs/loop"}] * 1000 + [{"type": "null"}]
    schema = {
        "properties": {"x": own},
        "$defs": {"color": {"enum": ["red", "blue"]}, "loop": {"anyOf": loop}},
        "definitions": {"a/b": {"type": "integer"}},
    }
    assert types_of(schema, "x") == types


@pytest.mark.parametrize(
    ("dialect", "before", "repeated"),
    [
        (HERMES, "", "\n"),
        (HERMES, "", "<"),
        (HERMES, "", "<tool_call>"),
        (HERMES, "", "<tool_call>\n"),
        (HERMES, '<tool_call>{"', "a"),
        (HERMES, '<tool_call>{"a": ', "["),
        (HERMES, '<tool_call>{"name": "g", "arguments": ', '{"a": '),
        (HERMES, '<tool_call>{"name": "g", "arguments": {"', "\\\\"),
        (XML, "<tool_call><function=get_x><parameter=s>", "\n"),
        (XML, "<tool_call><function=get_x><parameter=o>", "</param"),
        (XML, "<tool_call><function=g>", "\n"),
        (LLAMA, "[get_x(s=", "["),
        (LLAMA, "[get_x(s='", " x"),
        (LIST, "[TOOL_CALLS]", "["),
        (DEEPSEEK, "", "<｜tool▁calls▁begin｜>"),
    ],
)
def test_the_cost_of_a_text_does_not_grow_with_what_came_before(
    dialect: ToolDialect, before: str, repeated: str
) -> None:
    def seconds(count: int) -> float:
        texts = [before, *[repeated] * count]
        start = time.process_time()
        answer_of_texts(dialect, texts, NOTHING_SPECIAL[dialect])
        return time.process_time() - start

    short = min(seconds(1000) for _ in range(3))
    long = min(seconds(10_000) for _ in range(3))
    assert long < 30 * short  # ten times the text; a hundred times the work if all were redone
