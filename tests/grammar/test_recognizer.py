"""The recognizer against the sets of texts that small grammars have, written out one by one."""

from __future__ import annotations

import gc
import itertools
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.grammar.recognizer import Recognizer
from inferno.grammar.regex import Alt, Chars, Regex, Repeat, Seq, alt, chars, literal, repeat, seq
from inferno.grammar.rules import (
    START,
    Alternative,
    Grammar,
    Reference,
    Repeated,
    Symbol,
    Terminal,
)

LETTERS = "abc"
MOST = 6  # characters of the texts that are written out

Texts = frozenset[str]


def joined(some: Texts, others: Texts) -> Texts:
    return frozenset(a + b for a in some for b in others if len(a + b) <= MOST)


def times(texts: Texts, least: int, most: int | None) -> Texts:
    found: set[str] = set()
    power: Texts = frozenset(("",))
    for count in range(MOST + least + 1 if most is None else most + 1):
        if count >= least:
            found |= power
        power = joined(power, texts)
    return frozenset(found)


def texts_of_regex(regex: Regex) -> Texts:
    match regex:
        case Chars(ranges):
            return frozenset(chr(c) for a, b in ranges for c in range(a, b + 1))
        case Seq(parts):
            found: Texts = frozenset(("",))
            for part in parts:
                found = joined(found, texts_of_regex(part))
            return found
        case Alt(options):
            return frozenset().union(*map(texts_of_regex, options))
        case Repeat(part, least, most):
            return times(texts_of_regex(part), least, most)
    raise AssertionError(regex)


def texts_of(grammar: Grammar) -> Texts:
    """Return the texts of a grammar, those of up to MOST characters, by fixed point."""
    known: dict[str, Texts] = dict.fromkeys(grammar.rules, frozenset())

    def of_symbol(symbol: Symbol) -> Texts:
        match symbol:
            case Terminal(regex):
                return texts_of_regex(regex)
            case Reference(name):
                return known[name]
            case Repeated(inner, least, most):
                return times(of_symbol(inner), least, most)
        raise AssertionError(symbol)

    while True:
        before = dict(known)
        for name, alternatives in grammar.rules.items():
            found: set[str] = set()
            for alternative in alternatives:
                texts: Texts = frozenset(("",))
                for symbol in alternative:
                    texts = joined(texts, of_symbol(symbol))
                found |= texts
            known[name] = frozenset(found)
        if known == before:
            return known[START]


def check(grammar: Grammar) -> None:
    texts = texts_of(grammar)
    try:
        recognizer = Recognizer(grammar)
    except ValueError:
        assert not texts
        return
    for length in range(4):
        for letters in itertools.product(LETTERS, repeat=length):
            text = "".join(letters)
            longer = [each for each in texts if each.startswith(text)]
            state = recognizer.advance(recognizer.start, text.encode())
            if state is None:
                assert not longer, text
                continue
            assert state.is_end == (text in texts), text
            if longer:
                assert state.distance == min(map(len, longer)) - length, text
                end = recognizer.shortest(state, b"a").decode()
                assert text + end in texts
                assert len(end) == state.distance
            else:
                assert state.distance > MOST - length, text
            following = {each[length] for each in longer if len(each) > length}
            only = recognizer.only_byte(state)
            if only is not None:
                assert not state.is_end
                assert following <= {chr(only)}


def terminals() -> st.SearchStrategy[Terminal]:
    base = st.sampled_from(
        [
            literal("a"),
            literal("ab"),
            literal("ca"),
            alt(literal("ab"), literal("c")),
            repeat(literal("b"), 1, None),
            repeat(chars((97, 98)), 0, 2),
            seq(literal("c"), repeat(literal("a"), 0, 1)),
        ]
    )
    return st.builds(Terminal, base)


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    names = [START, "one", "two"]
    plain = st.one_of(terminals(), st.builds(Reference, st.sampled_from(names)))
    bounds = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (1, 3), (0, 0)])
    repeated = st.builds(lambda inner, ends: Repeated(inner, *ends), plain, bounds)
    symbol = st.one_of(plain, plain, repeated)
    alternative: st.SearchStrategy[Alternative] = st.lists(symbol, max_size=3).map(tuple)
    rule = st.lists(alternative, max_size=3).map(tuple)
    return Grammar({name: draw(rule) for name in names})


@settings(max_examples=150, deadline=None)
@given(grammars())
def test_random_grammars_are_followed_exactly(grammar: Grammar) -> None:
    check(grammar)


def test_left_and_right_recursion_and_empty_rules_are_followed() -> None:
    a, b, c = (Terminal(literal(letter)) for letter in LETTERS)
    start, one, two = Reference(START), Reference("one"), Reference("two")
    check(Grammar({START: ((start, a), (b,))}))
    check(Grammar({START: ((a, start), (b,))}))
    check(Grammar({START: ((start, start), (a,), ())}))
    check(Grammar({START: ((one, two), (c,)), "one": ((start, a), ()), "two": ((b, one), ())}))
    check(Grammar({START: ((Repeated(one, 2, 4), b),), "one": ((a,), (a, c))}))
    check(Grammar({START: ((a, start, b), (c,))}))


def test_what_was_followed_once_is_found_again() -> None:
    item = Reference("item")
    grammar = Grammar(
        {
            START: ((Terminal(literal("[")), item, Repeated(Reference("more"), 0, None)),),
            "more": ((Terminal(literal(",")), item),),
            "item": ((Terminal(repeat(chars((97, 122)), 1, None)),),),
        }
    )
    recognizer = Recognizer(grammar)
    state = recognizer.advance(recognizer.start, b"[ab")
    assert state is recognizer.advance(recognizer.start, b"[xyz")
    assert recognizer.advance(recognizer.start, b"[ab,c") is recognizer.advance(
        recognizer.start, b"[ab,c,d,e"
    )
    assert recognizer.advance(recognizer.start, b"[,") is None


def test_what_is_no_longer_needed_goes_without_a_search_of_the_heap() -> None:
    listed = Grammar(
        {
            START: ((Reference("list"),),),
            "list": (
                (Terminal(literal("[")), Reference("items"), Terminal(literal("]"))),
                (Terminal(repeat(chars((0x61, 0x62)), 1, None)),),
            ),
            "items": ((Reference("list"),), (Reference("items"), Reference("list"))),
        }
    )
    recognizer = Recognizer(listed)
    state = recognizer.advance(recognizer.start, b"[[aab]ab[b]")
    assert state is not None
    recognizer.shortest(state)
    gone = [weakref.ref(each) for each in (recognizer, recognizer.start, state)]
    gc.disable()
    try:
        del recognizer, state
        assert [each() for each in gone] == [None] * 3
    finally:
        gc.enable()


def test_a_terminal_of_one_text_is_followed_byte_by_byte() -> None:
    for text in ("a", "né日🙂", '"name"'):
        whole = text.encode()
        recognizer = Recognizer(Grammar({START: ((Terminal(literal(text)),),)}))
        state = recognizer.start
        for place, byte in enumerate(whole):
            assert recognizer.only_byte(state) == byte
            assert recognizer.shortest(state) == whole[place:]
            assert (state.distance, state.is_end) == (len(whole) - place, False)
            others = [recognizer.advance(state, bytes((other,))) for other in range(256)]
            assert [other for other, end in enumerate(others) if end is not None] == [byte]
            following = recognizer.advance(state, bytes((byte,)))
            assert following is not None
            state = following
        assert (state.is_end, state.distance, recognizer.only_byte(state)) == (True, 0, None)
        assert not any(recognizer.advance(state, bytes((other,))) for other in range(256))
