"""Regular expressions as trees over code points, and the ways to build them.

Nodes are plain values: equal trees are equal. They say what texts match, whole, and nothing of how
they were written; syntax.py reads them, printing.py writes them for llguidance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

MAX_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set: ranges of code points, ascending, apart from each other, no surrogates.

    Without ranges it matches nothing at all.
    """

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """All parts, one after the other; without parts, the empty text."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of the options."""

    options: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part, at least and at most so many times; `most` None is without bound."""

    part: Regex
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class And:
    """What all parts match."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Every text of whole characters that the part doesn't match."""

    part: Regex


Regex: TypeAlias = Chars | Seq | Alt | Repeat | And | Not

NOTHING = Chars(())
EMPTY = Seq(())
