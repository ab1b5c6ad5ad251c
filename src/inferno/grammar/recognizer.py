"""Follow a text through a grammar, byte by byte, and always know the shortest way to its end.

Source of the method: Earley's parser (J. Earley, "An Efficient Context-Free Parsing Algorithm",
1970) with the nullable rules of Aycock and Horspool (2002). Between the ends of terminals stands
an item set; within a terminal, its automaton's state. Sets and states that are equal are the same
object, so whoever comes by a second time finds each step made already, and the steps of all texts
of one grammar are shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from inferno.grammar.automaton import Automaton
from inferno.grammar.expressions import Meter
from inferno.grammar.kept_automata import AUTOMATA
from inferno.grammar.regex import Alt, Chars, Regex, Repeat, Seq
from inferno.grammar.rules import START, Grammar, Mark, Reference, Repeated, Symbol

# States and item sets that are kept to be found again, some hundred bytes each. Texts that need
# more are followed all the same; they only find less again.
MAX_KEPT = 100_000

# A mark is spelled as this byte, which no text has, and its token's id in four more.
MARK = b"\xff"
MARK_LENGTH = 5

_NEVER = 1 << 60  # bytes to an end that can't be reached
_UNASKED = -1  # the only byte of a state of which nobody wanted to know it yet


class _Element(NamedTuple):
    """One place of an alternative: a terminal or a rule, by number, and how often it comes.

    A plain symbol comes once; `most` None is without bound.
    """

    is_terminal: bool
    number: int
    least: int
    most: int | None
    is_repeated: bool


class _Item(NamedTuple):
    """An alternative, how far it has come, and the item set where it began.

    times   how often the element at `dot` has come, if it is a repeated one.
    """

    alternative: int
    dot: int
    times: int
    origin: _ItemSet


class _ItemSet:
    """All that may go on between two terminals."""

    __slots__ = ("after", "is_end", "scanned", "tails", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, list[_Item]] = {}  # by the rule that they wait for
        self.scanned: dict[int, list[_Item]] = {}  # by the terminal that comes next
        self.tails: dict[int, int] = {}  # fewest bytes of text after a rule that began here
        self.after: dict[int, int] = {}  # and after a terminal that begins here
        self.is_end = False

    def take_apart(self) -> None:
        """Forget the items, which refer to the sets where they began."""
        self.waiting.clear()
        self.scanned.clear()


class State:
    """A place in a text: the terminals that it may be in. Compare by identity.

    is_end      the text may end here.
    distance    the fewest bytes to an end.
    """

    __slots__ = ("__weakref__", "_next", "_only_byte", "distance", "is_end", "scans")

    def __init__(self, scans: tuple[_Scan, ...], is_end: bool, distance: int) -> None:
        self.scans = scans
        self.is_end = is_end
        self.distance = distance
        self._next: dict[int, State | None] = {}
        self._only_byte: int | None = _UNASKED


_UNKNOWN = State((), is_end=False, distance=_NEVER)  # a step that wasn't made yet

_Scan = tuple[int, int, _ItemSet]  # a terminal, its automaton's state, where it began


class Recognizer:
    """A grammar that is ready to follow texts.

    Raises ValueError where no text at all is of the grammar, and what the automata raise where a
    terminal is too complex.

    meter   counts the work of all that is asked.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.meter = Meter()
        self._sets: dict[frozenset[_Item], _ItemSet] = {}
        self._closed: dict[tuple[frozenset[_Item], bool], _ItemSet] = {}
        self._states: dict[_Scan | tuple[frozenset[_Scan], bool], State] = {}
        self._root = root = _ItemSet()
        self._grammar = _Compiled(grammar, self.meter)
        self.automata: Sequence[_Automaton] = self._grammar.automata
        root.tails[_Compiled.ROOT] = 0
        self._close(root, [_Item(0, 0, 0, root)])
        self.start = self._state([(t, self.automata[t].start, root) for t in root.scanned], root)
        if self.start.distance >= _NEVER:
            raise ValueError("no text is of this grammar")

    def __del__(self) -> None:
        """Take apart what refers to itself: only a search of the whole heap would find it.

        That search, and to let go of all at once, would hold up steps, whatever thread does it.
        """
        self._closed.clear()
        for item_set in (self._root, *self._sets.values()):
            item_set.take_apart()
        self._sets.clear()
        for state in self._states.values():
            state._next.clear()
        while self._states:
            self._states.popitem()

    def advance(self, state: State, text: bytes) -> State | None:
        """Return where a text leads from a state; None if no text of the grammar goes on so."""
        for byte in text:
            following = self._after(state, byte)
            if following is None:
                return None
            state = following
        return state

    def _after(self, state: State, byte: int) -> State | None:
        following = state._next.get(byte, _UNKNOWN)
        return self._step(state, byte) if following is _UNKNOWN else following

    def forced_run(self, state: State, most: int) -> tuple[bytes, State]:
        """Return the bytes that come next for sure, at most so many, and where they lead."""
        run = bytearray()
        while len(run) < most:
            self.meter.spend(1)
            byte = self.only_byte(state)
            if byte is None:
                break
            following = self._after(state, byte)
            assert following is not None, "the only byte goes on"
            run.append(byte)
            state = following
        return bytes(run), state

    def only_byte(self, state: State) -> int | None:
        """Return the byte that comes next if no other may and the text may not end here."""
        if state._only_byte == _UNASKED:
            state._only_byte = self._find_only_byte(state)
        return state._only_byte

    def _find_only_byte(self, state: State) -> int | None:
        if state.is_end:
            return None
        found: int | None = None
        for terminal, inner, _ in state.scans:
            self.meter.spend(10)
            byte = self.automata[terminal].only_byte(inner)
            if byte is None or (found is not None and byte != found):
                return None
            found = byte
        return found

    def keep_automata(self) -> None:
        """Have grammars to come know what was found in this one's terminals."""
        for terminal, number in self._grammar.terminals.items():
            automaton = self.automata[number]
            if isinstance(automaton, Automaton) and not isinstance(terminal, Mark):
                AUTOMATA.keep(terminal, automaton)

    def is_listed(self, terminal: int) -> bool:
        """Return whether a terminal is a list of texts, written out character by character."""
        return self._grammar.is_listed[terminal]

    def shortest(self, state: State, favoured: bytes = b"") -> bytes:
        """Return a shortest text that leads from a state to an end.

        favoured    bytes that are taken where several are as good, the first before the others.
        """
        found = bytearray()
        while not state.is_end:
            byte = self.nearer(state, favoured)
            following = self._after(state, byte)
            assert following is not None, "a shortest text goes on"
            found.append(byte)
            state = following
        return bytes(found)

    def nearer(self, state: State, favoured: bytes = b"") -> int:
        """Return the first byte of a shortest text to an end; the text isn't at one yet."""
        if len(state.scans) == 1:
            [(terminal, inner, _)] = state.scans
            return self.automata[terminal].nearer(inner, favoured)
        distances = [self._scan_distance(scan) for scan in state.scans]
        least = min(distances)
        # The scans are in the order in which they were met, which isn't always the same.
        nearer = {
            self.automata[terminal].nearer(inner, favoured)
            for (terminal, inner, _), distance in zip(state.scans, distances, strict=True)
            if distance == least
        }
        return next((byte for byte in favoured if byte in nearer), min(nearer))

    def _scan_distance(self, scan: _Scan) -> int:
        terminal, inner, began = scan
        distance = self.automata[terminal].distance(inner)
        # A terminal that is whole already has its next item set among the state's other scans.
        return _NEVER if not distance else distance + began.after[terminal]

    def _step(self, state: State, byte: int) -> State | None:
        self.meter.spend(6 * (1 + len(state.scans)))
        if len(state.scans) == 1:
            [(terminal, inner, began)] = state.scans
            automaton = self.automata[terminal]
            following = automaton.next(inner, byte)
            if not automaton.accepts(following):  # as within most texts
                found = None
                if automaton.can_go_on(following):
                    found = self._state(((terminal, following, began),), None)
                    found = None if found.distance >= _NEVER else found
                state._next[byte] = found
                return found
        scans: list[_Scan] = []
        kernel: dict[_Item, None] = {}
        for terminal, inner, began in state.scans:
            automaton = self.automata[terminal]
            following = automaton.next(inner, byte)
            if automaton.can_go_on(following):
                scans.append((terminal, following, began))
            if automaton.accepts(following):
                for item in began.scanned[terminal]:
                    kernel[self._grammar.advance(item)] = None
        reached = self._reach(kernel) if kernel else None
        if reached is not None:
            scans += [(t, self.automata[t].start, reached) for t in reached.scanned]
        found = self._state(scans, reached) if scans or reached is not None else None
        if found is not None and found.distance >= _NEVER:
            found = None
        state._next[byte] = found
        return found

    def _state(self, scans: Iterable[_Scan], reached: _ItemSet | None) -> State:
        is_end = reached is not None and reached.is_end
        unique = tuple(dict.fromkeys(scans))
        is_one = len(unique) == 1 and not is_end
        key = unique[0] if is_one else (frozenset(unique), is_end)
        state = self._states.get(key)
        if state is None:
            distance = 0 if is_end else _NEVER
            for terminal, inner, began in unique:
                own = self.automata[terminal].distance(inner)
                if own is not None:
                    distance = min(distance, own + began.after[terminal])
            if len(self._states) >= MAX_KEPT:
                self._states.clear()
            state = self._states[key] = State(unique, is_end, distance)
        return state

    def _reach(self, kernel: Iterable[_Item]) -> _ItemSet:
        """Return the item set of these items, each of which is past a terminal."""
        key = frozenset(kernel)
        found = self._sets.get(key)
        if found is None:
            if len(self._sets) >= MAX_KEPT:
                self._sets.clear()
                self._closed.clear()
            own = _ItemSet()
            left = self._close(own, list(key))
            # Sets whose unfinished items are the same have the same future, however they came.
            found = self._closed.setdefault((left, own.is_end), own)
            if found is not own:
                own.take_apart()
            self._sets[key] = found
        return found

    def _close(self, own: _ItemSet, items: list[_Item]) -> frozenset[_Item]:
        """Add all items that follow from these, and reckon what comes after each.

        Returns the unfinished ones that began before.
        """
        grammar = self._grammar
        seen = set(items)
        while items:
            item = items.pop()
            for following in grammar.move(item, own):
                if following not in seen:
                    self.meter.spend(3)
                    seen.add(following)
                    items.append(following)
        own.is_end = any(item.alternative == 0 and item.dot == 1 for item in seen)
        grammar.reckon(own)
        return frozenset(
            item for item in seen if item.origin is not own and not grammar.is_done(item)
        )


