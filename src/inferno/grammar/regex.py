"""Define regular expressions as trees over code points, and build them.

Nodes are plain values: equal trees are equal. They say what texts match, whole, and nothing of how
they were written; syntax.py reads them, printing.py writes them for llguidance. The functions build
trees that are simple where that is cheap, so that equal languages often are equal trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeAlias

MAX_CODE_POINT = 0x10FFFF
MAX_DEPTH = 100  # of trees: what walks them calls itself
MAX_NODES = 50_000  # of the tree of a pattern


class _Hashed:
    """A node whose hash is found once: trees are keys, and deep ones would be walked each time."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            values = tuple(getattr(self, name) for name in type(self).__match_args__)  # type: ignore[attr-defined]  # of dataclasses
            object.__setattr__(self, "_hash", hash((type(self), *values)))
            return self._hash


@dataclass(frozen=True, slots=True)
class Chars(_Hashed):
    """One character of a set: ranges of code points, ascending, apart, without surrogates.

    Without ranges it matches nothing at all.
    """

    ranges: tuple[tuple[int, int], ...]

    __hash__ = _Hashed.__hash__

    def has_all(self, text: str) -> bool:
        """Return whether each character of a text is in the set."""
        return all(any(a <= ord(each) <= z for a, z in self.ranges) for each in text)


@dataclass(frozen=True, slots=True)
class Seq(_Hashed):
    """All parts, one after the other; without parts, the empty text."""

    parts: tuple[Regex, ...]

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Alt(_Hashed):
    """One of the options."""

    options: tuple[Regex, ...]

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Repeat(_Hashed):
    """The part, at least and at most so many times; `most` None is without bound."""

    part: Regex
    least: int
    most: int | None

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class And(_Hashed):
    """Every text that all parts match."""

    parts: tuple[Regex, ...]

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Not(_Hashed):
    """Every text of whole characters that the part doesn't match."""

    part: Regex

    __hash__ = _Hashed.__hash__


Regex: TypeAlias = Chars | Seq | Alt | Repeat | And | Not


class UnsupportedRegex(ValueError):
    """Raised when a pattern is damaged, too large, or has what can't be honoured."""


class TooComplex(ValueError):
    """Raised when an expression has too many states, or asks for too much work."""


NOTHING = Chars(())
EMPTY = Seq(())
ANY = Chars(((0, 0xD7FF), (0xE000, MAX_CODE_POINT)))
ANY_TEXT = Repeat(ANY, 0, None)


def parts_of(regex: Regex) -> tuple[Regex, ...]:
    """Return the trees that a node holds."""
    match regex:
        case Seq(parts) | Alt(parts) | And(parts):
            return parts
        case Repeat(part) | Not(part):
            return (part,)
        case Chars():
            return ()


def depth_of(regex: Regex) -> int:
    """Return how many levels a tree has, or a number above MAX_DEPTH if it has more than that."""
    level: list[Regex] = [regex]
    depth = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        below: dict[int, Regex] = {}  # by identity: a part that is shared is looked at once
        for each in level:
            below.update((id(part), part) for part in parts_of(each))
        level = list(below.values())
    return depth


def size_of(regex: Regex) -> int:
    """Return how many nodes a tree has; one that is shared counts as often as it occurs."""
    known: dict[int, int] = {}

    def size(node: Regex) -> int:
        if id(node) not in known:
            known[id(node)] = 1 + sum(map(size, parts_of(node)))
        return known[id(node)]

    return size(regex)


def can_be_empty(regex: Regex) -> bool:
    """Return whether the empty text matches."""
    match regex:
        case Chars():
            return False
        case Seq(parts) | And(parts):
            return all(map(can_be_empty, parts))
        case Alt(options):
            return any(map(can_be_empty, options))
        case Repeat(part, least):
            return least == 0 or can_be_empty(part)
        case Not(part):
            return not can_be_empty(part)


def alphabet_of(regex: Regex) -> Chars:
    """Return the characters that texts may have which match; perhaps a few more."""
    match regex:
        case Chars():
            return regex
        case Seq(parts) | Alt(parts):
            return chars(*(each for part in parts for each in alphabet_of(part).ranges))
        case Repeat(part):
            return alphabet_of(part)
        case And(parts):
            return reduce(_common, map(alphabet_of, parts), ANY)
        case Not():
            return ANY


def first_of(regex: Regex) -> Chars:
    """Return the characters that texts may begin with which match; perhaps a few more."""
    match regex:
        case Chars():
            return regex
        case Seq(parts):
            ranges: list[tuple[int, int]] = []
            for part in parts:
                ranges += first_of(part).ranges
                if not can_be_empty(part):
                    break
            return chars(*ranges)
        case Alt(options):
            return chars(*(each for option in options for each in first_of(option).ranges))
        case Repeat(part):
            return first_of(part)
        case And(parts):
            return reduce(_common, map(first_of, parts), ANY)
        case Not():
            return ANY


def chars(*ranges: tuple[int, int]) -> Chars:
    """Return one character of any of the ranges, which may overlap and stand in any order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if not 0 <= first <= last <= MAX_CODE_POINT:
            raise ValueError(f"no range of code points: {first:#x} to {last:#x}")
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return _common(Chars(tuple(merged)), ANY)


def char_set(text: str) -> Chars:
    """Return one of the characters of the text."""
    return chars(*((ord(each), ord(each)) for each in text))


def complement_of(some: Chars) -> Chars:
    """Return one of the characters that the set doesn't have."""
    gaps = []
    start = 0
    for first, last in some.ranges:
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return chars(*gaps)


