"""What a measurement is given, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is served, and how it is asked."""

    model: str
    load_format: str
    quantize: str
    threads: int | None
    num_blocks: int
    num_streams: int
    num_prompt_tokens: int
    num_tokens: int
    num_rounds: int
    num_requests: int

    @property
    def options(self) -> list[str]:
        """Of `inferno serve`."""
        options = [self.model, "--load-format", self.load_format, "--quantize", self.quantize]
        options += ["--num-blocks", str(self.num_blocks)]
        return options if self.threads is None else [*options, "--threads", str(self.threads)]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    bar     what the value must not exceed, or must reach where `is_least`.
    """

    what: str
    value: float
    unit: str
    bar: float | None = None
    is_least: bool = False

    def line(self, measure: str) -> str:
        """For people."""
        shown = f"{measure:10} {self.what:58} {self.value:10.2f} {self.unit:12}"
        if self.bar is None:
            return shown.rstrip()
        is_met = self.value >= self.bar if self.is_least else self.value <= self.bar
        relation = "at least" if self.is_least else "at most"
        return f"{shown} {relation} {self.bar:g}: {'met' if is_met else 'MISSED'}"


def run(work: Coroutine[Any, Any, T]) -> T:
    """In an event loop as the server's."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
