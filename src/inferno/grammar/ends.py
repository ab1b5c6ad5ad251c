"""Find symbols whose ends are in doubt, so that what must follow is taken for a part of them.

A terminal is as long as it can be: a number before a given digit takes the digit as its own, and
then nothing follows. So such rules are refused, before any model comes to a place without an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inferno.grammar.decide import is_empty
from inferno.grammar.regex import (
    ANY_TEXT,
    NOTHING,
    Chars,
    Regex,
    Seq,
    alphabet_of,
    alt,
    both,
    can_be_empty,
    chars,
    first_of,
    literal,
    seq,
    without,
)
from inferno.grammar.rules import Alternative, Reference, Repeated, Symbol, Terminal

_NO_STRING = without(seq(literal('"'), ANY_TEXT))  # for a string in JSON ends with its quote


class Ends:
    """The ends of the symbols of rules.

    of_json     how the names of rules begin whose terminals are parts of JSON.
    """

    def __init__(self, rules: Mapping[str, Sequence[Alternative]], of_json: str) -> None:
        self._rules = rules
        self._of_json = of_json

    def may_be_missed(self, symbols: Alternative) -> bool:
        """Return whether one of some symbols may take as its own what must follow it."""
        for place, symbol in enumerate(symbols):
            firsts = self._firsts(symbols[place + 1 :], set())
            first = chars(*(bounds for each in firsts for bounds in each.ranges))
            # One of several texts may go on as another does.
            together = alt(*self._wholes(symbol, set()))
            for text in (*self._lasts(symbol, set()), together):
                if not is_given(text) and _may_go_on(text, first):
                    return True
        return False

    def _is_optional(self, symbol: Symbol) -> bool:
        """Return whether the empty text is one of the symbol's."""
        match symbol:
            case Repeated(part, least):
                return least == 0 or self._is_optional(part)
            case Reference(name) if not name.startswith(self._of_json):
                return any(all(map(self._is_optional, each)) for each in self._rules[name])
            case Terminal(regex):
                return can_be_empty(regex)
        return False

    def _lasts(self, symbol: Symbol, seen: set[str]) -> Iterator[Regex]:
        """Yield the texts that a symbol may end with.

        seen    rules that were looked at.
        """
        match symbol:
            case Terminal(regex):
                yield regex
            case Repeated(part):
                yield from self._lasts(part, seen)
            case Reference(name) if name not in seen:
                seen.add(name)
                for alternative in self._rules[name]:
                    for each in reversed(alternative):
                        yield from self._read(name, self._lasts(each, seen))
                        if not self._is_optional(each):
                            break

    def _wholes(self, symbol: Symbol, seen: set[str]) -> Iterator[Regex]:
        """Yield the texts that a symbol may be as a whole."""
        match symbol:
            case Terminal(regex):
                yield regex
            case Repeated(part):
                yield from self._wholes(part, seen)
            case Reference(name) if name not in seen:
                seen.add(name)
                for alternative in self._rules[name]:
                    if len(alternative) == 1:
                        yield from self._read(name, self._wholes(alternative[0], seen))

    def _read(self, name: str, texts: Iterator[Regex]) -> Iterator[Regex]:
        """Yield the texts of a rule whose ends may be in doubt."""
        is_json = name.startswith(self._of_json)
        return (both(text, _NO_STRING) if is_json else text for text in texts)

    def _firsts(self, symbols: Alternative, seen: set[str]) -> Iterator[Chars]:
        """Yield the characters that the first may begin with of the symbols that must come.

        seen    rules that were looked at.
        """
        first = next((each for each in symbols if not self._is_optional(each)), None)
        match first.symbol if isinstance(first, Repeated) else first:
            case Terminal(regex):
                yield first_of(regex)
            case Reference(name) if name not in seen:
                seen.add(name)
                for alternative in self._rules[name]:
                    yield from self._firsts(alternative, seen)


def is_given(regex: Regex) -> bool:
    """Return whether an expression matches just one text."""
    parts = regex.parts if isinstance(regex, Seq) else (regex,)
    return all(
        isinstance(each, Chars) and [first == last for first, last in each.ranges] == [True]
        for each in parts
    )


def _may_go_on(text: Regex, first: Chars) -> bool:
    """Return whether a text may go on with one of these characters, as another that matches.

    Most have none of these, which is known without looking into them.
    """
    has_any = both(alphabet_of(text), first) != NOTHING
    return has_any and not is_empty(both(text, seq(text, first, ANY_TEXT)))
