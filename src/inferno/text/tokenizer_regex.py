"""Refuse a regular expression that may match a text in far too many ways.

The library's engine, Oniguruma, backtracks: where the rest of a pattern fails, it tries every other
way in which what came before may match. The ways of a part are counted here from the pattern alone,
not from what characters there are, so a harmless pattern may be refused too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

# The ways of a repetition without end. One of them may be retried, so that the time for a run of
# characters grows with its square; two may not.
_MANY = 10_000
MAX_WAYS = 1000 * _MANY
_FAR_TOO_MANY = MAX_WAYS**2

_ESCAPE = re.compile(
    r"\\([pP]\{[^}]{0,100}\}|x\{[0-9a-fA-F]*\}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|[^kg1-9])",
    re.DOTALL,
)
_PLACES = frozenset("bBAzZG")
_GROUP = re.compile(r"\(\?(:|>|=|!|<=|<!|<[^\W\d]\w*>|[im-]+[:)])")
_LOOKS = ("=", "!", "<=", "<!")
_REPETITION = re.compile(
    r"(?P<sign>[*+?])(?P<how>[?+]?)"
    r"|\{(?P<least>\d{0,6})(?P<comma>,?)(?P<most>\d{0,6})\}(?P<lazy>\??)"
)
_SIGNS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a regular expression.

    least     characters that the part takes at least.
    ways      in which the part may match at one place.
    cost      how many ways are tried, at most, until the part has matched or failed.
    may_fail  whether there is a text that the part doesn't match.
    """

    least: int = 0
    ways: int = 1
    cost: int = 1
    may_fail: bool = True


_PLACE, _CHARACTER, _SWITCH = Part(), Part(least=1), Part(may_fail=False)


def read_pattern(pattern: str) -> Part:
    """Parse a whole pattern; raise ValueError where it could cost too much, or can't be read."""
    whole = _Reader(pattern).whole()
    if whole.cost > MAX_WAYS:
        raise ValueError(f"its pattern {pattern!r:.80} could try a text in too many ways")
    return whole


class _Reader:
    """A reader of a pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> Part:
        part = self._alternatives()
        if self._at < len(self._pattern):
            raise self._refused("has a bracket that nothing opens")
        return part

    def _alternatives(self) -> Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return _one_of(parts)

    def _sequence(self) -> Part:
        parts = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._single()))
        return _in_turn(parts)

    def _single(self) -> Part:
        """Read a group, a class, an escape, or a character."""
        match self._pattern[self._at]:
            case "(":
                return self._group()
            case "[":
                self._at = self._end_of_class(self._at)
                return _CHARACTER
            case "\\":
                return self._escape()
        self._at += 1
        return _PLACE if self._pattern[self._at - 1] in "^$" else _CHARACTER

    def _group(self) -> Part:
        kind = ""
        if self._pattern.startswith("(?", self._at) or self._pattern.startswith("(*", self._at):
            kind = self._match(_GROUP, "has a group of a kind that inferno doesn't allow")[1]
        else:
            self._at += 1
        if kind.endswith(")"):
            return _SWITCH
        part = self._alternatives()
        if not self._take(")"):
            raise self._refused("has a bracket that nothing closes")
        if kind in _LOOKS:
            return Part(cost=part.cost)
        return replace(part, ways=1) if kind == ">" else part

    def _escape(self) -> Part:
        escaped = self._match(_ESCAPE, "has a reference to a group, which inferno doesn't allow")[1]
        if escaped == "K":
            return _SWITCH
        return _PLACE if escaped in _PLACES else _CHARACTER

    def _end_of_class(self, start: int) -> int:
        """Return the place behind the bracket that closes a class; classes may lie in it."""
        at = start + 1 + self._pattern.startswith("^", start + 1)
        at += self._pattern.startswith("]", at)  # as the first it is a character
        while at < len(self._pattern):
            match self._pattern[at]:
                case "]":
                    return at + 1
                case "[":
                    at = self._end_of_class(at)
                case "\\":
                    at += 2
                case _:
                    at += 1
        raise self._refused("has a bracket that nothing closes")

    def _repeated(self, part: Part) -> Part:
        while found := _REPETITION.match(self._pattern, self._at):
            if found["sign"]:
                part = self._times(part, *_SIGNS[found["sign"]])
                part = replace(part, ways=1) if found["how"] == "+" else part
            elif not found["least"] and not found["most"]:
                break  # a brace as a character
            else:
                part = self._counted(part, found)
            self._at = found.end()
        return part

    def _counted(self, part: Part, found: re.Match[str]) -> Part:
        least = int(found["least"] or 0)
        if found["comma"]:
            return self._times(part, least, int(found["most"]) if found["most"] else None)
        part = self._times(part, least, least)
        return self._times(part, 0, 1) if found["lazy"] else part  # Oniguruma means it so

    def _times(self, part: Part, least: int, most: int | None) -> Part:
        if most == 1:
            may_fail = least == 1 and part.may_fail
            return Part(least * part.least, part.ways + (least == 0), part.cost, may_fail)
        if part.ways > 1:
            raise self._refused("repeats what may match in more than one way")
        times = _MANY if most is None else max(0, min(_MANY, most - least + 1))
        cost = part.cost * (most or _MANY) if part.cost > 1 else 1
        may_fail = least > 0 and part.may_fail
        return Part(least * part.least, times, min(cost, _FAR_TOO_MANY), may_fail)

    def _take(self, character: str) -> bool:
        is_there = self._pattern.startswith(character, self._at)
        self._at += is_there
        return is_there

    def _match(self, expected: re.Pattern[str], otherwise: str) -> re.Match[str]:
        found = expected.match(self._pattern, self._at)
        if found is None:
            raise self._refused(otherwise)
        self._at = found.end()
        return found

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"its pattern {self._pattern!r:.80} {why}")


def _one_of(parts: Sequence[Part]) -> Part:
    return Part(
        least=min(part.least for part in parts),
        ways=min(sum(part.ways for part in parts), _FAR_TOO_MANY),
        cost=min(sum(part.cost for part in parts), _FAR_TOO_MANY),
        may_fail=all(part.may_fail for part in parts),
    )


def _in_turn(parts: Sequence[Part]) -> Part:
    """Join parts in a row: up to the last that may fail, all before a part is tried anew."""
    last = max((i for i, part in enumerate(parts) if part.may_fail), default=-1)
    ways = tried = cost = 1
    for i, part in enumerate(parts):
        tried = tried if i <= last else 1
        cost = min(max(cost, tried * part.cost), _FAR_TOO_MANY)
        ways = min(ways * part.ways, _FAR_TOO_MANY)
        tried = ways
    return Part(sum(part.least for part in parts), ways, cost, may_fail=last >= 0)
