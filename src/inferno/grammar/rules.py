"""Define grammars as rules over terminals, which are regular expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from inferno.grammar.regex import Regex

START = "start"


@dataclass(frozen=True, slots=True)
class Terminal:
    """A piece of text that a regular expression matches; it is as long as it can be.

    What follows a terminal must not be able to be part of it, so that its end is never in doubt.
    """

    regex: Regex


@dataclass(frozen=True, slots=True)
class Mark:
    """A special token, which is no text: one that a model writes around calls, for instance."""

    token_id: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """A symbol, at least and at most so many times; `most` None is without bound."""

    symbol: Terminal | Mark | Reference
    least: int
    most: int | None


Symbol: TypeAlias = Terminal | Mark | Reference | Repeated
Alternative: TypeAlias = tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules by name, each with its alternatives; the whole text is a `start`.

    A rule without alternatives matches nothing; an empty alternative, the empty text.
    """

    rules: Mapping[str, tuple[Alternative, ...]]
