"""Automata by their expressions: what one grammar's walk has found is there for the next one.

Most schemas hold the same strings, numbers and spaces. To find the states of one of these anew
takes tenths of a millisecond or more, a copy of what is known some hundredths.
"""

from __future__ import annotations

from inferno.grammar.automaton import Automaton
from inferno.grammar.expressions import Meter
from inferno.grammar.regex import Regex

# States and expressions of some hundred bytes: of one automaton, and of all that are kept.
_MOST_OF_ONE, _MOST_OF_ALL = 1_000, 12_000


class KeptAutomata:
    """Automata that nobody walks any more, those used last; whoever asks gets a copy.

    Several threads may use it.
    """

    def __init__(self, most_of_one: int = _MOST_OF_ONE, most_of_all: int = _MOST_OF_ALL) -> None:
        self._most_of_one = most_of_one
        self._most_of_all = most_of_all
        self._kept: dict[Regex, tuple[Automaton, int]] = {}  # with their sizes

    @property
    def size(self) -> int:
        """Return how many states and expressions are kept."""
        return sum([size for _, size in list(self._kept.values())])

    def automaton(self, regex: Regex, meter: Meter) -> Automaton:
        """Return an automaton for one walk; TooComplex if the expression is too large."""
        found = self._kept.pop(regex, None)
        if found is None:
            return Automaton(regex, meter=meter)
        self._kept[regex] = found  # the last used
        return found[0].copy(meter)

    def keep(self, regex: Regex, automaton: Automaton) -> None:
        """Keep what an automaton knows by now, if that is little, and more than was known."""
        found, size = self._kept.get(regex), automaton.size
        if size > self._most_of_one or (found is not None and found[1] >= size):
            return
        self._kept.pop(regex, None)
        self._kept[regex] = automaton.copy(Meter()), size
        total = self.size
        while total > self._most_of_all:
            oldest = self._kept.pop(next(iter(self._kept)), None)
            total -= 0 if oldest is None else oldest[1]


AUTOMATA = KeptAutomata()  # of this process
