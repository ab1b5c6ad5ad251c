"""Derivatives of regular expressions: what may follow a character, as an expression again.

Equal expressions have equal numbers, and are kept in few forms: options are a set, a sequence is
its head and its rest, counted repetitions of one thing are one repetition. Without `And` and `Not`
an expression's shortest text follows from its form; with them it is searched for, nearest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from inferno.grammar.regex import (
    ANY,
    MAX_CODE_POINT,
    MAX_DEPTH,
    Alt,
    And,
    Chars,
    Not,
    Regex,
    Repeat,
    Seq,
    TooComplex,
    depth_of,
    nested_counts,
)

NOTHING = 0
EMPTY = 1
_ANY = 2
_ANY_TEXT = 3

_MOST_WORK = 200_000  # small steps until an answer: some tenths of a second
_NODE_BYTES = 500  # about what a node takes, with all that is remembered of it
_DEEPEST_FACTORS = 40
_INFINITE = 1 << 60

_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF
_LENGTHS = ((0x7F, 1), (0x7FF, 2), (0xFFFF, 3))  # the last code points of one, two, three bytes

_SEQ, _ALT, _REP, _AND, _NOT, _CHARS = range(6)


class _Node(NamedTuple):
    """An expression: a head and a rest, options, a part and how often, parts, a part, or ranges."""

    kind: int
    parts: tuple[int, ...] = ()
    least: int = 0
    most: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()


class _Facts(NamedTuple):
    """What is known of an expression from its form."""

    can_be_empty: bool
    is_plain: bool  # there is no And and no Not in it
    num_bytes: int  # of its shortest text; a lower bound if it isn't plain
    fewest: int  # characters of a text, likewise
    most: int | None  # characters of a text, an upper bound


@dataclass(frozen=True, slots=True)
class _Classes:
    """All characters, split so that an expression treats those of a class alike."""

    starts: list[int]  # of intervals of code points
    class_of: list[int]  # each interval; -1 is no character
    members: list[frozenset[int]]  # the sets of characters that a class lies in
    num_bytes: list[int]  # of a class's shortest character


class Derivatives:
    """The expressions of one automaton, by number."""

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._work = 0
        self._nodes: list[_Node] = []
        self._numbers: dict[_Node, int] = {}
        self._facts: list[_Facts] = []
        self._firsts: dict[int, frozenset[int]] = {}
        self._classes: dict[frozenset[int], _Classes] = {}
        self._after: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._distances: dict[int, int | None] = {NOTHING: None}
        self._make(_Node(_ALT), _Facts(False, True, 0, 0, 0))
        self._make(_Node(_SEQ), _Facts(True, True, 0, 0, 0))
        self._chars(ANY)
        self._rep(_ANY, 0, None)

    def add(self, regex: Regex) -> int:
        """Return an expression's number. Raises TooComplex if it is too large or too deep."""
        self._work = 0
        if depth_of(regex) > MAX_DEPTH:
            raise TooComplex(f"a regular expression is at most {MAX_DEPTH} levels deep")
        return self._add(regex)

    def can_be_empty(self, node: int) -> bool:
        return self._facts[node].can_be_empty

    def after(self, node: int, code: int) -> int:
        """Return what may follow a character in an expression."""
        self._work = 0
        classes = self._classes_of(node)
        return self._step(node, classes, classes.class_of[bisect_right(classes.starts, code) - 1])

    def targets(self, node: int, first: int, last: int) -> list[tuple[int, int, int]]:
        """Return what may follow the characters of a range: first, last, and the expression."""
        self._work = 0
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
        if self._facts[node].is_plain or not self._facts[node].can_be_empty:
            return self.distance(node) is not None
        self._work = 0
        return any(self._distance(after) is not None for _, after in self._steps(node))

    def distance(self, node: int) -> int | None:
        """Return how many bytes the shortest text has; None: nothing matches."""
        facts = self._facts[node]
        if facts.can_be_empty:
            return 0
        if facts.is_plain:
            return None if node == NOTHING else facts.num_bytes
        if node not in self._distances:
            self._work = 0
        return self._distance(node)

    # Making of expressions.

    def _add(self, regex: Regex) -> int:
        self._spend(1)
        match regex:
            case Chars():
                return self._chars(regex)
            case Seq(parts):
                rest = EMPTY
                for part in reversed(parts):
                    rest = self._seq(self._add(part), rest)
                return rest
            case Alt(options):
                return self._alt_of_common_heads([self._add(each) for each in options], 0)
            case Repeat(part, least, most):
                return self._rep(self._add(part), least, most)
            case And(parts):
                return self._and([self._add(each) for each in parts])
            case Not(part):
                return self._not(self._add(part))

    def _make(self, node: _Node, facts: _Facts) -> int:
        self._bytes_left -= _NODE_BYTES + 16 * (len(node.parts) + len(node.ranges))
        if self._bytes_left < 0:
            raise TooComplex("a regular expression has too many states")
        number = self._numbers[node] = len(self._nodes)
        self._nodes.append(node)
        self._facts.append(facts)
        return number

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            raise TooComplex("a regular expression takes too many steps")

    def _chars(self, some: Chars) -> int:
        if not some.ranges:
            return NOTHING
        node = _Node(_CHARS, ranges=some.ranges)
        known = self._numbers.get(node)
        if known is not None:
            return known
        return self._make(node, _Facts(False, True, _num_bytes(some.ranges[0][0]), 1, 1))

    def _seq(self, head: int, rest: int) -> int:
        if NOTHING in (head, rest):
            return NOTHING
        heads = []
        while self._nodes[head].kind == _SEQ and head != EMPTY:
            first, head = self._nodes[head].parts
            heads.append(first)
        heads.append(head)
        self._spend(len(heads))
        for each in reversed(heads):
            rest = self._pair(each, rest)
        return rest

    def _pair(self, head: int, rest: int) -> int:
        """Return a head that is no sequence before a rest."""
        if head == EMPTY:
            return rest
        if rest == EMPTY:
            return head
        node = self._nodes[head]
        if node.kind == _REP:
            # x{a,b}x{c,d} is x{a+c,b+d}.
            second, after = self._split(rest)
            other = self._nodes[second]
            if other.kind == _REP and other.parts == node.parts:
                most = _sum(node.most, other.most)
                return self._pair(self._rep(node.parts[0], node.least + other.least, most), after)
        pair = _Node(_SEQ, (head, rest))
        known = self._numbers.get(pair)
        if known is not None:
            return known
        one, other_facts = self._facts[head], self._facts[rest]
        return self._make(
            pair,
            _Facts(
                one.can_be_empty and other_facts.can_be_empty,
                one.is_plain and other_facts.is_plain,
                one.num_bytes + other_facts.num_bytes,
                one.fewest + other_facts.fewest,
                _sum(one.most, other_facts.most),
            ),
        )

    def _split(self, node: int) -> tuple[int, int]:
        """Return an expression's head and rest, which is EMPTY for one that is no sequence."""
        if self._nodes[node].kind == _SEQ and node != EMPTY:
            head, rest = self._nodes[node].parts
            return head, rest
        return node, EMPTY

    def _alt(self, options: Iterable[int]) -> int:
        flat: set[int] = set()
        for option in options:
            node = self._nodes[option]
            if node.kind == _ALT:
                flat.update(node.parts)
            else:
                flat.add(option)
        self._spend(len(flat))
        flat = self._with_joined_counts(flat)
        if _ANY_TEXT in flat:
            return _ANY_TEXT
        if EMPTY in flat and sum(self._facts[each].can_be_empty for each in flat) > 1:
            flat.discard(EMPTY)
        if len(flat) == 1:
            return flat.pop()
        node = _Node(_ALT, tuple(sorted(flat)))
        known = self._numbers.get(node)
        if known is not None:
            return known
        facts = [self._facts[each] for each in node.parts]
        bounds = [each.most for each in facts if each.most is not None]
        return self._make(
            node,
            _Facts(
                any(each.can_be_empty for each in facts),
                all(each.is_plain for each in facts),
                min(each.num_bytes for each in facts),
                min(each.fewest for each in facts),
                max(bounds) if len(bounds) == len(facts) else None,
            ),
        )

    def _with_joined_counts(self, options: set[int]) -> set[int]:
        """Return the options, those that differ in a count only joined: x{0,4}y|x{0,5}y."""
        counted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for option in options:
            head, rest = self._split(option)
            if self._nodes[head].kind == _REP:
                counted[self._nodes[head].parts[0], rest].append(option)
        joined = set(options)
        for (part, rest), some in counted.items():
            if len(some) == 1:
                continue
            bounds = []
            for option in some:
                node = self._nodes[self._split(option)[0]]
                bounds.append((node.least, _INFINITE if node.most is None else node.most))
            joined.difference_update(some)
            for least, most in _joined(bounds):
                repeated = self._rep(part, least, None if most == _INFINITE else most)
                joined.add(self._pair(repeated, rest))
        return joined

    def _alt_of_common_heads(self, options: list[int], depth: int) -> int:
        """Return one of the options, with those that begin alike made one: ab|ac is a(b|c)."""
        by_head: defaultdict[int, list[int]] = defaultdict(list)
        for option in options:
            head, rest = self._split(option)
            by_head[head].append(rest)
        self._spend(len(options))
        if depth > _DEEPEST_FACTORS or len(by_head) == len(options):
            return self._alt(options)
        whole = []
        for head, rests in by_head.items():
            heads = [head]
            while len(rests) > 1 and EMPTY not in rests:
                splits = [self._split(rest) for rest in rests]
                if any(each != splits[0][0] for each, _ in splits):
                    break
                heads.append(splits[0][0])
                rests = list({rest for _, rest in splits})
                self._spend(len(rests))
            rest = rests[0] if len(rests) == 1 else self._alt_of_common_heads(rests, depth + 1)
            for each in reversed(heads):
                rest = self._seq(each, rest)
            whole.append(rest)
        return self._alt(whole)

    def _rep(self, part: int, least: int, most: int | None) -> int:
        if most == 0 or part == EMPTY:
            return EMPTY
        if part == NOTHING:
            return EMPTY if least == 0 else NOTHING
        if least == most == 1:
            return part
        facts = self._facts[part]
        if facts.can_be_empty:
            least = 0
        inner = self._nodes[part]
        if inner.kind == _REP and (counts := nested_counts(inner.least, inner.most, least, most)):
            return self._rep(inner.parts[0], *counts)
        node = _Node(_REP, (part,), least, most)
        known = self._numbers.get(node)
        if known is not None:
            return known
        return self._make(
            node,
            _Facts(
                least == 0,
                facts.is_plain,
                least * facts.num_bytes,
                least * facts.fewest,
                None if most is None or facts.most is None else most * facts.most,
            ),
        )

    def _and(self, parts: Iterable[int]) -> int:
        flat: set[int] = set()
        for part in parts:
            node = self._nodes[part]
            if node.kind == _AND:
                flat.update(node.parts)
            else:
                flat.add(part)
        self._spend(len(flat))
        flat.discard(_ANY_TEXT)
        if len(flat) <= 1:
            return flat.pop() if flat else _ANY_TEXT
        facts = [self._facts[each] for each in flat]
        fewest = max(each.fewest for each in facts)
        most = min((each.most for each in facts if each.most is not None), default=None)
        can_be_empty = all(each.can_be_empty for each in facts)
        if NOTHING in flat or (most is not None and fewest > most):
            return NOTHING
        if most == 0:
            return EMPTY if can_be_empty else NOTHING
        nodes = [self._nodes[each] for each in flat]
        if any(each.kind == _NOT and each.parts[0] in flat for each in nodes):
            return NOTHING
        node = _Node(_AND, tuple(sorted(flat)))
        known = self._numbers.get(node)
        if known is not None:
            return known
        num_bytes = max(each.num_bytes for each in facts)
        return self._make(node, _Facts(can_be_empty, False, num_bytes, fewest, most))

    def _not(self, part: int) -> int:
        node = self._nodes[part]
        if node.kind == _NOT:
            return node.parts[0]
        if part == NOTHING:
            return _ANY_TEXT
        if part == EMPTY:
            return self._rep(_ANY, 1, None)
        if part == _ANY:
            return self._alt([EMPTY, self._rep(_ANY, 2, None)])
        if node.kind == _REP and node.parts[0] == _ANY:
            fewer = NOTHING if node.least == 0 else self._rep(_ANY, 0, node.least - 1)
            more = NOTHING if node.most is None else self._rep(_ANY, node.most + 1, None)
            return self._alt([fewer, more])
        whole = _Node(_NOT, (part,))
        known = self._numbers.get(whole)
        if known is not None:
            return known
        can_be_empty = not self._facts[part].can_be_empty
        fewest = 0 if can_be_empty else 1
        return self._make(whole, _Facts(can_be_empty, False, fewest, fewest, None))

    # Derivatives.

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
        self._spend(1)
        kind, parts, least, most, _ = self._nodes[node]
        if kind == _CHARS:
            return EMPTY if node in inside else NOTHING
        if node == EMPTY:
            return NOTHING
        if kind == _SEQ:
            found = self._derive_sequence(node, inside, memory)
        elif kind == _REP:
            fewer = self._rep(parts[0], max(least - 1, 0), None if most is None else most - 1)
            found = self._before(self._derive(parts[0], inside, memory), fewer)
        else:
            after = [self._derive(each, inside, memory) for each in parts]
            if kind == _ALT:
                found = self._alt(after)
            else:
                found = self._and(after) if kind == _AND else self._not(after[0])
        memory[node] = found
        return found

    def _derive_sequence(self, node: int, inside: frozenset[int], memory: dict[int, int]) -> int:
        options = []
        while self._nodes[node].kind == _SEQ and node != EMPTY:
            head, rest = self._nodes[node].parts
            self._spend(1)
            options.append(self._before(self._derive(head, inside, memory), rest))
            if not self._facts[head].can_be_empty:
                return self._alt(options) if len(options) > 1 else options[0]
            node = rest
        options.append(self._derive(node, inside, memory))
        return self._alt(options)

    def _before(self, head: int, rest: int) -> int:
        """Return a derivative before a rest; each of its options has the rest for itself.

        So all states are sets of few sequences, and equal ones are seen to be equal.
        """
        node = self._nodes[head]
        if node.kind != _ALT:
            return self._seq(head, rest)
        return self._alt([self._seq(each, rest) for each in node.parts])

    def _firsts_of(self, node: int) -> frozenset[int]:
        """Return the sets of characters that matter to what an expression's first one is."""
        known = self._firsts.get(node)
        if known is not None:
            return known
        found: set[int] = set()
        at = node
        while True:
            kind, parts, *_ = self._nodes[at]
            if kind == _CHARS:
                found.add(at)
                break
            if kind != _SEQ or at == EMPTY:
                for each in parts:
                    found |= self._firsts_of(each)
                break
            found |= self._firsts_of(parts[0])
            self._spend(1)
            if not self._facts[parts[0]].can_be_empty:
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
            ranges = self._nodes[each].ranges
            self._spend(len(ranges))
            for first, last in ranges:
                changes[first].add(each)
                changes[last + 1].add(each)
        for start in (0, *(last + 1 for last, _ in _LENGTHS), _LAST_SURROGATE + 1):
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
                num_bytes.append(_num_bytes(start))
            class_of.append(numbers[members])
        return _Classes(starts, class_of, list(numbers), num_bytes)

    # Distances.

    def _distance(self, node: int) -> int | None:
        facts = self._facts[node]
        if facts.can_be_empty:
            return 0
        if facts.is_plain:
            return None if node == NOTHING else facts.num_bytes
        if node in self._distances:
            return self._distances[node]
        self._spend(1)
        kind, parts, least, *_ = self._nodes[node]
        found: int | None
        if kind == _SEQ:
            found = self._distance_of_sequence(node)
        elif kind == _REP:
            found = self._distance(parts[0])
            found = None if found is None else found * least
        elif kind == _ALT:
            options = [self._distance(each) for each in parts]
            found = min((each for each in options if each is not None), default=None)
        else:
            found = self._search(node)
        self._distances[node] = found
        return found

    def _distance_of_sequence(self, node: int) -> int | None:
        heads = []
        while self._nodes[node].kind == _SEQ and not self._facts[node].is_plain:
            if node in self._distances:
                break
            head, rest = self._nodes[node].parts
            heads.append((node, head))
            node = rest
        distance = self._distance(node)
        for whole, head in reversed(heads):
            before = self._distance(head)
            distance = None if before is None or distance is None else before + distance
            self._distances[whole] = distance
        return distance

    def _search(self, start: int) -> int | None:
        """Return how far the nearest match is, by A*: the bounds known from the form lead on."""
        so_far = {start: 0}
        came_from: dict[int, int] = {}
        waiting = [(self._facts[start].num_bytes, start)]
        while waiting:
            bound, node = heappop(waiting)
            gone = so_far[node]
            if self._is_known(node):
                whole = gone + (self._distance(node) or 0)
                if bound < whole:  # it has become known since it was put here
                    heappush(waiting, (whole, node))
                if bound != whole:
                    continue
                at = node
                while at != start:
                    at = came_from[at]
                    self._distances[at] = bound - so_far[at]
                return bound
            for num_bytes, after in self._steps(node):
                self._spend(1)
                steps = gone + num_bytes
                if steps >= so_far.get(after, steps + 1):
                    continue
                ahead: int | None = self._facts[after].num_bytes
                if self._is_known(after):
                    ahead = self._distance(after)
                if ahead is not None:
                    so_far[after] = steps
                    came_from[after] = node
                    heappush(waiting, (steps + ahead, after))
        # Whatever was looked at leads nowhere.
        self._distances.update(dict.fromkeys(so_far, None))
        return None

    def _is_known(self, node: int) -> bool:
        """Return whether a distance is known, or follows from those of an expression's parts."""
        return (
            node in self._distances
            or self._facts[node].can_be_empty
            or self._nodes[node].kind not in (_AND, _NOT)
        )


def _sum(one: int | None, other: int | None) -> int | None:
    """Return the sum of two bounds; None is without bound."""
    return None if one is None or other is None else one + other


def _num_bytes(code: int) -> int:
    """Return how many bytes of UTF-8 a character has."""
    return next((num_bytes for last, num_bytes in _LENGTHS if code <= last), 4)


def _joined(bounds: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return intervals of counts with those joined that overlap or follow on one another."""
    joined: list[tuple[int, int]] = []
    for least, most in sorted(bounds):
        if joined and least <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], most)
        else:
            joined.append((least, most))
    return joined
