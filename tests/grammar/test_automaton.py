"""Automata of regular expressions, against lists of all short texts and against llguidance."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from inferno.grammar.automaton import Automaton
from inferno.grammar.printing import to_llguidance
from inferno.grammar.regex import (
    ANY,
    ANY_TEXT,
    EMPTY,
    MAX_DEPTH,
    NOTHING,
    Regex,
    Repeat,
    Seq,
    TooComplex,
    UnsupportedRegex,
    alt,
    both,
    chars,
    literal,
    repeat,
    seq,
    without,
)
from inferno.grammar.syntax import parse_pattern, parse_regex
from tests.grammar.languages import TEXTS, language, trees

STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"'


def matches(regex: Regex, text: bytes) -> bool:
    automaton = Automaton(regex)
    return automaton.accepts(automaton.run(automaton.start, text))


@given(trees())
@settings(max_examples=150, deadline=None)
def test_what_is_accepted_is_the_language(tree: Regex) -> None:
    automaton = Automaton(tree)
    accepted = {
        text for text in TEXTS if automaton.accepts(automaton.run(automaton.start, text.encode()))
    }
    assert accepted == language(tree)


@given(trees())
@settings(max_examples=80, deadline=None)
def test_distance_and_shortest_are_those_of_the_shortest_text(tree: Regex) -> None:
    automaton = Automaton(tree)
    texts = [text.encode() for text in language(tree)]
    beginnings = {
        text.encode()[:cut] for text in TEXTS[::3] for cut in range(len(text.encode()) + 1)
    }
    for begun in beginnings:
        state = automaton.run(automaton.start, begun)
        left = [len(text) - len(begun) for text in texts if text.startswith(begun)]
        distance = automaton.distance(state)
        # All that is left could be longer than the texts in the list, but then not the nearest.
        if left:
            assert distance is not None
            assert distance <= min(left)
        if distance is None:
            assert state == automaton.DEAD
            continue
        assert state != automaton.DEAD
        rest = automaton.shortest(state)
        assert len(rest) == distance
        assert automaton.accepts(automaton.run(state, rest))
        whole = (begun + rest).decode()
        if whole in TEXTS:
            assert whole in language(tree)
            assert distance == min(left)


@given(trees())
@settings(max_examples=100, deadline=None)
def test_a_state_can_go_on_where_a_byte_leads_to_a_state_that_lives(tree: Regex) -> None:
    automaton = Automaton(tree)
    for text in TEXTS[::5]:
        state = automaton.run(automaton.start, text.encode())
        found = {
            byte: following
            for first, last, following in automaton.ranges(state)
            for byte in range(first, last + 1)
        }
        only = next(iter(found)) if len(found) == 1 else None
        assert automaton.only_byte(state) == only
        assert found == {
            byte: automaton.next(state, byte)
            for byte in range(256)
            if automaton.next(state, byte) != automaton.DEAD
        }
        assert automaton.can_go_on(state) == bool(found)
        assert state != automaton.DEAD or not found


@pytest.mark.parametrize(
    "regex", [ANY_TEXT, without(literal("a")), repeat(chars((0, 0x10FFFF)), 1, None)]
)
def test_only_whole_characters_match(regex: Regex) -> None:
    """Python's own decoder says which bytes are UTF-8: all first two bytes, with some more."""
    automaton = Automaton(regex)
    for first in range(0x80, 256):
        for second in range(256):
            text = bytes((first, second))
            for whole in (text, text + b"\x80", text + b"\xbf\x80", text + b"\x80\x80"):
                state = automaton.run(automaton.start, whole)
                assert automaton.accepts(state) == _is_utf8(whole), whole


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        (literal("é€\U0001f600"), "é€\U0001f600"),
        (chars((0x7F, 0x80), (0x7FF, 0x800), (0xFFFF, 0x10000)), "\x7f"),
        (seq(chars((0x800, 0x10FFFF)), literal("x")), "\u0800x"),
        (seq(chars((0x20000, 0x10FFFF)), literal("x")), "\U00020000x"),
        (both(ANY, without(chars((0, 0x7FF)))), "\u0800"),
        (both(repeat(ANY, 2, 2), without(parse_regex("[\x00-\x7f]*"))), "a\x80"),
    ],
)
def test_a_shortest_text_counts_the_bytes_of_its_characters(regex: Regex, text: str) -> None:
    automaton = Automaton(regex)
    assert automaton.distance(automaton.start) == len(text.encode())
    assert len(automaton.shortest(automaton.start)) == len(text.encode())
    assert matches(regex, automaton.shortest(automaton.start))


