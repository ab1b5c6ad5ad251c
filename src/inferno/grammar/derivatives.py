"""Derivatives of regular expressions: what may follow a character, as an expression again.

Without `And` and `Not` an expression's shortest text follows from its form; with them it is
searched for, nearest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush

from inferno.grammar.expressions import (
    ALT,
    AND,
    CHARS,
    EMPTY,
    INFINITE,
    LENGTHS,
    NOT,
    NOTHING,
    REP,
    SEQ,
    Expressions,
    Meter,
    num_bytes_of,
)
from inferno.grammar.regex import MAX_CODE_POINT, Regex

_MOST_WORK_A_BYTE = 60_000  # which is some hundredths of a second

_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF


@dataclass(frozen=True, slots=True)
class _Classes:
    """All characters, split so that an expression treats those of a class alike."""

    starts: list[int]  # of intervals of code points
    class_of: list[int]  # each interval; -1 is no character
    members: list[frozenset[int]]  # the sets of characters that a class lies in
    num_bytes: list[int]  # of a class's shortest character


class Derivatives:
    """The expressions of one automaton: each has a number, and a derivative for each character."""

    def __init__(self, max_bytes: int, max_work: int, meter: Meter) -> None:
        self._expressions = Expressions(max_bytes, max_work, meter)
        self._firsts: dict[int, frozenset[int]] = {}
        self._classes: dict[frozenset[int], _Classes] = {}
        self._after: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._distances: dict[int, int | None] = {NOTHING: None}

    def copy(self, meter: Meter) -> Derivatives:
        """Return others that know what these do; a meter counts their work, with what it took."""
        twin = copy(self)
        twin._expressions = self._expressions.copy(meter)
        twin._firsts = self._firsts.copy()
        twin._classes = self._classes.copy()
        twin._after = defaultdict(dict, {node: after.copy() for node, after in self._after.items()})
        twin._distances = self._distances.copy()
        return twin

    @property
    def size(self) -> int:
        """Return how many expressions there are."""
        return len(self._expressions.nodes)

    def add(self, regex: Regex) -> int:
        """Return an expression's number. Raises TooComplex if it is too large or too deep."""
        self._expressions.start_work()
        return self._expressions.add(regex)

    def can_be_empty(self, node: int) -> bool:
        return self._expressions.facts[node].can_be_empty

    def after(self, node: int, code: int) -> int:
        """Return the expression of what may follow a character in an expression."""
        self._expressions.start_work(_MOST_WORK_A_BYTE)
        classes = self._classes_of(node)
        return self._step(node, classes, classes.class_of[bisect_right(classes.starts, code) - 1])

    def targets(self, node: int, first: int, last: int) -> list[tuple[int, int, int]]:
        """Return what may follow the characters of a range: first, last, and the expression."""
        self._expressions.start_work(_MOST_WORK_A_BYTE)
        classes = self._classes_of(node)
        found = []
        index = bisect_right(classes.starts, first) - 1
        while first <= last:
            is_last = index + 1 == len(classes.starts)
            end = last if is_last else min(last, classes.starts[index + 1] - 1)
            target = self._step(node, classes, classes.class_of[index])
            if target != NOTHING:
                found.append((first, end, target))
            first = end + 1
            index += 1
        return found

    def can_go_on(self, node: int) -> bool:
        """Return whether a text that isn't empty matches."""
        if node in (NOTHING, EMPTY):
            return False
        facts = self._expressions.facts[node]
        if facts.is_plain or not facts.can_be_empty:
            return self.distance(node) is not None
        self._expressions.start_work()
        return any(self._distance(after) is not None for _, after in self._steps(node))

    def distance(self, node: int) -> int | None:
        """Return how many bytes the shortest text has; None: nothing matches."""
        facts = self._expressions.facts[node]
        if facts.can_be_empty:
            return 0
        if facts.is_plain:
            return None if node == NOTHING else facts.num_bytes
        if node not in self._distances:
            self._expressions.start_work()
        return self._distance(node)

    def is_within(self, node: int, most: int) -> bool:
        """Return whether some text has so few bytes, which takes less than to find the shortest."""
        if node not in self._distances:
            self._expressions.start_work()
        return self._is_within(node, most)

    def _is_within(self, node: int, most: int) -> bool:
        facts = self._expressions.facts[node]
        if facts.num_bytes > most:  # which is a lower bound
            return False
        kind, parts, *_ = self._expressions.nodes[node]
        if self._is_known(node) and not (kind in (SEQ, ALT) and not facts.is_plain):
            distance = self._distance(node)
            return distance is not None and distance <= most
        if kind in (AND, NOT):
            return self._search(node, most) is not None
        if kind == ALT:
            return any(self._is_within(each, most) for each in parts)
        head, rest = parts
        least = self._expressions.facts[rest].num_bytes
        if not self._is_within(head, most - least):
            return False
        distance = self._distance(node)
        return distance is not None and distance <= most

    def _step(self, node: int, classes: _Classes, index: int) -> int:
        """Return what may follow the characters of a class; it is remembered."""
        if index < 0:
            return NOTHING
        known = self._after[node].get(index)
        if known is None:
            known = self._after[node][index] = self._derive(node, classes.members[index], {})
        return known

    def _steps(self, node: int) -> list[tuple[int, int]]:
        """Return each class of characters: the bytes of its shortest, and what may follow."""
        classes = self._classes_of(node)
        return [
            (num_bytes, self._step(node, classes, index))
            for index, num_bytes in enumerate(classes.num_bytes)
        ]

    def _derive(self, node: int, inside: frozenset[int], memory: dict[int, int]) -> int:
        """Return what may follow a character that is in these sets of characters."""
        known = memory.get(node)
        if known is not None:
            return known
        self._expressions.spend(3)
        kind, parts, least, most, _ = self._expressions.nodes[node]
        if kind == CHARS:
            return EMPTY if node in inside else NOTHING
        if node == EMPTY:
            return NOTHING
        if kind == SEQ:
            found = self._derive_sequence(node, inside, memory)
        elif kind == REP:
            at_most = None if most is None else most - 1
            fewer = self._expressions.rep(parts[0], max(least - 1, 0), at_most)
            found = self._before(self._derive(parts[0], inside, memory), fewer)
        else:
            after = [self._derive(each, inside, memory) for each in parts]
            if kind == NOT:
                found = self._expressions.negate(after[0])
            else:
                make = self._expressions.alt if kind == ALT else self._expressions.both
                found = make(after)
        memory[node] = found
        return found

    def _derive_sequence(self, node: int, inside: frozenset[int], memory: dict[int, int]) -> int:
        options = []
        while self._expressions.nodes[node].kind == SEQ and node != EMPTY:
            head, rest = self._expressions.nodes[node].parts
            self._expressions.spend(1)
            options.append(self._before(self._derive(head, inside, memory), rest))
            if not self._expressions.facts[head].can_be_empty:
                return self._expressions.alt(options) if len(options) > 1 else options[0]
            node = rest
        options.append(self._derive(node, inside, memory))
        return self._expressions.alt(options)

    def _before(self, head: int, rest: int) -> int:
        """Return a derivative before a rest; each of its options has the rest for itself.

        So all states are sets of few sequences, and equal ones are seen to be equal.
        """
        node = self._expressions.nodes[head]
        if node.kind != ALT:
            return self._expressions.seq(head, rest)
        return self._expressions.alt([self._expressions.seq(each, rest) for each in node.parts])

    def _firsts_of(self, node: int) -> frozenset[int]:
        """Return the sets of characters that matter to what an expression's first one is."""
        known = self._firsts.get(node)
        if known is not None:
            return known
        found: set[int] = set()
        at = node
        while True:
            kind, parts, *_ = self._expressions.nodes[at]
            if kind == CHARS:
                found.add(at)
                break
            if kind != SEQ or at == EMPTY:
                for each in parts:
                    found |= self._firsts_of(each)
                break
            found |= self._firsts_of(parts[0])
            self._expressions.spend(1)
            if not self._expressions.facts[parts[0]].can_be_empty:
                break
            at = parts[1]
        firsts = frozenset(found)
        self._firsts[node] = firsts
        return firsts

    def _classes_of(self, node: int) -> _Classes:
        firsts = self._firsts_of(node)
        known = self._classes.get(firsts)
        if known is None:
            known = self._classes[firsts] = self._split_by(firsts)
        return known

    def _split_by(self, sets: frozenset[int]) -> _Classes:
        """Return the classes of characters that lie in the same sets."""
        changes: defaultdict[int, set[int]] = defaultdict(set)  # a start: sets that begin or end
        for each in sets:
            ranges = self._expressions.nodes[each].ranges
            self._expressions.spend(len(ranges))
            for first, last in ranges:
                changes[first].add(each)
                changes[last + 1].add(each)
        for start in (0, *(last + 1 for last, _ in LENGTHS), _LAST_SURROGATE + 1):
            changes[start] ^= set()
        changes[_FIRST_SURROGATE] ^= set()
        starts = [start for start in sorted(changes) if start <= MAX_CODE_POINT]
        numbers: dict[frozenset[int], int] = {}
        class_of: list[int] = []
        num_bytes: list[int] = []
        members: frozenset[int] = frozenset()
        for start in starts:
            members ^= changes[start]
            if start == _FIRST_SURROGATE:
                class_of.append(-1)
                continue
            if members not in numbers:
                numbers[members] = len(numbers)
                num_bytes.append(num_bytes_of(start))
            class_of.append(numbers[members])
        return _Classes(starts, class_of, list(numbers), num_bytes)

    def _distance(self, node: int) -> int | None:
        facts = self._expressions.facts[node]
        if facts.can_be_empty:
            return 0
        if facts.is_plain:
            return None if node == NOTHING else facts.num_bytes
        if node in self._distances:
            return self._distances[node]
        self._expressions.spend(1)
        kind, parts, least, *_ = self._expressions.nodes[node]
        found: int | None
        if kind == SEQ:
            found = self._distance_of_sequence(node)
        elif kind == REP:
            found = self._distance(parts[0])
            found = None if found is None else found * least
        elif kind == ALT:
            options = [self._distance(each) for each in parts]
            found = min((each for each in options if each is not None), default=None)
        else:
            found = self._search(node)
        self._distances[node] = found
        return found

    def _distance_of_sequence(self, node: int) -> int | None:
        heads = []
        while (
            self._expressions.nodes[node].kind == SEQ and not self._expressions.facts[node].is_plain
        ):
            if node in self._distances:
                break
            head, rest = self._expressions.nodes[node].parts
            heads.append((node, head))
            node = rest
        distance = self._distance(node)
        for whole, head in reversed(heads):
            before = self._distance(head)
            distance = None if before is None or distance is None else before + distance
            self._distances[whole] = distance
        return distance

    def _search(self, start: int, most: int = INFINITE) -> int | None:
        """Return how far the nearest match is, by A*: the bounds known from the form lead on.

        None where there is none, or none within so many bytes.
        """
        left: int | None
        is_cut = False
        so_far = {start: 0}
        came_from: dict[int, int] = {}
        # Of those that promise as much, the one that has come furthest is the next.
        waiting = [(self._expressions.facts[start].num_bytes, 0, start)]
        while waiting:
            bound, minus_gone, node = heappop(waiting)
            if -minus_gone > so_far[node]:
                continue
            if self._is_known(node):
                left = self._distance(node)
                if left is not None and bound == left - minus_gone:
                    at = node
                    while at != start:
                        at = came_from[at]
                        self._distances[at] = bound - so_far[at]
                    return bound
                if left is not None and left - minus_gone > most:
                    is_cut = True
                elif left is not None:  # it has become known since it was put here
                    heappush(waiting, (left - minus_gone, minus_gone, node))
                continue
            for num_bytes, after in self._steps(node):
                self._expressions.spend(1)
                gone = num_bytes - minus_gone
                if gone >= so_far.get(after, gone + 1):
                    continue
                left = self._expressions.facts[after].num_bytes
                if self._is_known(after):
                    left = self._distance(after)
                if left is not None and gone + left > most:
                    is_cut = True
                elif left is not None:
                    so_far[after] = gone
                    came_from[after] = node
                    heappush(waiting, (gone + left, -gone, after))
        if is_cut:
            return None
        # Whatever was looked at leads nowhere.
        self._distances.update(dict.fromkeys(so_far, None))
        return None

    def _is_known(self, node: int) -> bool:
        """Return whether a distance is known, or follows from those of an expression's parts."""
        return (
            node in self._distances
            or self._expressions.facts[node].can_be_empty
            or self._expressions.nodes[node].kind not in (AND, NOT)
        )