class _Compiled:
    """The rules as numbers, with the fewest bytes of each."""

    ROOT = 0  # the rule above all: its one alternative, 0, is the start

    def __init__(self, grammar: Grammar, meter: Meter) -> None:
        self._meter = meter
        names = {name: number for number, name in enumerate(grammar.rules, start=1)}
        self.terminals: dict[Regex | Mark, int] = {}
        self.automata: list[_Automaton] = []
        self._alternatives: list[tuple[_Element, ...]] = []
        self._rule_of: list[int] = []
        self._alternatives_of: list[list[int]] = [[] for _ in range(len(names) + 1)]
        self._add(self.ROOT, (self._element(Reference(START), names),))
        for name, alternatives in grammar.rules.items():
            for alternative in alternatives:
                self._add(names[name], tuple(self._element(each, names) for each in alternative))
        self.is_listed = [_is_listed(regex) for regex in self.terminals]
        self._terminal_costs = [_distance(each, each.start) for each in self.automata]
        self._rule_costs = self._find_rule_costs()
        self._rests = [self._find_rests(each) for each in self._alternatives]

    def advance(self, item: _Item) -> _Item:
        """Return an item past one more of what it waits for."""
        element = self._alternatives[item.alternative][item.dot]
        if not element.is_repeated:
            return _Item(item.alternative, item.dot + 1, 0, item.origin)
        most = element.least if element.most is None else element.most
        return item._replace(times=min(item.times + 1, most))

    def is_done(self, item: _Item) -> bool:
        """Return whether an item has come to the end of its alternative."""
        return item.dot == len(self._alternatives[item.alternative])

    def move(self, item: _Item, own: _ItemSet) -> Iterator[_Item]:
        """Yield the items that follow from one without any text, and note what it waits for."""
        elements = self._alternatives[item.alternative]
        if item.dot == len(elements):
            rule = self._rule_of[item.alternative]
            if item.origin is not own:  # else it is empty, and was passed over where it began
                for parent in item.origin.waiting.get(rule, ()):
                    yield self.advance(parent)
            return
        element = elements[item.dot]
        if item.times >= element.least or self._cost(element) == 0:
            yield _Item(item.alternative, item.dot + 1, 0, item.origin)
        if element.most is not None and item.times >= element.most:
            return
        if element.is_terminal:
            own.scanned.setdefault(element.number, []).append(item)
            return
        if element.number not in own.waiting:
            own.waiting[element.number] = []
            for alternative in self._alternatives_of[element.number]:
                if self._rests[alternative][0] < _NEVER:
                    yield _Item(alternative, 0, 0, own)
        own.waiting[element.number].append(item)

    def reckon(self, own: _ItemSet) -> None:
        """Find the fewest bytes after each rule and terminal that an item set waits for."""
        tails = own.tails
        has_changed = True
        while has_changed:  # left recursion: a rule may be waited for by itself
            has_changed = False
            for rule, items in own.waiting.items():
                self._meter.spend(len(items))
                least = min(self._after(item) for item in items)
                if least < tails.get(rule, _NEVER):
                    tails[rule] = least
                    has_changed = True
        for terminal, items in own.scanned.items():
            own.after[terminal] = min(self._after(item) for item in items)

    def _after(self, item: _Item) -> int:
        """Count the fewest bytes after what an item waits for."""
        past = self.advance(item)
        element = self._alternatives[past.alternative][past.dot] if past.dot == item.dot else None
        rest = self._rests[past.alternative][past.dot]
        if element is not None:  # `rest` counts the repeated element from its beginning
            rest -= self._cost(element) * min(past.times, element.least)
        tail = item.origin.tails.get(self._rule_of[item.alternative], _NEVER)
        return min(rest + tail, _NEVER)

    def _element(self, symbol: Symbol, names: dict[str, int]) -> _Element:
        if isinstance(symbol, Repeated):
            return self._element(symbol.symbol, names)._replace(
                least=symbol.least, most=symbol.most, is_repeated=True
            )
        if isinstance(symbol, Reference):
            return _Element(False, names[symbol.name], 1, 1, False)
        key = symbol if isinstance(symbol, Mark) else symbol.regex
        number = self.terminals.get(key)
        if number is None:
            number = self.terminals[key] = len(self.automata)
            self.automata.append(_automaton_of(key, self._meter))
        return _Element(True, number, 1, 1, False)

    def _add(self, rule: int, elements: tuple[_Element, ...]) -> None:
        self._alternatives_of[rule].append(len(self._alternatives))
        self._alternatives.append(elements)
        self._rule_of.append(rule)

    def _cost(self, element: _Element) -> int:
        costs = self._terminal_costs if element.is_terminal else self._rule_costs
        return costs[element.number]

    def _least_cost(self, element: _Element) -> int:
        return self._cost(element) * element.least if element.least else 0

    def _total(self, elements: Sequence[_Element]) -> int:
        return min(sum(map(self._least_cost, elements)), _NEVER)

    def _find_rule_costs(self) -> list[int]:
        """Return the fewest bytes of each rule, by fixed point."""
        self._rule_costs = [_NEVER] * len(self._alternatives_of)
        users: list[list[int]] = [[] for _ in self._alternatives_of]
        for number, elements in enumerate(self._alternatives):
            for rule in {each.number for each in elements if not each.is_terminal}:
                users[rule].append(number)
        waiting = dict.fromkeys(reversed(range(len(self._alternatives))))
        while waiting:
            number, _ = waiting.popitem()
            total, rule = self._total(self._alternatives[number]), self._rule_of[number]
            if total < self._rule_costs[rule]:
                self._rule_costs[rule] = total
                waiting.update(dict.fromkeys(users[rule]))
        return self._rule_costs

    def _find_rests(self, elements: Sequence[_Element]) -> list[int]:
        """Return the fewest bytes of what is left of an alternative at each of its places."""
        rests = [0]
        for each in reversed(elements):
            rests.append(min(rests[-1] + self._least_cost(each), _NEVER))
        rests.reverse()
        return rests


