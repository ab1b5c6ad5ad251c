"""What cpu_peers.py found, as a table in Markdown and as values that JSON has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

ENGINES = ("inferno", "llama.cpp")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement of both engines: seconds of each round, or bytes.

    num_tokens  what a round computed, where tokens a second are wanted.
    least       seconds that the limits allowed in each round; none where there is no bound.
    """

    model: str
    weights: str
    case: str
    samples: dict[str, list[float]]
    num_tokens: int | None = None
    least: Sequence[float] = ()
    is_bytes: bool = False

    @property
    def ratio(self) -> float:
        """How many times better inferno is."""
        ours, theirs = (self.samples[engine] for engine in ENGINES)
        return median_ratio(theirs, ours)

    def share(self, engine: str) -> float | None:
        """How near an engine comes to the limits: 1 is at them."""
        return median_ratio(self.least, self.samples[engine]) if self.least else None


def median_ratio(some: Sequence[float], others: Sequence[float]) -> float:
    """Of rounds that both had, so that both saw the same machine; else of their medians."""
    if len(some) == len(others):
        return median(a / b for a, b in zip(some, others, strict=True))
    return median(some) / median(others)


def as_markdown(rows: Sequence[Row]) -> str:
    """Medians, with the smallest and largest rounds in brackets."""
    headings = ["model", "weights", "case", *ENGINES, "inferno is better by"]
    headings += [f"{engine}, of the limit" for engine in ENGINES]
    lines = [_line(headings), "|" + "---|" * len(headings)]
    lines += [_line(_cells(row)) for row in rows]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            "model": row.model,
            "weights": row.weights,
            "case": row.case,
            "unit": "bytes" if row.is_bytes else "seconds",
            "num_tokens": row.num_tokens,
            "least_seconds": list(row.least),
            "medians": {engine: median(row.samples[engine]) for engine in ENGINES},
            "ratio": row.ratio,
            "samples": row.samples,
        }
        for row in rows
    ]


def _cells(row: Row) -> list[str]:
    found = [row.share(engine) for engine in ENGINES]
    shares = ["" if share is None else f"{share:.0%}" for share in found]
    shown = [_shown(row, row.samples[engine]) for engine in ENGINES]
    return [row.model, row.weights, row.case, *shown, f"{row.ratio:.2f}", *shares]


def _shown(row: Row, samples: Sequence[float]) -> str:
    if row.is_bytes:
        return f"{median(samples) / 1e9:.2f} GB"
    if row.num_tokens is None:
        return f"{median(samples):.2f} s ({min(samples):.2f} to {max(samples):.2f})"
    rates = [row.num_tokens / seconds for seconds in samples]
    return f"{median(rates):.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
