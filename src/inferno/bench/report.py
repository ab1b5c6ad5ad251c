"""The report of a benchmark: figures, and a table or JSON of them."""

from __future__ import annotations

import io
from dataclasses import asdict
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferno.bench.measurement import Findings, Job, Kind

Figures = dict[str, float]


def figures(job: Job, found: Findings) -> Figures:
    """Compute medians of the runs, in seconds and tokens a second, and shares of the limits."""
    return (_latency if job.kind is Kind.LATENCY else _throughput)(job, found)


def _latency(job: Job, found: Findings) -> Figures:
    first = median(run.first_token for run in found.runs)
    decode = median(run.total - run.first_token for run in found.runs)
    work, limits = found.work, found.limits
    return {
        "cold_start_seconds": found.cold_start,
        "first_token_seconds": first,
        "decode_tokens_per_second": (job.max_tokens - 1) / decode,
        "prefill_share_of_peak": work.prefill_operations / limits.peak / first,
        "decode_share_of_bandwidth": work.decode_bytes / limits.bandwidth / decode,
    }


def _throughput(job: Job, found: Findings) -> Figures:
    total = median(run.total for run in found.runs)
    work, limits = found.work, found.limits
    operations = work.prefill_operations + work.decode_operations
    decode = max(work.decode_bytes / limits.bandwidth, work.decode_operations / limits.peak)
    least = work.prefill_operations / limits.peak + decode
    return {
        "total_seconds": total,
        "requests_per_second": job.num_requests / total,
        "prompt_tokens_per_second": job.num_requests * job.prompt_tokens / total,
        "output_tokens_per_second": job.num_requests * job.max_tokens / total,
        "share_of_peak": operations / limits.peak / total,
        "share_of_bandwidth": work.decode_bytes / limits.bandwidth / total,
        "least_seconds": least,
        "share_of_least": least / total,
    }


def as_json(job: Job, found: Findings, model: str) -> dict[str, Any]:
    """Return all facts in values that JSON has; `model` is the name that was given."""
    return {
        "bench": job.kind.value,
        "model": model,
        "load_format": job.options["load_format"],
        **{name: getattr(job, name) for name in ("num_requests", "prompt_tokens", "max_tokens")},
        "seed": job.seed,
        **asdict(found.subject),
        "limits": {
            "bytes_per_second": found.limits.bandwidth,
            "operations_per_second": found.limits.peak,
            "arithmetic": found.limits.arithmetic,
        },
        "measured": figures(job, found),
        "runs": [asdict(run) for run in found.runs],
    }


def as_table(job: Job, found: Findings, model: str, *, width: int, is_terminal: bool) -> str:
    """Format what was measured, and its conditions, as a table; without colours where piped."""
    output = io.StringIO()
    console = Console(
        file=output, width=max(width, 72), force_terminal=is_terminal, highlight=False
    )
    facts = Table.grid(padding=(0, 2))
    for heading, fact in _facts(job, found, model):
        facts.add_row(heading, Text(fact))  # a folder's name may look like markup
    speeds = Table(box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=is_terminal)
    speeds.add_column("")
    speeds.add_column("measured", justify="right")
    speeds.add_column("of the limit")
    for row in _rows(job, figures(job, found)):
        speeds.add_row(*row)
    if num_proposed := sum(run.num_proposed for run in found.runs):
        num_accepted = sum(run.num_accepted for run in found.runs)
        of_all = num_accepted / (job.num_requests * job.max_tokens * len(found.runs))
        speeds.add_row(
            "speculation",
            f"{num_accepted / num_proposed:.0%} accepted",
            f"{num_accepted} of {num_proposed} proposed; {of_all:.0%} of the tokens",
        )
    console.print(facts)
    console.print()
    console.print(speeds)
    lines = output.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _facts(job: Job, found: Findings, model: str) -> list[tuple[str, str]]:
    subject, limits = found.subject, found.limits
    is_dummy = job.options["load_format"] == "dummy"
    count = "1 request" if job.num_requests == 1 else f"{job.num_requests} requests at once"
    return [
        (
            "model",
            f"{model}, {subject.num_parameters / 1e6:,.1f} million parameters"
            + (", random weights" if is_dummy else ""),
        ),
        (
            "weights",
            f"{subject.weights}, {_size(subject.weights_bytes)}; computed in {subject.dtype}, "
            f"keys and values in {subject.kv_dtype}",
        ),
        ("kernels", f"{subject.kernels}, threads: {subject.num_threads}"),
        ("cpu", subject.cpu or "unknown"),
        *([("gpu", f"{subject.device}, {subject.gpu}")] if subject.gpu is not None else []),
        ("asked", f"{count}, {job.prompt_tokens} tokens in, {job.max_tokens} out"),
        ("runs", f"{job.num_runs} after a warm-up, of which medians are shown; seed {job.seed}"),
        (
            "limits",
            f"{limits.bandwidth / 1e9:.1f} GB/s read, {limits.peak / 1e9:,.0f} GOP/s in "
            f"{limits.arithmetic}, measured",
        ),
    ]


def _rows(job: Job, found: Figures) -> list[tuple[str, str, str]]:
    if job.kind is Kind.LATENCY:
        return [
            ("cold start to first token", _seconds(found["cold_start_seconds"]), ""),
            (
                "first token",
                _seconds(found["first_token_seconds"]),
                f"{found['prefill_share_of_peak']:.0%} of the arithmetic",
            ),
            (
                "decode",
                f"{found['decode_tokens_per_second']:.1f} tokens/s",
                f"{found['decode_share_of_bandwidth']:.0%} of the reading",
            ),
        ]
    return [
        ("requests", f"{found['requests_per_second']:.2f} /s", ""),
        (
            "prompts",
            f"{found['prompt_tokens_per_second']:.1f} tokens/s",
            f"{found['share_of_peak']:.0%} of the arithmetic, with the outputs'",
        ),
        (
            "outputs",
            f"{found['output_tokens_per_second']:.1f} tokens/s",
            f"{found['share_of_bandwidth']:.0%} of the reading",
        ),
        (
            "all requests",
            _seconds(found["total_seconds"]),
            f"{found['share_of_least']:.0%} of both: {_seconds(found['least_seconds'])} at least",
        ),
    ]


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"
