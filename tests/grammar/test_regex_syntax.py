"""Reading of regular expressions, against Python's `re` and JSON Schema's own test suite."""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.grammar.automaton import Automaton
from inferno.grammar.regex import (
    Chars,
    Regex,
    UnsupportedRegex,
    alt,
    literal,
    repeat,
    seq,
)
from inferno.grammar.syntax import parse_pattern, parse_regex
from tests.data import data_path

# Where Python and ECMA-262 agree: `$` is written \Z for Python, to which it is the end only then.
TEXTS = ["".join(each) for n in range(5) for each in product("ab\n", repeat=n)]
LEAVES = (
    *("a", "b", "", ".", "^", "$", "[ab]", "[^a]", r"\n", r"\x61", r"\u0062", r"[a\-b]", r"\x0A"),
    *(r"\w", r"\W", r"\s", r"\S", r"\d", r"\D", r"[\w-]", r"[^\s]", "^a", "b$"),
)
QUANTIFIERS = ("*", "+", "?", "{2}", "{1,}", "{0,2}", "{2,3}", "*?", "+?", "??", "{1,2}?")


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sequence = st.lists(inner, min_size=1, max_size=3).map("".join)
    choice = st.lists(inner, min_size=1, max_size=3).map("|".join)
    group = st.sampled_from(("({})", "(?:{})"))
    grouped = st.builds(lambda form, text: form.format(text), group, choice | sequence)
    counted = st.builds(lambda text, sign: f"(?:{text}){sign}", inner, st.sampled_from(QUANTIFIERS))
    return sequence | grouped | counted


patterns = st.recursive(st.sampled_from(LEAVES), _grown, max_leaves=8)


def matching(regex: Regex, texts: list[str]) -> set[str]:
    automaton = Automaton(regex)
    return {
        text for text in texts if automaton.accepts(automaton.run(automaton.start, text.encode()))
    }


@given(patterns)
@settings(max_examples=400, deadline=None)
def test_a_pattern_is_found_where_python_finds_it(pattern: str) -> None:
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    found = {text for text in TEXTS if expected.search(text)}
    assert matching(parse_pattern(pattern), TEXTS) == found, pattern


@given(patterns)
@settings(max_examples=400, deadline=None)
def test_a_regex_matches_whole_texts_as_in_python(pattern: str) -> None:
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    assert matching(parse_regex(pattern), TEXTS) == set(filter(expected.fullmatch, TEXTS)), pattern


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "^(?:^|a){3}$",
            "^(?:a|$){3}$",
            "(?:^|a|$){2,3}b",
            "(?:^a?){2}b",
            "(?:a$|^b)+",
            "(^|b)a(b|$)",
        ),
        *(
            "(?:a{1,2}|a{4})b",
            "a{1,2}a{0,1}b",
            "(?:a{2}){0,2}",
            "(?:a{2,}){0,2}b?",
            "(?:a?b{0,2}){2}",
        ),
        *("a*?b", "a+?", "(?:ab?)??", "(?:a{2}?b?){2}", "^$|^a", "$^", "a||b", "(|a)b", "(a|)+"),
    ],
)
def test_anchors_and_counts_are_pythons(pattern: str) -> None:
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    found = {text for text in TEXTS if expected.search(text)}
    assert matching(parse_pattern(pattern), TEXTS) == found
    assert matching(parse_regex(pattern), TEXTS) == set(filter(expected.fullmatch, TEXTS))


@given(patterns, patterns, st.booleans())
@settings(max_examples=300, deadline=None)
def test_lookaheads_at_the_start_are_pythons(ahead: str, pattern: str, is_demanded: bool) -> None:
    whole = f"^(?{'=' if is_demanded else '!'}{ahead})(?:{pattern})"
    expected = re.compile(whole.replace("$", r"\Z"), re.ASCII)
    found = {text for text in TEXTS if expected.search(text)}
    assert matching(parse_pattern(whole), TEXTS) == found, whole
    full = set(filter(expected.fullmatch, TEXTS))
    assert matching(parse_regex(whole), TEXTS) == full, whole
    assert matching(parse_regex(whole.removeprefix("^")), TEXTS) == full, whole


@pytest.mark.parametrize("escape", [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "."])
def test_a_regex_s_classes_are_those_of_python_in_ascii_mode(escape: str) -> None:
    expected = re.compile(escape, re.ASCII)
    regex = parse_regex(escape)
    assert isinstance(regex, Chars)
    members = {code for first, last in regex.ranges for code in range(first, last + 1)}
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert members == {code for code in codes if expected.match(chr(code))}