@pytest.mark.parametrize(
    ("pattern", "favoured", "text"),
    [
        ("[a-z ]{3}", b" ", b"   "),
        ("[a-z ]{3}", b"-z", b"zzz"),
        ("[0-9a-f]{4}", b"0", b"0000"),
        ("[^a]{2}", b"", b"\x00\x00"),
        ("(xy|-){2}", b"x", b"--"),
        ("a*", b"a", b""),
        (".{300}", b"-", b"-" * 300),
    ],
)
def test_favoured_bytes_are_taken_where_they_are_as_good(
    pattern: str, favoured: bytes, text: bytes
) -> None:
    automaton = Automaton(parse_regex(pattern))
    assert automaton.shortest(automaton.start, favoured) == text


def test_nothing_completes_what_is_dead() -> None:
    automaton = Automaton(NOTHING)
    assert automaton.start == automaton.DEAD
    assert automaton.distance(automaton.DEAD) is None
    assert not automaton.accepts(automaton.DEAD)
    assert not automaton.can_go_on(automaton.DEAD)
    with pytest.raises(ValueError, match="can't match"):
        automaton.shortest(automaton.DEAD)


@pytest.mark.parametrize(
    "regex",
    [
        both(parse_regex("(aa)+"), parse_regex("(aa)*a")),
        both(parse_regex("(a{7})+"), parse_regex("(a{11})+b?c")),
        both(parse_regex("[a-z]+"), without(parse_regex("[a-y]*z?.*"))),
        seq(literal("a"), both(literal("b"), without(literal("b")))),
        both(parse_regex(".{10,}"), parse_regex("(ab?){0,3}")),
    ],
)
def test_a_language_without_texts_is_dead_from_the_start(regex: Regex) -> None:
    assert Automaton(regex).start == Automaton.DEAD


def test_long_counts_cost_few_states() -> None:
    automaton = Automaton(parse_regex("[a-z]{3,500}x?.{1000}"))
    assert automaton.distance(automaton.start) == 1003
    automaton.run(automaton.start, b"abcd")
    assert len(automaton._known) < 10


def test_intersections_with_long_counts_are_answered() -> None:
    automaton = Automaton(both(parse_regex("(abc|de)+"), parse_regex(".{500}")))
    assert automaton.distance(automaton.start) == 500
    thousands = Automaton(both(*(parse_regex(f"(a{{{n}}})+") for n in (7, 11, 13))))
    assert thousands.shortest(thousands.start) == b"a" * 1001


def test_json_strings_are_known_byte_by_byte() -> None:
    automaton = Automaton(parse_regex(STRING))
    states = {
        text: automaton.run(automaton.start, text) for text in (b'"', b'"\\', b'"\\u0', b'""')
    }
    assert [automaton.distance(state) for state in states.values()] == [1, 2, 4, 0]
    assert automaton.shortest(states[b'"\\u0'], b"0") == b'000"'
    assert not automaton.can_go_on(states[b'""'])
    assert automaton.run(automaton.start, b'"a\n') == automaton.DEAD
    assert automaton.run(automaton.start, b'"a"b') == automaton.DEAD


def test_thousands_of_words_are_walked_and_left_out() -> None:
    chance = random.Random(7)
    words = sorted({"".join(chance.choices("abcd", k=chance.randint(1, 9))) for _ in range(2000)})
    one_of_them = Automaton(alt(*map(literal, words)))
    none_of_them = Automaton(without(alt(*map(literal, words))))
    for text in [*words[::7], *(word + "a" for word in words[::7])]:
        state = one_of_them.run(one_of_them.start, text.encode())
        assert one_of_them.accepts(state) == (text in words)
        state = none_of_them.run(none_of_them.start, text.encode())
        assert none_of_them.accepts(state) == (text not in words)


def test_states_are_bounded() -> None:
    automaton = Automaton(parse_regex("[a-z]*"), max_states=50)
    automaton.run(automaton.start, b"abc" * 1000)
    automaton = Automaton(parse_regex("[ab]*a[ab]{20}"), max_states=50)
    text = random.Random(3).choices(b"ab", k=1000)
    with pytest.raises(TooComplex, match="states"):
        automaton.run(automaton.start, bytes(text))


def test_a_tree_that_is_too_deep_is_refused() -> None:
    deep: Regex = literal("a")
    for index in range(MAX_DEPTH - 1):
        deep = without(Seq((literal("x"), deep))) if index % 2 else Repeat(Seq((deep, ANY)), 0, 9)
    with pytest.raises(TooComplex, match="levels deep"):
        Automaton(deep)


def _in_a_row(piece: str, times: int) -> str:
    return piece * times


def _nested(piece: str, times: int) -> str:
    head, tail = piece.split("@")
    return head * times + "a" + tail * times


