"""The report of a load, as a table or JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferno.bench.load import Load, LoadResult
from inferno.bench.load_figures import LoadFigures, Spread

_MOST_ERRORS = 5
_BUSY_CLIENT = 0.5  # of a core: from here on it may be the client that is slow


def as_json(load: Load, result: LoadResult, found: LoadFigures, base_url: str) -> dict[str, Any]:
    """Return load and figures in values that JSON has; times in seconds."""
    begun = min(each.begun for each in result.requests)
    return {
        "bench": "serve",
        "base_url": base_url,
        **{
            name: getattr(load, name)
            for name in (
                *("endpoint", "model", "num_requests", "request_rate", "concurrency"),
                *("prompt_tokens", "max_tokens", "spread", "vocab_size", "temperature"),
                *("ignore_eos", "seed", "first_token_bound", "between_tokens_bound"),
            )
        },
        "measured": asdict(found),
        "requests": [
            {
                "begun": each.begun - begun,
                "first_token": each.first_token if each.arrivals else None,
                "total": each.total,
                "prompt_tokens": each.prompt_tokens,
                "completion_tokens": each.num_tokens,
                "problem": each.problem,
            }
            for each in result.requests
        ],
    }


def as_table(
    load: Load, found: LoadFigures, base_url: str, *, width: int, is_terminal: bool
) -> str:
    """Format a load and its figures as a table, without colours where it is piped."""
    output = io.StringIO()
    console = Console(
        file=output, width=max(width, 72), force_terminal=is_terminal, highlight=False
    )
    facts = Table.grid(padding=(0, 2))
    for heading, fact in (*_asked(load, base_url), *_seen(load, found)):
        facts.add_row(heading, Text(fact))  # a message of a server may look like markup
    times = Table(box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=is_terminal)
    times.add_column("")
    for heading in ("mean", "p50", "p90", "p99"):
        times.add_column(heading, justify="right")
    for name, spread in _times(found):
        times.add_row(name, *map(_milliseconds, asdict(spread).values()))
    console.print(facts)
    if times.row_count:
        console.print()
        console.print(times)
    lines = output.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _asked(load: Load, base_url: str) -> Iterator[tuple[str, str]]:
    yield "server", f"{base_url}, {load.endpoint.value}"
    yield "model", load.model
    varied = f", each varied by up to {load.spread:.0%}" if load.spread else ""
    kind = "words" if load.vocab_size is None else "token ids"
    yield "asked", f"{load.prompt_tokens} {kind} in, up to {load.max_tokens} tokens out{varied}"
    if load.request_rate is None:
        how = f"{load.concurrency} at a time"
    else:
        how = f"{load.request_rate:g} a second, at random moments"
    yield "requests", f"{load.num_requests}, {how}; seed {load.seed}"


def _seen(load: Load, found: LoadFigures) -> Iterator[tuple[str, str]]:
    yield (
        "done",
        f"{found.num_completed} in {found.seconds:.2f} s, {found.requests_per_second:.2f} "
        f"requests/s; {found.num_failed} failed",
    )
    for problem, count in list(found.errors.items())[:_MOST_ERRORS]:
        yield "", f"{count} x {problem}"
    yield "prompts", f"{found.prompt_tokens_per_second:,.1f} tokens/s"
    yield "outputs", f"{found.output_tokens_per_second:,.1f} tokens/s"
    if found.good_requests is not None:
        yield (
            "goodput",
            f"{found.good_requests_per_second:.2f} requests/s: {found.good_requests} of "
            f"{load.num_requests} {_bounds(load)}",
        )
    if found.client_cpu_per_token is not None:
        busy = ": too busy to measure well" if found.client_cpu_share > _BUSY_CLIENT else ""
        yield (
            "client",
            f"{found.client_cpu_per_token * 1e6:.0f} us of CPU a token, "
            f"{found.client_cpu_share:.0%} of a core{busy}",
        )


def _bounds(load: Load) -> str:
    bounds = (
        ("first token", load.first_token_bound),
        ("each next token", load.between_tokens_bound),
    )
    told = [f"{name} within {_milliseconds(bound)}" for name, bound in bounds if bound is not None]
    return " and ".join(told)


def _times(found: LoadFigures) -> Iterator[tuple[str, Spread]]:
    for name, spread in (
        ("first token", found.first_token),
        ("between tokens", found.between_tokens),
        ("whole request", found.total),
    ):
        if spread is not None:
            yield name, spread


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"
