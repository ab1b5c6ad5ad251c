"""What the relations share: ways to ask, and tables read as pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

TELL = "[tell me|please tell me|can you tell me|could you tell me|do you know|I want to know|say]"
NAME = f"[what is|what's|{TELL}|give me]"


def listed(table: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The pairs x, y of a table that lists the xs of each y."""
    for y, xs in table.items():
        for x in xs.split(";"):
            yield x, y


def paired(pairs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs x, y of texts like "New_Delhi-India"."""
    for pair in pairs:
        x, y = pair.replace("_", " ").split("-", 1)
        yield x, y


def both_ways(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each pair and its mirror image; a word that has two partners keeps the first."""
    seen: set[str] = set()
    for pair in pairs:
        for x, y in (pair, pair[::-1]):
            if x not in seen:
                yield x, y
            seen.add(x)