def literal(text: str) -> Regex:
    """Return the text itself, which must not have surrogates."""
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("a surrogate is no character, so no text has it")
    return seq(*map(_character, text))


@lru_cache(maxsize=512)
def _character(char: str) -> Chars:
    return char_set(char)


def seq(*parts: Regex) -> Regex:
    """Return the parts one after the other."""
    flat: list[Regex] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat.extend(part.parts if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*options: Regex) -> Regex:
    """Return one of the options; an empty one among them makes the rest a `Repeat` of 0 or 1."""
    flat: dict[Regex, None] = {}
    ranges: list[tuple[int, int]] = []
    can_be_empty = False
    for option in _without_optional(options):
        if option == EMPTY:
            can_be_empty = True
        elif isinstance(option, Chars):
            if option.ranges:
                flat[ANY] = None  # where the characters of all options will stand
            ranges.extend(option.ranges)
        else:
            flat[option] = None
    if ANY_TEXT in flat:
        return ANY_TEXT
    united = chars(*ranges)
    rest = tuple(united if option == ANY else option for option in flat)
    if not rest:
        return EMPTY if can_be_empty else NOTHING
    whole = rest[0] if len(rest) == 1 else Alt(rest)
    return repeat(whole, 0, 1) if can_be_empty else whole


def repeat(part: Regex, least: int, most: int | None) -> Regex:
    """Return the part, at least and at most so many times; `most` None is without bound."""
    if least < 0 or (most is not None and most < least):
        raise ValueError(f"no number of times: {least} to {most}")
    if most == 0 or part == EMPTY:
        return EMPTY
    if part == NOTHING:
        return EMPTY if least == 0 else NOTHING
    if least == most == 1:
        return part
    if not isinstance(part, Repeat):
        return Repeat(part, least, most)
    counts = nested_counts(part.least, part.most, least, most)
    return Repeat(part, least, most) if counts is None else repeat(part.part, *counts)


def nested_counts(
    least: int, most: int | None, outer_least: int, outer_most: int | None
) -> tuple[int, int | None] | None:
    """Return how often x may come in x{a,b}{m,n}; None if some counts between are left out.

    Between k and k + 1 times x{a,b} none is left out if (k + 1)a <= kb + 1, which holds for all
    k from m on if it does for m.
    """
    if outer_least != outer_most:
        if most is None:
            has_gaps = outer_least == 0 and least > 1
        else:
            has_gaps = (outer_least + 1) * least > outer_least * most + 1
        if has_gaps:
            return None
    whole_most = None if most is None or outer_most is None else most * outer_most
    return least * outer_least, whole_most


def both(*parts: Regex) -> Regex:
    """Return what all parts match; without parts, any text."""
    flat: dict[Regex, None] = {}
    run: tuple[Chars, int, int | None] = ANY, 0, None
    for part in parts:
        for each in part.parts if isinstance(part, And) else (part,):
            other = _as_run(each)
            if other is None:
                flat[each] = None
            else:
                run = _run_of_both(run, other)
    some, least, most = run
    if most is not None and most < least:
        return NOTHING
    whole_run = repeat(some, least, most)
    if whole_run == NOTHING or not flat:
        return whole_run
    rest = tuple(flat) if whole_run == ANY_TEXT else (whole_run, *flat)
    return rest[0] if len(rest) == 1 else And(rest)


def without(part: Regex) -> Regex:
    """Return every text of whole characters that the part doesn't match."""
    if isinstance(part, Not):
        return part.part
    if part == NOTHING:
        return ANY_TEXT
    return NOTHING if part == ANY_TEXT else Not(part)


def _without_optional(options: tuple[Regex, ...]) -> Iterator[Regex]:
    """Yield the options and, for those that are options themselves, theirs."""
    for option in options:
        if isinstance(option, Alt):
            yield from option.options
        elif isinstance(option, Repeat) and (option.least, option.most) == (0, 1):
            yield EMPTY
            yield from option.part.options if isinstance(option.part, Alt) else (option.part,)
        else:
            yield option


def _common(some: Chars, others: Chars) -> Chars:
    """Return one of the characters that both sets have."""
    found = []
    i = j = 0
    while i < len(some.ranges) and j < len(others.ranges):
        first = max(some.ranges[i][0], others.ranges[j][0])
        last = min(some.ranges[i][1], others.ranges[j][1])
        if first <= last:
            found.append((first, last))
        if some.ranges[i][1] < others.ranges[j][1]:
            i += 1
        else:
            j += 1
    return Chars(tuple(found))


def _as_run(part: Regex) -> tuple[Chars, int, int | None] | None:
    """Return a repeated character's set and counts; None if the part is something else."""
    if isinstance(part, Chars):
        return part, 1, 1
    if isinstance(part, Repeat) and isinstance(part.part, Chars):
        return part.part, part.least, part.most
    return (NOTHING, 0, 0) if part == EMPTY else None


def _run_of_both(
    one: tuple[Chars, int, int | None], other: tuple[Chars, int, int | None]
) -> tuple[Chars, int, int | None]:
    bounds = [most for most in (one[2], other[2]) if most is not None]
    return _common(one[0], other[0]), max(one[1], other[1]), min(bounds, default=None)