HOSTILE: list[tuple[Callable[[str, int], str], str]] = [
    (_nested, "(@{1,100})"),
    (_nested, "(?:@b?){1,100}"),
    (_nested, "(@?b?){0,10000}"),
    (_nested, "(@|b)*"),
    (_nested, "(@c|a?){2,7}"),
    (_nested, "(^@)?"),
    (_nested, "(@$|b)*"),
    (_nested, "(?:^|@|$){3}"),
    (_in_a_row, "(a?){100}"),
    (_in_a_row, "a?"),
    (_in_a_row, "(ab?c?)*"),
    (_in_a_row, "a{0,10000}b{0,10000}"),
    (_in_a_row, "(a|b)*a(a|b){100}"),
    (_in_a_row, "[ab]{0,99}[bc]{0,99}"),
    (_in_a_row, r"\p{L}\P{L}\p{Lu}"),
    (_in_a_row, "[^a]|"),
    (_in_a_row, "(a|ab|abc){50}"),
    (_in_a_row, "^(?=.*a)"),
    (_in_a_row, "(^a|b$)*"),
    (_in_a_row, "x{1}"),
]


@pytest.mark.parametrize(("grow", "piece"), HOSTILE)
@pytest.mark.parametrize("times", [2, 5, 10, 25, 60, 150, 400, 1000, 3000, 9000])
def test_hostile_expressions_are_refused_or_answered(
    grow: Callable[[str, int], str], piece: str, times: int
) -> None:
    """What a state and a step may cost is bounded, so that each ends; none calls itself deeply."""
    pattern = grow(piece, times)
    for parse in (parse_pattern, parse_regex):
        try:
            regex = parse(pattern)
            automaton = Automaton(regex, max_states=200)
            state = automaton.run(automaton.start, b"ab" * 10 + "aé".encode())
            assert (automaton.distance(state) is None) == (state == automaton.DEAD)
            both_ways = Automaton(both(regex, without(literal("a"))), max_states=500)
            both_ways.distance(both_ways.run(both_ways.start, b"abab"))
        except (UnsupportedRegex, TooComplex):
            continue


@given(trees())
@settings(max_examples=60, deadline=None)
def test_llguidance_accepts_the_same_texts(tree: Regex) -> None:
    _assert_llguidance_agrees(tree, [text.encode() for text in TEXTS[::3]])


@pytest.mark.parametrize(
    ("regex", "texts"),
    [
        (parse_regex(STRING), ['"a\\n"', '"a\n"', '"é\U0001f600\\u00e9"', '"\\u00g"', '"/"']),
        (literal("/^$.*+?()[]{}|\\\"'\n\r\t\0\x7f\u2028\U0010ffff#&~-"), ["/^$", "a"]),
        (parse_regex(r"[]/\\^\-\[&~\n\"']+"), ["]/\\^-[&~\n\"'", "a", "]a"]),
        (both(parse_regex("[a-z]+"), without(parse_regex("foo|bar"))), ["foo", "fo", "bars", "x"]),
        (seq(literal("<"), without(parse_regex(".*>.*")), literal(">")), ["<a>", "<a>>", "<\n>"]),
        (repeat(both(ANY, without(literal("b"))), 2, 3), ["aa", "ab", "aaaa"]),
        (without(repeat(both(ANY, without(literal("b"))), 2, 3)), ["aa", "ab", "aaaa", "", "b"]),
        (alt(EMPTY, seq(without(EMPTY), literal("b"))), ["", "b", "ab", "é"]),
        (parse_pattern(r"^(?!\s*$)\S.{0,8}\S$"), ["  ", "a b", "a ", "abcdefghijk"]),
        (parse_pattern(r"\p{Lu}\d|^x"), ["aÉ1", "x", "yx", "É"]),
    ],
)
def test_llguidance_reads_what_is_written_for_it(regex: Regex, texts: list[str]) -> None:
    _assert_llguidance_agrees(regex, [text.encode() for text in texts])


def _assert_llguidance_agrees(regex: Regex, texts: list[bytes]) -> None:
    llguidance = pytest.importorskip("llguidance")
    right_side = to_llguidance(regex)
    assert re.fullmatch(r"[ -~]*", right_side)
    grammar = llguidance.LLMatcher.grammar_from_lark(f"start: T\nT: {right_side}")
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    automaton = Automaton(regex)
    for text in texts:
        taken = matcher.deep_copy()
        state = automaton.start
        for byte in text:
            state = automaton.next(state, byte)
            assert bool(taken.try_consume_tokens([byte])) == (state != automaton.DEAD)
            if state == automaton.DEAD:
                break
        else:
            assert taken.is_accepting() == automaton.accepts(state)
