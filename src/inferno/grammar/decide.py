"""Questions about regular expressions that their automata answer."""

from __future__ import annotations

from functools import lru_cache

from inferno.grammar.automaton import Automaton
from inferno.grammar.regex import Regex


@lru_cache(maxsize=4096)
def is_empty(regex: Regex) -> bool:
    """Return whether no text matches."""
    return Automaton(regex).start == Automaton.DEAD


def matches(regex: Regex, text: str) -> bool:
    """Return whether the whole text matches."""
    automaton = _automaton(regex)
    return automaton.accepts(automaton.run(automaton.start, text.encode()))


@lru_cache(maxsize=64)
def _automaton(regex: Regex) -> Automaton:
    return Automaton(regex)
