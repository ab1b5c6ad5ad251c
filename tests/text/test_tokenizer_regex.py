"""Patterns that could take forever are refused, those of real models are not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno.text.tokenizer_regex import read_pattern
from tests.data import data_path

HOSTILE = {
    r"(a+)+$": "more than one way",
    r"(?:a|a)*b": "more than one way",
    r"(?:[ax]|[ay])*b": "more than one way",
    r"(?:a?){30}b": "more than one way",
    r"(?:.*b)*": "more than one way",
    r"(?:a{1,3})+b": "more than one way",
    r"a{1,3}+b": "more than one way",  # no possessive one: Oniguruma repeats what is repeated
    r"a*a*b": "too many ways",
    r"a?" * 30 + "a" * 30: "too many ways",
    r"(a|b|ab)" * 20 + "c": "too many ways",
    r"(?:a{1,30}){1}" * 6 + "b": "too many ways",
    r"(?:a(?=.*b))*c": "too many ways",
    r"(?=a*a*b)": "too many ways",
    r"(a)\1*": "reference",
    r"(?<x>a)\k<x>": "reference",
    r"(?<x>a)\g<x>": "reference",
    r"(?(1)a|b)": "kind",
    r"(?~ab)": "kind",
    r"(?x) a +": "kind",
    r"(*FAIL)": "kind",
    r"(a": "nothing closes",
    r"[a": "nothing closes",
    r"[[a]": "nothing closes",
    r"a)": "nothing opens",
}
HARMLESS = [
    r"(?=(\d{3})+(?!\d))",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r" ?[^(\s|[.,!?])]+",
    r"[\p{L}&&[^\p{Han}]]*[\p{M}]+|\s+(?!\S)",
    r"[^\r\n]?+\p{L}++[a-z]*",
    r"(?>a*)+b",
    r"(?:a*+)+b",
    r"^\s+|\s+$",
    r"[]a]+[^]b]",
    r"a{b}{,}c",
    r"(?i)a(?-i:b)",
    r"\x{41}\u0041\x41\\\[\(",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=HOSTILE[pattern]) as refusal:
        read_pattern(pattern)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("pattern", HARMLESS)
def test_a_harmless_pattern_is_read(pattern: str) -> None:
    read_pattern(pattern)


def patterns_in(part: Any) -> Iterator[str]:
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for value in inner:
        yield from patterns_in(value)
    if isinstance(part, dict) and "Regex" in part:
        yield part["Regex"]


@pytest.mark.parametrize("folder", ["hf/Qwen3-0.6B", "hf/gpt-oss-20b"])
def test_real_patterns_are_far_from_the_limit(folder: str) -> None:
    spec = json.loads(Path(data_path(folder), "tokenizer.json").read_bytes())
    patterns = list(patterns_in(spec["pre_tokenizer"]))
    assert patterns
    for pattern in patterns:
        assert read_pattern(pattern).cost < 100_000


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        ("", 0),
        ("a*", 0),
        ("a|", 0),
        ("(?=a)", 0),
        ("^", 0),
        (r"\b", 0),
        ("(?i)", 0),
        ("a{2}?", 0),  # Oniguruma: perhaps twice
        ("a{2,}?", 2),
        ("a{,3}", 0),
        ("ab|c{3}", 2),
        (r"(?:ab){2}\n", 5),
        (r"\p{L}[^a]\x41", 3),
    ],
)
def test_what_a_pattern_takes_at_least(pattern: str, least: int) -> None:
    assert read_pattern(pattern).least == least


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", "(?=a)", "(?!b)"])
SIGNS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?"])


def bigger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3)
    groups = st.one_of(several.map("|".join), several.map("".join)).map(lambda p: f"(?:{p})")
    return st.builds(str.__add__, groups, SIGNS)


PATTERNS = st.recursive(ATOMS, bigger, max_leaves=6)


@given(PATTERNS, st.text("ab", max_size=12))
def test_no_match_is_shorter_than_the_least(pattern: str, text: str) -> None:
    try:
        least = read_pattern(pattern).least
    except ValueError:
        return
    assert all(len(found[0]) >= least for found in re.finditer(pattern, text))
