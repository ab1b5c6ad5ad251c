"""Structural tags: which texts they have, by llguidance and by our own recognizer."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.grammar.decide import matches
from inferno.grammar.json_schema import compile_schema
from inferno.grammar.lark import marks_of
from inferno.grammar.recognizer import Recognizer, text_of_mark
from inferno.grammar.rules import START, Grammar, Mark, Terminal
from inferno.grammar.structural_tag import UnsupportedTag, compile_structural_tag
from tests.grammar.acceptor import Acceptor


def schema(content: Any) -> Any:
    return {"type": "json_schema", "json_schema": content}


INTEGER = schema({"type": "integer"})
ANY = {"type": "any_text"}


def regex(pattern: str) -> Any:
    return {"type": "regex", "pattern": pattern}


def tag(content: Any, begin: str = "<a>", end: str = "</a>") -> Any:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Any) -> Any:
    texts = [{"type": "const_string", "value": e} if isinstance(e, str) else e for e in elements]
    return {"type": "sequence", "elements": texts}


def either(*elements: Any) -> Any:
    return {"type": "or", "elements": elements}


def triggered(**options: bool) -> Any:
    tags = [tag(INTEGER), tag(INTEGER, "<ab>", "</ab>")]
    return {"type": "triggered_tags", "triggers": ["<a"], "tags": tags, **options}


def separated(separator: str, *tags: Any, **options: bool) -> Any:
    listed = tags or [tag(INTEGER)]
    return {"type": "tags_with_separator", "tags": listed, "separator": separator, **options}


def grammar_of(format: Any, **special_tokens: int) -> Grammar:
    whole = {"type": "structural_tag", "format": format}
    return compile_structural_tag(whole, special_tokens, compile_schema)


ONCE: dict[str, bool] = {"stop_after_first": True, "at_least_one": True}
CASES: list[tuple[Any, list[str], list[str]]] = [
    (tag(ANY), ["<a>x</a>", "<a></a>", "<a>x<</a</a>"], ["<a>x", "<a>x</a>y", "<a></a></a>"]),
    (tag(regex("[a-z<>/]*")), ["<a>x</a>", "<a></a>", "<a></a></a>"], ["<a>x", "<a>1</a>"]),
    (tag(regex("[0-9]+")), ["<a>12</a>"], ["<a></a>", "<a>x</a>"]),
    (tag(sequence(ANY, ".")), ["<a>x.</a>", "<a>.</a>"], ["<a>x</a>", "<a>x.y.</a>"]),
    (sequence(ANY, "E", "ND"), ["END", "xEEND"], ["x", "xENDy", "ENDEND"]),
    (sequence(tag(ANY), tag(ANY), INTEGER), ["<a></a><a>5</a>5"], ["<a></a>5", "<a></a><a></a>"]),
    (sequence(tag(ANY), ANY), ["<a>x</a>", "<a>x</a>y</a>"], ["<a>x"]),
    (sequence(regex("a?"), regex("b?")), ["", "a", "b", "ab"], ["ba"]),
    (sequence(ANY, ANY), ["", "a"], []),
    (triggered(), ["", "x<", "<a>1</a>", "x<a>1</a>y<ab>2</ab>z<"], ["<a", "<a>x", "x<a>1"]),
    (triggered(at_least_one=True), ["<a>1</a>", "x<a>1</a>y"], ["", "x"]),
    (triggered(stop_after_first=True), ["", "x", "x<a>1</a>"], ["<a>1</a>y", "<a>1</a><a>1</a>"]),
    (triggered(**ONCE), ["<a>1</a>", "x<a>1</a>"], ["", "x", "<a>1</a>y"]),
    (
        tag(triggered(), "<t>", "</t>"),
        ["<t></t>", "<t>x</t>", "<t>x<a>1</a>y</t>", "<t><ab>2</ab></t>"],
        ["<t>x", "<t><a>1</a>", "<t><a>x</a></t>"],
    ),
    (
        tag(triggered(stop_after_first=True), "<t>", "</t>"),
        ["<t></t>", "<t>x</t>", "<t>x<a>1</a></t>"],
        ["<t>x<a>1</a>y</t>", "<t>x"],
    ),
    (tag(triggered(**ONCE), "<t>", "</t>"), ["<t>x<a>1</a></t>"], ["<t>x</t>", "<t></t>"]),
    (tag(sequence("x", ANY)), ["<a>xy</a>", "<a>x</a>"], ["<a>y</a>", "<a>xy</a>z</a>"]),
    (separated(";"), ["", "<a>1</a>", "<a>1</a>;<a>2</a>"], ["<a>1</a>;", ";"]),
    (sequence(INTEGER, "."), ["5.", "-10."], ["5", "5.5", "."]),
    (sequence(schema({"type": ["string", "integer"]}), "a"), ['"5"a', "5a"], ['"5a"', "5"]),
    (separated(",", tag(INTEGER, "", "")), ["", "5", "5,6"], ["5,", ",5"]),
    (separated("0", tag(INTEGER, "", ""), **ONCE), ["5", "50"], ["", "5,0"]),
    (either(sequence("ab"), sequence("abc")), ["ab", "abc"], ["abcd", "a"]),
    (separated("", **ONCE), ["<a>1</a>"], ["", "<a>1</a><a>1</a>"]),
]


@pytest.mark.parametrize(("format", "good", "bad"), CASES, ids=lambda each: str(each)[:40])
def test_a_tag_has_these_texts_and_not_those(format: Any, good: list[str], bad: list[str]) -> None:
    grammar = grammar_of(format)
    acceptor, recognizer = Acceptor(grammar), Recognizer(grammar)

    def is_recognized(text: str) -> bool:
        state = recognizer.advance(recognizer.start, text.encode())
        return state is not None and state.is_end

    for accepts in (acceptor.accepts, is_recognized):
        assert [text for text in good if not accepts(text)] == []
        assert [text for text in bad if accepts(text)] == []


@pytest.mark.parametrize(
    "content",
    [
        either(INTEGER, ANY),
        either(INTEGER, regex("yes|no<?")),
        either(INTEGER, either(regex("a"), regex("[^b]*"))),
    ],
)
def test_a_choice_that_may_go_on_behind_its_end_is_refused(content: Any) -> None:
    with pytest.raises(UnsupportedTag, match="#/format/content may go on behind the end"):
        grammar_of(tag(content))
    grammar_of(tag(content, end=""))


@pytest.mark.parametrize(
    "format",
    [
        tag(sequence("x", either(ANY, sequence("y")))),
        sequence(either(ANY, sequence("y")), "END"),
        sequence(ANY, either(sequence("x"), sequence("y"))),
        sequence(regex("[0-9]+"), INTEGER),
        sequence(ANY, INTEGER),
        either(sequence("x", ANY, separated(";", at_least_one=True))),
        sequence(INTEGER, "0"),
        sequence(schema({"type": "number"}), "."),
        sequence(schema({"enum": ["a", None, 1, 12]}), "2"),
        sequence(either(schema({"type": ["string", "integer"]}), sequence("x")), "5"),
        tag(INTEGER, end="0>"),
        sequence(either(sequence("ab"), sequence("abc")), "cd"),
        sequence(either(schema({"const": 1}), regex("12?")), "2"),
        separated("1", tag(INTEGER, "", "")),
        separated("", tag(regex("..|..."), "", "")),
    ],
    ids=lambda each: str(each)[:60],
)
def test_a_text_that_may_go_on_over_what_must_follow_it_is_refused(format: Any) -> None:
    with pytest.raises(UnsupportedTag, match="may go on behind the end of a part"):
        grammar_of(format)


def test_any_text_may_go_on_over_what_need_not_follow_it() -> None:
    for format in (sequence(ANY, triggered()), sequence(ANY, separated(";"))):
        answers = Acceptor(grammar_of(format))
        assert answers.accepts("x")
        assert answers.accepts("x<a>1</a>")


def test_any_text_comes_to_a_special_token_whatever_may_stand_before_that() -> None:
    called = {"type": "triggered_tags", "triggers": ["<c>"], "tags": [tag(INTEGER, "<c>", "<e>")]}
    tokens = {"<c>": 7, "<e>": 8}
    recognizer = Recognizer(grammar_of(sequence(ANY, {**called, "at_least_one": True}), **tokens))
    text = b"x" + text_of_mark(7) + b"5" + text_of_mark(8)
    state = recognizer.advance(recognizer.start, text)
    assert state is not None
    assert state.is_end


def test_triggers_with_special_tokens_in_them_mean_these_tokens() -> None:
    tags = [tag(INTEGER, "<c>one<m>", "<e>"), tag(ANY, "<c>two<m>", "<e>"), tag(ANY, "x<m>", "<e>")]
    called = {"type": "triggered_tags", "triggers": ["<c>one", "<c>two", "x<m>"], "tags": tags}
    c, m, e = map(text_of_mark, (7, 8, 9))
    grammar = grammar_of(called, **{"<c>": 7, "<m>": 8, "<e>": 9})
    assert marks_of(grammar) == {7, 8, 9}
    recognizer = Recognizer(grammar)

    def is_recognized(text: bytes) -> bool:
        state = recognizer.advance(recognizer.start, text)
        return state is not None and state.is_end

    good = (b"", b"a x", c + b"one" + m + b"5" + e, b"a" + c + b"two" + m + b"b" + e + b"c")
    assert all(map(is_recognized, (*good, b"axx" + m + b"b" + e, b"<c>one")))
    bad = (c, c + b"x", c + b"one" + m + b"b" + e, b"a" + m + b"b" + e, c + b"one<m>5" + e)
    assert not any(map(is_recognized, bad))


def test_a_trigger_that_ends_within_a_special_token_is_refused() -> None:
    called = {"type": "triggered_tags", "triggers": ["<c"], "tags": [tag(ANY, "<call>", "</a>")]}
    with pytest.raises(UnsupportedTag, match="'<c' ends within one of the model's special tokens"):
        grammar_of(called, **{"<call>": 7})
    grammar_of(called, **{"</a>": 7})


def test_a_choice_of_what_has_an_end_comes_to_it() -> None:
    content = either(INTEGER, regex("yes|no"), either(regex("a+")))
    answers = Acceptor(grammar_of(tag(content)))
    for text in ("5", "yes", "no", "aa"):
        assert answers.accepts(f"<a>{text}</a>"), text
    assert not answers.accepts("<a>maybe</a>")


def test_any_text_before_a_special_token_has_what_stands_before_that() -> None:
    [symbols] = grammar_of(tag(ANY, end="\n<e>"), **{"<e>": 7}).rules[START]
    text, mark = symbols
    assert mark == Mark(7)
    assert isinstance(text, Terminal)
    assert matches(text.regex, "<a>x\ny\n")
