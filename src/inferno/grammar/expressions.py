"""Expressions by number, each in one form, with what follows from its form.

Equal forms have equal numbers, and there are few forms: options are a set, a sequence is its head
and its rest, counted repetitions of one thing are one repetition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import NamedTuple

from inferno.grammar.regex import (
    ANY,
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
from inferno.grammar.turns import Asker, asker

NOTHING = 0
EMPTY = 1
_ANY = 2
_ANY_TEXT = 3

MOST_WORK = 400_000  # small steps until an answer: some tenths of a second
_NODE_BYTES = 500  # about what a node takes, with all that is remembered of it
_DEEPEST_FACTORS = 40
_STEPS_OF_A_LOOK = 250
INFINITE = 1 << 60

LENGTHS = ((0x7F, 1), (0x7FF, 2), (0xFFFF, 3))  # the last code points of one, two, three bytes

SEQ, ALT, REP, AND, NOT, CHARS = range(6)


class Node(NamedTuple):
    """An expression: a head and a rest, options, a part and how often, parts, a part, or ranges."""

    kind: int
    parts: tuple[int, ...] = ()
    least: int = 0
    most: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()


class Facts(NamedTuple):
    """Properties of an expression that follow from its form."""

    can_be_empty: bool
    is_plain: bool  # there is no And and no Not in it
    num_bytes: int  # of its shortest text; a lower bound if it isn't plain
    fewest: int  # characters of a text, likewise
    most: int | None  # characters of a text, an upper bound


class OutOfWork(Exception):
    """Raised within a piece of work that takes more small steps than it may."""


class Meter:
    """A count of small steps, of about a microsecond each, and how many may have been made.

    Now and then it tells who asks in this thread, and then others may have their turn (see
    `turns.py`): they aren't bound by what may be spent here, and none of them spends anything
    before whoever began has ended.

    most    the count at which it is looked whether more may be spent.
    """

    __slots__ = ("_holder", "_limit", "_seen", "most", "spent")

    def __init__(self) -> None:
        self.spent = self._seen = 0
        self.most = self._limit = INFINITE
        self._holder: Asker | None = None  # has begun something, and others have their turn

    @property
    def left(self) -> int:
        """Return how many steps may still be spent; this doesn't change while others go on."""
        return self._limit - self.spent

    def spend(self, work: int) -> None:
        """Count some steps. Raises OutOfWork beyond what may be spent."""
        self.spent += work
        if self.spent > self.most:
            self.look()

    def take_over(self, work: int) -> None:
        """Count steps that others have made before."""
        self.spent += work
        self._seen += work

    def look(self) -> None:
        """Raise OutOfWork beyond what may be spent; let others go on if it is their turn."""
        here = asker()
        while self._holder is not None and self._holder is not here:
            self._let_others(
                self._holder.go_on if here is None else partial(here.wait, self._is_held)
            )
        num_steps, self._seen = self.spent - self._seen, self.spent
        if here is not None:
            self._holder = here
            try:
                self._let_others(partial(here.note, num_steps))
            finally:
                self._holder = None
        if self.spent > self._limit:
            raise OutOfWork
        self.most = min(self._limit, self.spent + _STEPS_OF_A_LOOK)

    def _is_held(self) -> bool:
        return self._holder is not None

    def _let_others(self, wait: Callable[[], None]) -> None:
        """Wait, with a bound that is neither theirs nor moved by them."""
        limit, before = self._limit, self.spent
        self._limit, self.most = INFINITE, 0
        try:
            wait()
        finally:
            self._limit = limit + self.spent - before
            self.most = 0

    @contextmanager
    def at_most(self, work: int) -> Iterator[None]:
        """Bound the further steps until the block ends."""
        before = self._limit
        self._limit = min(before, self.spent + work)
        self.most = min(self.most, self._limit, self.spent + _STEPS_OF_A_LOOK)
        try:
            yield
        finally:
            self._limit = before


