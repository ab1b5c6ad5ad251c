"""Languages of regular expressions by enumeration: all short texts over a small alphabet."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from inferno.grammar.regex import (
    Alt,
    And,
    Chars,
    Not,
    Regex,
    Repeat,
    Seq,
    alt,
    both,
    chars,
    repeat,
    seq,
    without,
)

LONGEST = 4
TEXTS = ["".join(each) for n in range(LONGEST + 1) for each in product("ab\xe9", repeat=n)]
ALL = frozenset(TEXTS)

# Sets whose lowest characters are those of the texts, so that no shorter text is left out.
SETS = (((97, 97),), ((97, 98),), ((98, 98), (0xE9, 0x10FFFF)), ((0xE9, 0xE9),), ())


def language(regex: Regex) -> frozenset[str]:
    """Return those of TEXTS that match, by the definition of each node."""
    match regex:
        case Chars(ranges):
            return frozenset(
                each for each in "ab\xe9" if any(a <= ord(each) <= z for a, z in ranges)
            )
        case Seq(parts):
            whole = frozenset({""})
            for part in parts:
                whole = _joined(whole, language(part))
            return whole
        case Alt(options):
            return frozenset().union(*map(language, options))
        case And(parts):
            return ALL.intersection(*map(language, parts))
        case Not(part):
            return ALL - language(part)
        case Repeat(part, least, most):
            return _repeated(language(part), least, most)


def _joined(firsts: frozenset[str], lasts: frozenset[str]) -> frozenset[str]:
    return frozenset(
        first + last for first in firsts for last in lasts if len(first + last) <= LONGEST
    )


def _repeated(once: frozenset[str], least: int, most: int | None) -> frozenset[str]:
    times = frozenset({""})
    for _ in range(least):
        times = _joined(times, once)
    found = times
    # After as many times as a text has characters, another one can only be empty.
    for _ in range(LONGEST + 1 if most is None else most - least):
        times = _joined(times, once)
        found |= times
    return found


def _counts() -> st.SearchStrategy[tuple[int, int | None]]:
    return st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)).map(
        lambda each: (each[0], None if each[1] is None else each[0] + each[1])
    )


def trees(*, operators: bool = True) -> st.SearchStrategy[Regex]:
    """Return trees as they come, without the constructors' simplifications."""
    leaves = st.sampled_from(SETS).map(lambda ranges: Chars(_surrogates_out(ranges)))

    def bigger(inner: st.SearchStrategy[Regex]) -> st.SearchStrategy[Regex]:
        several = st.lists(inner, max_size=3).map(tuple)
        plain: st.SearchStrategy[Regex] = several.map(Seq) | several.map(Alt)
        plain |= st.tuples(inner, _counts()).map(lambda each: Repeat(each[0], *each[1]))
        return plain | several.map(And) | inner.map(Not) if operators else plain

    return st.recursive(leaves, bigger, max_leaves=8)


def simplified(regex: Regex) -> Regex:
    """Return the same tree, made by the constructors."""
    match regex:
        case Chars(ranges):
            return chars(*ranges)
        case Seq(parts):
            return seq(*map(simplified, parts))
        case Alt(options):
            return alt(*map(simplified, options))
        case And(parts):
            return both(*map(simplified, parts))
        case Not(part):
            return without(simplified(part))
        case Repeat(part, least, most):
            return repeat(simplified(part), least, most)


def _surrogates_out(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        part
        for first, last in ranges
        for part in (
            ((first, 0xD7FF), (0xE000, last)) if first < 0xD800 < last else ((first, last),)
        )
    )