class _TextAutomaton:
    """The automaton of one text: its states are how many of its bytes were read, from 1.

    It is there at once, and most terminals are names of properties.
    """

    start = 1

    def __init__(self, text: bytes) -> None:
        self._text = text

    def next(self, state: int, byte: int) -> int:
        is_next = 0 < state <= len(self._text) and self._text[state - 1] == byte
        return state + 1 if is_next else Automaton.DEAD

    def accepts(self, state: int) -> bool:
        return state == len(self._text) + 1

    def can_go_on(self, state: int) -> bool:
        return 0 < state <= len(self._text)

    def distance(self, state: int) -> int | None:
        return len(self._text) + 1 - state if state else None

    def nearer(self, state: int, favoured: bytes = b"") -> int:
        return self._text[state - 1]

    def only_byte(self, state: int) -> int | None:
        return self._text[state - 1] if self.can_go_on(state) else None

    def ranges(self, state: int) -> tuple[tuple[int, int, int], ...]:
        byte = self.only_byte(state)
        return () if byte is None else ((byte, byte, state + 1),)


_Automaton = Automaton | _TextAutomaton


def _automaton_of(terminal: Regex | Mark, meter: Meter) -> _Automaton:
    if isinstance(terminal, Mark):
        return _TextAutomaton(text_of_mark(terminal.token_id))
    text = _only_text(terminal)
    return _TextAutomaton(text) if text else AUTOMATA.automaton(terminal, meter)


def _only_text(regex: Regex) -> bytes | None:
    """Return the one text of a regular expression that is written as such; None if it isn't."""
    found = []
    for part in regex.parts if isinstance(regex, Seq) else (regex,):
        if not isinstance(part, Chars) or len(part.ranges) != 1:
            return None
        first, last = part.ranges[0]
        if first != last:
            return None
        found.append(chr(first))
    return "".join(found).encode()


def text_of_mark(token_id: int) -> bytes:
    """Return the bytes that stand for a special token."""
    return MARK + token_id.to_bytes(4, "big")


def id_of_mark(text: bytes) -> int:
    """Return the special token for which the first bytes of a text stand."""
    return int.from_bytes(text[1:5], "big")


def _is_listed(regex: Regex | Mark) -> bool:
    match regex:
        case Chars(ranges):
            return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        case Seq(parts) | Alt(parts):
            return all(map(_is_listed, parts))
        case Repeat(part, _, most):
            return most == 1 and _is_listed(part)
    return False


def _distance(automaton: _Automaton, state: int) -> int:
    found = automaton.distance(state)
    return _NEVER if found is None else found
