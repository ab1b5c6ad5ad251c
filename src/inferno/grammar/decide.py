"""Answer questions about regular expressions by their automata."""

from __future__ import annotations

from functools import lru_cache

from inferno.grammar.automaton import Automaton
from inferno.grammar.expressions import Meter
from inferno.grammar.kept_automata import AUTOMATA
from inferno.grammar.regex import Alt, Chars, Regex, Repeat, Seq


def is_empty(regex: Regex) -> bool:
    """Return whether an expression matches no text; raise TooComplex if that takes too long.

    Where this returns, llguidance can cope with the expression too.
    """
    return not _is_plain(regex) and _has_no_text(regex)


def matches(regex: Regex, text: str) -> bool:
    """Return whether an expression matches a whole text."""
    automaton = _automaton(regex)
    return automaton.accepts(automaton.run(automaton.start, text.encode()))


def _is_plain(regex: Regex) -> bool:
    """Return whether some text surely matches, because nothing in it can exclude all."""
    match regex:
        case Chars(ranges):
            return bool(ranges)
        case Seq(parts) | Alt(parts):
            return all(map(_is_plain, parts))
        case Repeat(part):
            return _is_plain(part)
        case _:
            return False


@lru_cache(maxsize=4096)
def _has_no_text(regex: Regex) -> bool:
    automaton = AUTOMATA.automaton(regex, Meter())
    AUTOMATA.keep(regex, automaton)
    return automaton.start == Automaton.DEAD


@lru_cache(maxsize=64)
def _automaton(regex: Regex) -> Automaton:
    return Automaton(regex)
