"""Kept automata against new ones: a copy knows no more and no less of a language."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from inferno.grammar.automaton import Automaton
from inferno.grammar.expressions import Meter
from inferno.grammar.json_schema import compile_schema
from inferno.grammar.kept_automata import KeptAutomata
from inferno.grammar.recognizer import Recognizer
from inferno.grammar.regex import MAX_DEPTH, Regex, Seq, TooComplex, literal, without
from inferno.grammar.syntax import parse_regex
from tests.grammar.languages import TEXTS, language, trees
from tests.grammar.schemas import SCHEMAS


def accepted(automaton: Automaton) -> set[str]:
    return {
        text for text in TEXTS if automaton.accepts(automaton.run(automaton.start, text.encode()))
    }


@given(trees())
@settings(max_examples=80, deadline=None)
def test_a_copy_has_the_language_however_far_it_was_walked(tree: Regex) -> None:
    kept = KeptAutomata()
    for some in (TEXTS[:40], TEXTS):
        walked = kept.automaton(tree, Meter())
        for text in some:
            walked.run(walked.start, text.encode())
        kept.keep(tree, walked)
        copy = kept.automaton(tree, Meter())
        assert accepted(copy) == language(tree)
        assert copy.distance(copy.start) == Automaton(tree).distance(copy.start)


def test_copies_go_on_by_themselves() -> None:
    regex = parse_regex('"[^"]{0,40}"')
    kept = KeptAutomata()
    kept.keep(regex, Automaton(regex))
    one, other = kept.automaton(regex, Meter()), kept.automaton(regex, Meter())
    before = other.size, kept.size
    assert one.accepts(one.run(one.start, b'"of one"'))
    assert one.size > before[0]
    assert (other.size, kept.size) == before
    assert other.accepts(other.run(other.start, '"ü"'.encode()))
    assert not other.accepts(other.run(other.start, b'"of one'))


def test_a_copy_counts_the_work_that_it_is_spared() -> None:
    regex = parse_regex("(a|b)*c{3,30}")
    alone = Meter()
    walked = Automaton(regex, meter=alone)
    walked.run(walked.start, b"ababccc")
    kept = KeptAutomata()
    kept.keep(regex, walked)
    meter = Meter()
    copy = kept.automaton(regex, meter)
    assert meter.spent == alone.spent
    copy.run(copy.start, b"ababccc")
    assert meter.spent == alone.spent


def test_little_is_kept_and_what_was_used_last() -> None:
    kept = KeptAutomata(most_of_one=100, most_of_all=1_000)
    first = parse_regex("first|of|all")
    kept.keep(first, Automaton(first))
    for number in range(100):
        regex = parse_regex(f"a{{{number}}}b|c")
        automaton = Automaton(regex)
        automaton.run(automaton.start, b"a" * number)
        kept.keep(regex, automaton)
        kept.automaton(first, Meter())
        assert kept.size <= 1_000
    meter = Meter()
    kept.automaton(first, meter)
    fresh = Meter()
    Automaton(first, meter=fresh)
    assert meter.spent == fresh.spent
    large = parse_regex("x{200}")
    walked = Automaton(large)
    walked.run(walked.start, b"x" * 200)
    before = kept.size
    kept.keep(large, walked)
    assert kept.size == before


def test_what_is_too_complex_is_refused_each_time() -> None:
    deep: Regex = literal("a")
    for _ in range(MAX_DEPTH):
        deep = without(Seq((literal("x"), deep)))
    kept = KeptAutomata()
    for _ in range(2):
        with pytest.raises(TooComplex, match="levels deep"):
            kept.automaton(deep, Meter())


@pytest.mark.parametrize("name", random.Random(5).sample(sorted(SCHEMAS), 12))
def test_a_grammar_has_the_same_shortest_text_after_others(name: str) -> None:
    grammar = compile_schema(SCHEMAS[name])
    first = Recognizer(grammar)
    text = first.shortest(first.start)
    first.keep_automata()
    again = Recognizer(grammar)
    assert again.start.distance == first.start.distance == len(text)
    assert again.shortest(again.start) == text
    assert again.meter.spent <= 2 * first.meter.spent  # what was kept is counted