def test_a_pattern_s_white_space_is_that_of_ecma_262() -> None:
    """By its definition: six controls and the byte order mark, line ends, and Unicode's spaces."""
    spaces = {"\t", "\n", "\v", "\f", "\r", "\ufeff", "\u2028", "\u2029"}
    spaces |= {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Zs"}
    expected = alt(*map(literal, sorted(spaces)))
    assert parse_pattern(r"^\s$") == expected
    assert parse_pattern(r"^[^\S]$") == expected
    assert parse_pattern("^[^.]$") != parse_pattern("^.$")
    others = "a\u2028\u2029\r\n\x85"
    assert matching(parse_pattern("^.$"), list(others)) == {"a", "\x85"}


@pytest.mark.parametrize("name", ["L", "Lu", "Nd", "P", "Zs", "C", "Cn", "Co"])
def test_categories_are_unicodes(name: str) -> None:
    inside = parse_pattern(rf"^\p{{{name}}}$")
    outside = parse_pattern(rf"^\P{{{name}}}$")
    codes = [*range(0, 0xD800, 7), *range(0xE000, 0x110000, 101)]
    expected = {chr(code) for code in codes if unicodedata.category(chr(code)).startswith(name)}
    texts = list(map(chr, codes))
    assert matching(inside, texts) == expected
    assert matching(outside, texts) == set(texts) - expected
    assert parse_regex(rf"\p{{^{name}}}") == outside


@pytest.mark.parametrize(
    ("long", "short"),
    [
        (r"\p{Letter}", r"\p{L}"),
        (r"\p{gc=Lu}", r"\p{Uppercase_Letter}"),
        (r"\p{General_Category=digit}", r"\p{Nd}"),
        (r"\p{ASCII}", r"[\x00-\x7f]"),
        (r"\p{LC}", r"[\p{Lu}\p{Ll}\p{Lt}]"),
        (r"\p{Any}", r"[\s\S]"),
    ],
)
def test_categories_have_several_names(long: str, short: str) -> None:
    assert parse_pattern(f"^{long}$") == parse_pattern(f"^{short}$")


@pytest.mark.parametrize("file", ["pattern", "optional/ecmascript-regex", "optional/non-bmp-regex"])
def test_the_official_suite_s_patterns_are_found(file: str) -> None:
    groups = json.loads(data_path("json-schema", "draft2020-12", f"{file}.json").read_text())
    count = 0
    for group in groups:
        pattern = group["schema"].get("pattern")
        if pattern is None:
            continue
        regex = parse_pattern(pattern)
        for case in group["tests"]:
            if isinstance(case["data"], str):
                is_found = bool(matching(regex, [case["data"]]))
                assert is_found == case["valid"], (pattern, case)
                count += 1
    assert count


@pytest.mark.parametrize(
    ("pattern", "regex"),
    [
        (r"^\u0061\x62\u{63}\t\cA\0\/$", literal("abc\t\x01\0/")),
        (r"^\uD83D\uDE00$", literal("\U0001f600")),
        (r"^\u{1F600}$", literal("\U0001f600")),
        ("^(?<name>a)$", literal("a")),
        ("^[]$", Chars(())),
        ("^[^]$", Chars(((0, 0xD7FF), (0xE000, 0x10FFFF)))),
        (r"^[\b]$", literal("\b")),
        (r"^[\w.-]+$", repeat(alt(parse_regex(r"[A-Za-z0-9_.\-]")), 1, None)),
        (r"^[\w-.]+$", repeat(alt(parse_regex(r"[A-Za-z0-9_.\-]")), 1, None)),
        ("^{a}$", literal("{a}")),
        ("^a{,}]$", literal("a{,}]")),
        (r"^\-\_\@$", literal("-_@")),
        ("^(^a)b$|^c$", alt(literal("ab"), literal("c"))),
        ("a^b", Chars(())),
    ],
)
def test_patterns_are_read_as_ecma_262_says(pattern: str, regex: Regex) -> None:
    assert parse_pattern(pattern) == regex


@pytest.mark.parametrize(
    ("pattern", "regex"),
    [
        (r"\Aa\Z", literal("a")),
        (r"a\z", literal("a")),
        ("(?P<name>a)(?<other>b)", literal("ab")),
        ("[]a]", alt(literal("]"), literal("a"))),
        ("[^]]", parse_regex(r"[^\]]")),
        (r"\x{1F600}\U0001F600\a", literal("\U0001f600\U0001f600\a")),
        ("a{,2}", repeat(literal("a"), 0, 2)),
        (r"\pL", parse_regex(r"\p{L}")),
        ("a.c", seq(literal("a"), parse_regex(r"[^\n]"), literal("c"))),
    ],
)
def test_regexes_are_read_as_python_and_rust_say(pattern: str, regex: Regex) -> None:
    assert parse_regex(pattern) == regex


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("(a", "without an end at position 0"),
        ("a)", "closing parenthesis .* position 1"),
        ("x[a", "class without an end at position 1"),
        ("[a-", "class without an end"),
        ("a|*", "quantifier of nothing at position 2"),
        ("{2}", "quantifier of nothing"),
        ("a**", "quantifier of a quantifier at position 2"),
        ("a*+", "quantifier of a quantifier"),
        ("a{2}{3}", "quantifier of a quantifier at position 4"),
        ("^*", "quantifier of an anchor"),
        ("a{3,2}", "wrong way round"),
        ("[b-a]", "wrong way round"),
        ("a{10001}", "repetitions above 10000"),
        ("a{1,99999999999999999999}", "repetitions above 10000"),
        (r"(a)\1", "backreference .* position 3"),
        (r"(?<n>a)\k<n>", "backreference"),
        ("a(?=b)", "lookahead .* position 1"),
        ("^(?!a)b|c", "lookahead in one of several"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        ("(?<1>a)", "name is damaged"),
        ("(?<n", "name is damaged"),
        (r"\bword", "word boundary"),
        (r"\B", "word boundary"),
        ("(?i)a", "a flag"),
        ("(?>a)", "atomic group"),
        ("(?#a)", "comment"),
        ("(?(1)a)", "conditional"),
        ("(?P=n)", "backreference"),
        (r"\q", r"escape \\q"),
        ("\\", "backslash at the end"),
        (r"\u12", "number that is damaged"),
        (r"\u{}", "number that is damaged"),
        (r"\u{12", "number that is damaged"),
        (r"\u{110000}", "last character"),
        (r"\xg0", "number that is damaged"),
        (r"\ud800", "surrogate"),
        ("\ud800", "surrogate"),
        (r"\p{Script=Greek}", "general category"),
        (r"\p{", "general category"),
        (r"\p{Cs}", "general category"),
        (r"\01", "octal"),
        ("(" * 31 + ")" * 31, "more than 30 others"),
    ],
)
def test_what_is_damaged_or_not_regular_is_refused_by_name(pattern: str, construct: str) -> None:
    for parse in (parse_pattern, parse_regex):
        with pytest.raises(UnsupportedRegex, match=construct):
            parse(pattern)


