"""A regular expression's automaton over bytes of UTF-8, built as it is walked.

States are derivatives (Brzozowski 1964; for Unicode and for sets of characters, Owens, Reppy and
Turon 2009) by whole characters; between the bytes of one character, a state knows where each of
the characters that may still come would lead. So what an expression doesn't match is a text of
whole characters, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from copy import copy

from inferno.grammar.derivatives import Derivatives
from inferno.grammar.expressions import NOTHING, Meter
from inferno.grammar.regex import MAX_CODE_POINT, Regex, TooComplex

_MOST_STATES = 50_000
_BYTES_A_STATE = 1_500  # of expressions
_WORK, _WORK_A_STATE = 2_000_000, 100  # all in all, in small steps: some seconds
_FAVOURED = b"abcdefghijklmnopqrstuvwxyz"

# The first bytes of characters of several bytes: the first and last such byte, the first and last
# such character, and how many bytes follow.
_LEADS = (
    (0xC2, 0xDF, 0x80, 0x7FF, 1),
    (0xE0, 0xEF, 0x800, 0xFFFF, 2),
    (0xF0, 0xF4, 0x10000, MAX_CODE_POINT, 3),
)

# Where the rest of a character can lead: offsets of code points, first and last, and an expression.
_Targets = tuple[tuple[int, int, int], ...]


class Automaton:
    """The automaton of a regular expression, which is walked byte by byte.

    States are numbers; from DEAD no text matches, and every other state has a way to a match.
    """

    DEAD = 0

    def __init__(
        self, regex: Regex, *, max_states: int = _MOST_STATES, meter: Meter | None = None
    ) -> None:
        """Raise TooComplex if the expression is too large; walking may raise it as well.

        meter   counts what the walk takes, and may end it.
        """
        self._max_states = max_states
        self._derivatives = Derivatives(
            max_bytes=_BYTES_A_STATE * max_states,
            max_work=_WORK + _WORK_A_STATE * max_states,
            meter=meter or Meter(),
        )
        # Of each state: the known transitions, the expression or None between a character's
        # bytes, and then how many bytes are missing and where they lead.
        self._known: list[dict[int, int]] = [dict.fromkeys(range(256), self.DEAD)]
        self._expression: list[int | None] = [NOTHING]
        self._tails: list[tuple[int, _Targets]] = [(0, ())]
        self._numbers: dict[int | tuple[int, _Targets], int] = {NOTHING: self.DEAD}
        self._ranges: dict[int, tuple[tuple[int, int, int], ...]] = {}
        self._nearer: dict[tuple[int, bytes], int] = {}
        self.start = self._state(self._derivatives.add(regex))

    def copy(self, meter: Meter) -> Automaton:
        """Return another automaton that knows what this one does, and goes on by itself.

        meter   counts what its walk takes, and what is known already.
        """
        twin = copy(self)
        twin._derivatives = self._derivatives.copy(meter)
        dead, *others = self._known  # of the first all is known
        twin._known = [dead, *map(dict.copy, others)]
        twin._expression = self._expression.copy()
        twin._tails = self._tails.copy()
        twin._numbers = self._numbers.copy()
        twin._ranges = self._ranges.copy()
        twin._nearer = self._nearer.copy()
        return twin

    @property
    def size(self) -> int:
        """Return how many states and expressions it knows, of some hundred bytes each."""
        return len(self._known) + self._derivatives.size

    def next(self, state: int, byte: int) -> int:
        """Return the state after one more byte."""
        known = self._known[state].get(byte)
        if known is not None:
            return known
        found = self._next(state, byte)
        self._known[state][byte] = found
        return found

    def run(self, state: int, text: bytes) -> int:
        """Return the state after some more bytes."""
        known = self._known
        for byte in text:
            found = known[state].get(byte)
            state = self.next(state, byte) if found is None else found
        return state

    def accepts(self, state: int) -> bool:
        """Return whether the bytes so far match."""
        expression = self._expression[state]
        return expression is not None and self._derivatives.can_be_empty(expression)

    def can_go_on(self, state: int) -> bool:
        """Return whether some longer text that begins with the bytes so far matches."""
        expression = self._expression[state]
        return expression is None or self._derivatives.can_go_on(expression)

    def distance(self, state: int) -> int | None:
        """Return how many bytes, at least, are missing from a match; None if no match can come."""
        expression = self._expression[state]
        if expression is not None:
            return self._derivatives.distance(expression)
        missing, targets = self._tails[state]
        found = [self._derivatives.distance(target) for _, _, target in targets]
        return missing + min(each for each in found if each is not None)

    def shortest(self, state: int, favoured: bytes = _FAVOURED) -> bytes:
        """Return a shortest text that completes the match.

        favoured  bytes, the first best first: of those that are as good, the first is taken, and
                  the lowest byte where none of them is good.

        Raises ValueError for DEAD.
        """
        missing = self.distance(state)
        if missing is None:
            raise ValueError("nothing completes a text that can't match")
        text = bytearray()
        for _ in range(missing):
            byte = self.nearer(state, favoured)
            text.append(byte)
            state = self.next(state, byte)
        return bytes(text)

    def nearer(self, state: int, favoured: bytes = _FAVOURED) -> int:
        """Return the first byte of a shortest text, as `shortest` does; there is one."""
        known = self._nearer.get((state, favoured))
        if known is None:
            known = self._nearer[state, favoured] = self._find_nearer(state, favoured)
        return known

    def _find_nearer(self, state: int, favoured: bytes) -> int:
        missing = self.distance(state)
        nearer = [
            (first, last)
            for first, last, following in self.ranges(state)
            if missing is not None and self._is_within(following, missing - 1)
        ]
        for byte in favoured:
            if any(first <= byte <= last for first, last in nearer):
                return byte
        return min(first for first, _ in nearer)

    def ranges(self, state: int) -> tuple[tuple[int, int, int], ...]:
        """Return ranges of the bytes that go on from a state: first, last, the state they lead to.

        Several ranges may lead to the same state.
        """
        known = self._ranges.get(state)
        if known is None:
            known = self._ranges[state] = tuple(self._find_ranges(state))
        return known

    def _find_ranges(self, state: int) -> Iterator[tuple[int, int, int]]:
        expression = self._expression[state]
        if expression is None:
            singles: Iterable[int] = range(0x80, 0xC0)
        else:
            for first, last, target in self._derivatives.targets(expression, 0, 0x7F):
                following = self._state(target)
                if following != self.DEAD:
                    yield first, last, following
            is_ascii = not self._derivatives.targets(expression, 0x80, MAX_CODE_POINT)
            singles = () if is_ascii else range(0xC2, 0xF5)
        for byte in singles:
            following = self.next(state, byte)
            if following != self.DEAD:
                yield byte, byte, following

    def only_byte(self, state: int) -> int | None:
        """Return the only byte that may come next; None if several bytes or none may."""
        found: int | None = None
        for first, last, _ in self.ranges(state):
            if first != last or found is not None:
                return None
            found = first
        return found

    def _is_within(self, state: int, most: int) -> bool:
        expression = self._expression[state]
        if expression is not None:
            return self._derivatives.is_within(expression, most)
        missing, targets = self._tails[state]
        return any(self._derivatives.is_within(target, most - missing) for _, _, target in targets)

    def _next(self, state: int, byte: int) -> int:
        expression = self._expression[state]
        if expression is None:
            return self._next_in_character(state, byte)
        if byte < 0x80:
            return self._state(self._derivatives.after(expression, byte))
        for first, last, least, greatest, missing in _LEADS:
            if first <= byte <= last:
                start = (byte - first + (first & 0b11111 if missing == 1 else 0)) << 6 * missing
                end = start + (1 << 6 * missing) - 1
                targets = self._derivatives.targets(
                    expression, max(start, least), min(end, greatest)
                )
                return self._tail(missing, self._live(targets, start))
        return self.DEAD

    def _live(self, targets: list[tuple[int, int, int]], start: int) -> _Targets:
        """Return those of the targets that lead to a match, numbered from `start` on."""
        live: list[tuple[int, int, int]] = []
        for first, last, target in targets:
            if self._derivatives.distance(target) is None:
                continue
            if live and live[-1][1] == first - start - 1 and live[-1][2] == target:
                live[-1] = live[-1][0], last - start, target
            else:
                live.append((first - start, last - start, target))
        return tuple(live)

    def _next_in_character(self, state: int, byte: int) -> int:
        if not 0x80 <= byte < 0xC0:
            return self.DEAD
        missing, targets = self._tails[state]
        missing -= 1
        size = 1 << 6 * missing
        start = (byte - 0x80) * size
        inside: list[tuple[int, int, int]] = []
        index = bisect_right(targets, (start, MAX_CODE_POINT, 0)) - 1
        for first, last, target in targets[max(index, 0) :]:
            if first >= start + size:
                break
            if last >= start:
                inside.append((max(first - start, 0), min(last - start, size - 1), target))
        if missing == 0:
            return self._state(inside[0][2]) if inside else self.DEAD
        return self._tail(missing, tuple(inside))

    def _tail(self, missing: int, targets: _Targets) -> int:
        """Return the state in which so many bytes of a character are missing."""
        if not targets:
            return self.DEAD
        return self._number((missing, targets), None, (missing, targets))

    def _state(self, expression: int) -> int:
        """Return the state after a whole character; DEAD if nothing matches from there."""
        known = self._numbers.get(expression)
        if known is not None:
            return known
        if self._derivatives.distance(expression) is None:
            self._numbers[expression] = self.DEAD
            return self.DEAD
        return self._number(expression, expression, (0, ()))

    def _number(
        self,
        key: int | tuple[int, _Targets],
        expression: int | None,
        tail: tuple[int, _Targets],
    ) -> int:
        known = self._numbers.get(key)
        if known is not None:
            return known
        if len(self._known) >= self._max_states:
            raise TooComplex(f"a regular expression has more than {self._max_states} states")
        number = self._numbers[key] = len(self._known)
        self._known.append({})
        self._expression.append(expression)
        self._tails.append(tail)
        return number
