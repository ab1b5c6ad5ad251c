"""A report for people, as a table and one sentence, or for programs, as JSON."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from inferno.verify.outcome import Measure, Report, Row

_NUMBERS = ("max error", "mean error", "relative", "cosine", "allowed")
_MIN_WIDTH, _MAX_WIDTH = 80, 100
_INDENT = "   "


def as_json(report: Report) -> dict[str, Any]:
    """Everything; a number that is not finite is null."""
    failed = report.first_failure
    return {
        "model": report.model,
        "engine": report.subject,
        "oracle": report.oracle,
        "prompt": report.text,
        "passed": report.passed,
        "first_failure": failed.number if failed else None,
        "first_failing_layer": failed.layer if failed else None,
        "hint": report.hint,
        "verdict": report.verdict,
        "notes": list(report.notes),
        "checkpoints": [_row_as_json(row) for row in report.rows],
    }


def _row_as_json(row: Row) -> dict[str, Any]:
    measures = [
        {**{key: _finite(value) for key, value in asdict(m).items()}, "passed": m.passed}
        for m in row.measures
    ]
    return {**asdict(row), "measures": measures, "passed": row.passed}


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_table(report: Report, *, width: int, is_terminal: bool) -> str:
    """A table whose rows say below their numbers what was compared, then notes and the verdict."""
    output = io.StringIO()
    console = Console(
        file=output, width=max(width, _MIN_WIDTH), force_terminal=is_terminal, highlight=False
    )
    for line in _lines(report, min(console.width, _MAX_WIDTH)):
        console.print(line, soft_wrap=True)
    return output.getvalue()


def _lines(report: Report, width: int) -> Iterator[Text]:
    yield from _wrapped(f"{report.model}: {report.subject}", width)
    yield from _wrapped(f"compared with {report.oracle}", width)
    yield Text()
    yield Text(_columns("#", "checkpoint", _NUMBERS, ""), style="bold")
    for row in _shown(report):
        outcome = "pass" if row.passed else "FAIL"
        line = Text(_columns(row.number, row.title, _cells(row.worst), outcome))
        line.highlight_words(["pass"], "green")
        line.highlight_words(["FAIL"], "bold red")
        yield line
        for sentence in _sentences(row):
            yield from _wrapped(sentence, width, indent=_INDENT, style="dim" if row.passed else "")
    yield Text()
    for note in (*_hidden_rows(report), *report.notes):
        yield from _wrapped(f"Note: {note}.", width)
    yield from _wrapped(report.verdict, width, style="bold green" if report.passed else "bold red")


def _columns(number: str, title: str, numbers: Sequence[str], outcome: str) -> str:
    cells = "".join(f"{cell:>11}" for cell in numbers)
    return f"{number:3}{title:16}{cells}  {outcome}".rstrip()


def _wrapped(text: str, width: int, *, indent: str = "", style: str = "") -> Iterator[Text]:
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent):
        yield Text(line, style=style)


def _sentences(row: Row) -> Iterator[str]:
    """What was compared; whose numbers are shown; what was found besides."""
    worst = f" (shown: {row.worst.name})" if row.worst and len(row.measures) > 1 else ""
    yield f"{row.compared}{worst}"
    yield from row.findings
    yield from (f"! {problem}" for problem in row.problems)


def _cells(worst: Measure | None) -> list[str]:
    if worst is None:
        return [""] * len(_NUMBERS)
    errors = (worst.max_error, worst.mean_error, worst.relative_error)
    return [
        *(f"{error:.1e}" if error else "0" for error in errors),
        f"{worst.cosine:.6f}" if math.isfinite(worst.cosine) else "-",
        f"{worst.tolerance:.1e}",
    ]


def _shown(report: Report) -> Iterator[Row]:
    """Of other layers than the first only what leaves them, and what fails first."""
    first = next((row.layer for row in report.rows if row.layer is not None), None)
    for row in report.rows:
        is_inside = row.layer not in (None, first) and row.number != "7"
        if not is_inside or row is report.first_failure:
            yield row


def _hidden_rows(report: Report) -> Iterator[str]:
    shown = list(_shown(report))
    hidden = [row for row in report.rows if row not in shown]
    if hidden and all(row.passed for row in hidden):
        layers = ", ".join(str(layer) for layer in dict.fromkeys(row.layer for row in hidden))
        yield f"checkpoints 1 to 6 passed inside layers {layers}; --json has their numbers"