class Expressions:
    """The expressions of one automaton, with their numbers and facts.

    nodes, facts  by number.
    """

    def __init__(self, max_bytes: int, max_work: int, meter: Meter) -> None:
        self._meter = meter
        self.nodes: list[Node] = []
        self.facts: list[Facts] = []
        self._numbers: dict[Node, int] = {}
        self._bytes_left = max_bytes
        self._total_left = self._most_work = max_work
        self.start_work()
        self._make(Node(ALT), Facts(False, True, 0, 0, 0))
        self._make(Node(SEQ), Facts(True, True, 0, 0, 0))
        self.chars(ANY)
        self.rep(_ANY, 0, None)

    def copy(self, meter: Meter) -> Expressions:
        """Return others with the same numbers; a meter counts their work, with what it took."""
        twin = copy(self)
        twin._meter = meter
        twin.nodes, twin.facts = self.nodes.copy(), self.facts.copy()
        twin._numbers = self._numbers.copy()
        meter.take_over(self._most_work - self._total_left)
        return twin

    def add(self, regex: Regex) -> int:
        """Return an expression's number. Raises TooComplex if it is too large or too deep."""
        if depth_of(regex) > MAX_DEPTH:
            raise TooComplex(f"a regular expression is at most {MAX_DEPTH} levels deep")
        return self._add(regex)

    def start_work(self, most: int = MOST_WORK) -> None:
        """Begin a piece of work, which may take a number of steps.

        Who has begun one before, and has let others go on, ends it first: it has a bound as well.
        """
        self._meter.spend(0)
        self._work_left = most

    def _add(self, regex: Regex) -> int:
        self.spend(1)
        match regex:
            case Chars():
                return self.chars(regex)
            case Seq(parts):
                rest = EMPTY
                for part in reversed(parts):
                    rest = self.seq(self._add(part), rest)
                return rest
            case Alt(options):
                return self._alt_of_common_heads([self._add(each) for each in options], 0)
            case Repeat(part, least, most):
                return self.rep(self._add(part), least, most)
            case And(parts):
                return self.both([self._add(each) for each in parts])
            case Not(part):
                return self.negate(self._add(part))

    def _make(self, node: Node, facts: Facts) -> int:
        self._bytes_left -= _NODE_BYTES + 16 * (len(node.parts) + len(node.ranges))
        if self._bytes_left < 0:
            raise TooComplex("a regular expression has too many states")
        number = self._numbers[node] = len(self.nodes)
        self.nodes.append(node)
        self.facts.append(facts)
        return number

    def spend(self, work: int) -> None:
        self._work_left -= work
        self._total_left -= work
        if self._work_left < 0 or self._total_left < 0:
            raise TooComplex("a regular expression takes too many steps")
        self._meter.spent += work  # not by a call, for this is the innermost loop
        if self._meter.spent > self._meter.most:
            self._meter.look()

    def chars(self, some: Chars) -> int:
        if not some.ranges:
            return NOTHING
        node = Node(CHARS, ranges=some.ranges)
        known = self._numbers.get(node)
        if known is not None:
            return known
        return self._make(node, Facts(False, True, num_bytes_of(some.ranges[0][0]), 1, 1))

    def seq(self, head: int, rest: int) -> int:
        if NOTHING in (head, rest):
            return NOTHING
        if self.nodes[head].kind != SEQ:
            return self._pair(head, rest)
        heads = []
        while self.nodes[head].kind == SEQ and head != EMPTY:
            first, head = self.nodes[head].parts
            heads.append(first)
        heads.append(head)
        self.spend(len(heads))
        for each in reversed(heads):
            rest = self._pair(each, rest)
        return rest

    def _pair(self, head: int, rest: int) -> int:
        """Return a head that is no sequence before a rest."""
        if head == EMPTY:
            return rest
        if rest == EMPTY:
            return head
        node = self.nodes[head]
        if node.kind == REP:
            # x{a,b}x{c,d} is x{a+c,b+d}.
            second, after = self.split(rest)
            other = self.nodes[second]
            if other.kind == REP and other.parts == node.parts:
                most = _sum(node.most, other.most)
                return self._pair(self.rep(node.parts[0], node.least + other.least, most), after)
        pair = Node(SEQ, (head, rest))
        known = self._numbers.get(pair)
        if known is not None:
            return known
        one, other_facts = self.facts[head], self.facts[rest]
        return self._make(
            pair,
            Facts(
                one.can_be_empty and other_facts.can_be_empty,
                one.is_plain and other_facts.is_plain,
                one.num_bytes + other_facts.num_bytes,
                one.fewest + other_facts.fewest,
                _sum(one.most, other_facts.most),
            ),
        )

    def split(self, node: int) -> tuple[int, int]:
        """Return an expression's head and rest; the rest is EMPTY if it is no sequence."""
        if self.nodes[node].kind == SEQ and node != EMPTY:
            head, rest = self.nodes[node].parts
            return head, rest
        return node, EMPTY

    def alt(self, options: Iterable[int]) -> int:
        flat: set[int] = set()
        for option in options:
            node = self.nodes[option]
            if node.kind == ALT:
                flat.update(node.parts)
            else:
                flat.add(option)
        self.spend(4 + 2 * len(flat))
        flat = self._with_joined_counts(flat)
        if _ANY_TEXT in flat:
            return _ANY_TEXT
        if EMPTY in flat and sum(self.facts[each].can_be_empty for each in flat) > 1:
            flat.discard(EMPTY)
        if len(flat) == 1:
            return flat.pop()
        node = Node(ALT, tuple(sorted(flat)))
        known = self._numbers.get(node)
        if known is not None:
            return known
        facts = [self.facts[each] for each in node.parts]
        bounds = [each.most for each in facts if each.most is not None]
        return self._make(
            node,
            Facts(
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
            head, rest = self.split(option)
            if self.nodes[head].kind == REP:
                counted[self.nodes[head].parts[0], rest].append(option)
        joined = set(options)
        for (part, rest), some in counted.items():
            if len(some) == 1:
                continue
            bounds = []
            for option in some:
                node = self.nodes[self.split(option)[0]]
                bounds.append((node.least, INFINITE if node.most is None else node.most))
            joined.difference_update(some)
            for least, most in _joined(bounds):
                repeated = self.rep(part, least, None if most == INFINITE else most)
                joined.add(self._pair(repeated, rest))
        return joined

    def _alt_of_common_heads(self, options: list[int], depth: int) -> int:
        """Return one of the options, with those that begin alike made one: ab|ac is a(b|c)."""
        by_head: defaultdict[int, list[int]] = defaultdict(list)
        for option in options:
            head, rest = self.split(option)
            by_head[head].append(rest)
        self.spend(len(options))
        if depth > _DEEPEST_FACTORS or len(by_head) == len(options):
            return self.alt(options)
        whole = []
        for head, rests in by_head.items():
            heads = [head]
            while len(rests) > 1 and EMPTY not in rests:
                splits = [self.split(rest) for rest in rests]
                if any(each != splits[0][0] for each, _ in splits):
                    break
                heads.append(splits[0][0])
                rests = list({rest for _, rest in splits})
                self.spend(len(rests))
            rest = rests[0] if len(rests) == 1 else self._alt_of_common_heads(rests, depth + 1)
            for each in reversed(heads):
                rest = self.seq(each, rest)
            whole.append(rest)
        return self.alt(whole)

    def rep(self, part: int, least: int, most: int | None) -> int:
        if most == 0 or part == EMPTY:
            return EMPTY
        if part == NOTHING:
            return EMPTY if least == 0 else NOTHING
        if least == most == 1:
            return part
        facts = self.facts[part]
        if facts.can_be_empty:
            least = 0
        inner = self.nodes[part]
        if inner.kind == REP and (counts := nested_counts(inner.least, inner.most, least, most)):
            return self.rep(inner.parts[0], *counts)
        node = Node(REP, (part,), least, most)
        known = self._numbers.get(node)
        if known is not None:
            return known
        return self._make(
            node,
            Facts(
                least == 0,
                facts.is_plain,
                least * facts.num_bytes,
                least * facts.fewest,
                None if most is None or facts.most is None else most * facts.most,
            ),
        )

    def both(self, parts: Iterable[int]) -> int:
        flat: set[int] = set()
        for part in parts:
            node = self.nodes[part]
            if node.kind == AND:
                flat.update(node.parts)
            else:
                flat.add(part)
        self.spend(len(flat))
        flat.discard(_ANY_TEXT)
        if len(flat) <= 1:
            return flat.pop() if flat else _ANY_TEXT
        facts = [self.facts[each] for each in flat]
        fewest = max(each.fewest for each in facts)
        most = min((each.most for each in facts if each.most is not None), default=None)
        can_be_empty = all(each.can_be_empty for each in facts)
        if NOTHING in flat or (most is not None and fewest > most):
            return NOTHING
        if most == 0:
            return EMPTY if can_be_empty else NOTHING
        nodes = [self.nodes[each] for each in flat]
        if any(each.kind == NOT and each.parts[0] in flat for each in nodes):
            return NOTHING
        node = Node(AND, tuple(sorted(flat)))
        known = self._numbers.get(node)
        if known is not None:
            return known
        num_bytes = max(each.num_bytes for each in facts)
        return self._make(node, Facts(can_be_empty, False, num_bytes, fewest, most))

    def negate(self, part: int) -> int:
        node = self.nodes[part]
        if node.kind == NOT:
            return node.parts[0]
        if part == NOTHING:
            return _ANY_TEXT
        if part == EMPTY:
            return self.rep(_ANY, 1, None)
        if part == _ANY:
            return self.alt([EMPTY, self.rep(_ANY, 2, None)])
        if node.kind == REP and node.parts[0] == _ANY:
            fewer = NOTHING if node.least == 0 else self.rep(_ANY, 0, node.least - 1)
            more = NOTHING if node.most is None else self.rep(_ANY, node.most + 1, None)
            return self.alt([fewer, more])
        whole = Node(NOT, (part,))
        known = self._numbers.get(whole)
        if known is not None:
            return known
        can_be_empty = not self.facts[part].can_be_empty
        fewest = 0 if can_be_empty else 1
        return self._make(whole, Facts(can_be_empty, False, fewest, fewest, None))


def num_bytes_of(code: int) -> int:
    """Return how many bytes of UTF-8 a character has."""
    return next((num_bytes for last, num_bytes in LENGTHS if code <= last), 4)


def _sum(one: int | None, other: int | None) -> int | None:
    """Return the sum of two bounds; None is without bound."""
    return None if one is None or other is None else one + other


def _joined(bounds: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return intervals of counts with those joined that overlap or follow on one another."""
    joined: list[tuple[int, int]] = []
    for least, most in sorted(bounds):
        if joined and least <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], most)
        else:
            joined.append((least, most))
    return joined