@pytest.mark.parametrize(
    "pattern", ["[a[b]", "[a&&b]", "[a--b]", "[[:alpha:]]", "[a~~b]", "[a||b]"]
)
def test_what_rust_takes_for_operators_on_sets_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedRegex, match="needs a backslash"):
        parse_regex(pattern)


@pytest.mark.parametrize(
    "pattern", [r"\cA", r"\c", "a{,2}", r"\x{61}", r"\Aa", r"\z", r"\a", r"\pL"]
)
def test_what_only_one_of_the_notations_has_is_refused_by_the_other(pattern: str) -> None:
    accepted = []
    for parse in (parse_pattern, parse_regex):
        try:
            accepted.append(parse(pattern))
        except UnsupportedRegex:
            continue
    assert len(accepted) <= 1


def test_what_is_too_long_or_too_large_is_refused() -> None:
    with pytest.raises(UnsupportedRegex, match="20001 characters; at most 20000"):
        parse_pattern("a" * 20_001)
    with pytest.raises(UnsupportedRegex, match="anchors"):
        parse_pattern("(?:(?:^a?|,)b?)*" * 1000)


@given(st.text(alphabet="ab^$.|()[]{}*+?\\-,:=!<>dwsbpPux01{}LN\n\ud800é", max_size=40))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_refused(pattern: str) -> None:
    for parse in (parse_pattern, parse_regex):
        try:
            parse(pattern)
        except UnsupportedRegex:
            continue
