"""A report for people, as a table and a verdict, or for programs, as JSON."""

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
_INDENT = "    "
_INTRODUCTION = (
    "Both compute the same text. A checkpoint passes if none of its values is further off than "
    "allowed, which is what rounding explains. Data flows downwards: the first FAIL counts."
)


def as_json(report: Report) -> dict[str, Any]:
    """Return the whole report as JSON values; a number that is not finite is null."""
    failed, diagnosis = report.first_failure, report.diagnosis
    return {
        "model": report.model,
        "engine": report.subject,
        "oracle": report.oracle,
        "prompt": report.text,
        "passed": report.passed,
        "first_failure": failed.number if failed else None,
        "first_failing_layer": failed.layer if failed else None,
        "where": diagnosis.where,
        "hint": diagnosis.cause,
        "advice": diagnosis.advice or None,
        "verdict": report.verdict,
        "notes": list(report.notes),
        "checkpoints": [_row_as_json(row) for row in report.rows],
    }


def _row_as_json(row: Row) -> dict[str, Any]:
    told = {
        "measures": [_measure_as_json(measure) for measure in row.measures],
        "products": [_measure_as_json(product) for product in row.products],
    }
    return {**asdict(row), **told, "passed": row.passed}


def _measure_as_json(measure: Measure) -> dict[str, Any]:
    numbers = {key: _finite(value) for key, value in asdict(measure).items()}
    return {**numbers, "passed": measure.passed}


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_table(report: Report, *, width: int, is_terminal: bool) -> str:
    """Format the report as text: what is compared, a table of checkpoints, and the verdict last."""
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
    yield from _wrapped(_INTRODUCTION, width, style="dim")
    yield Text()
    yield Text(_columns("", "checkpoint", _NUMBERS, ""), style="bold")
    yield from _table(report, width)
    yield Text()
    for note in (*_hidden_rows(report), *report.notes):
        yield from _wrapped(f"Note: {note}.", width)
    yield from _verdict(report, width)


def _table(report: Report, width: int) -> Iterator[Text]:
    """Format rows by section; what fails after the first failure usually fails by it."""
    section = ""
    for row in _shown(report):
        if _section(row) != section:
            section = _section(row)
            yield Text(section, style="bold")
        is_first = row is report.first_failure
        yield _line(row, is_first=is_first)
        for sentence in _sentences(row):
            yield from _wrapped(sentence, width, indent=_INDENT, style="dim" if row.passed else "")
        if is_first:
            follows = "what follows is computed from this, and usually fails with it"
            yield from _wrapped(follows, width, indent=_INDENT, style="dim")


def _section(row: Row) -> str:
    if row.number == "0":
        return "before anything is computed"
    if row.number == "7":
        return "what layers hand on"
    if row.number == "P":
        return "what quantizing costs"
    if row.number in ("Q", "I", "S"):
        return "asked for"
    return "what comes out" if row.layer is None else f"inside layer {row.layer}"


def _line(row: Row, *, is_first: bool) -> Text:
    outcome = "pass" if row.passed else "FAIL" if is_first else "fail"
    line = Text(_columns(row.number, row.title, _cells(row.shown), outcome))
    line.highlight_words(["pass"], "green")
    line.highlight_words(["FAIL"], "bold red")
    line.highlight_words(["fail"], "red")
    return line


def _columns(number: str, title: str, numbers: Sequence[str], outcome: str) -> str:
    cells = "".join(f"{cell:>11}" for cell in numbers)
    return f"{number:>2}  {title:16}{cells} {outcome}".rstrip()


def _wrapped(text: str, width: int, *, indent: str = "", style: str = "") -> Iterator[Text]:
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent):
        yield Text(line, style=style)


def _sentences(row: Row) -> Iterator[str]:
    """Yield a checkpoint's sentences: what was compared, what was found besides, what is wrong."""
    shown = f" (shown: {row.shown.name})" if row.shown and len(row.measures) > 1 else ""
    yield f"{row.compared}{shown}"
    yield from row.findings
    yield from (f"! {problem}" for problem in row.problems)
    if row.shown and not row.shown.passed and (row.shown.problem or not row.shown.is_far):
        yield f"! {row.shown.words}"


def _cells(shown: Measure | None) -> list[str]:
    if shown is None:
        return [""] * len(_NUMBERS)
    if shown.problem and not math.isfinite(shown.max_error):
        return [*["-"] * 4, f"{shown.tolerance:.1e}" if shown.tolerance else "-"]
    errors = (shown.max_error, shown.mean_error, shown.relative_error)
    return [
        *(f"{error:.1e}" if error else "0" for error in errors),
        f"{shown.cosine:.6f}" if math.isfinite(shown.cosine) else "-",
        f"{shown.tolerance:.1e}",
    ]


def _verdict(report: Report, width: int) -> Iterator[Text]:
    style = "bold green" if report.passed else "bold red"
    yield from _wrapped(report.verdict, width, style=style)
    if report.passed:
        return
    if report.diagnosis.where:
        yield from _wrapped(f"Where: {report.diagnosis.where}.", width)
    yield from _wrapped(f"What to do: {report.diagnosis.advice}.", width)


def _shown(report: Report) -> Iterator[Row]:
    """Yield the rows to show: inside layers only the first layer's, and the first failure."""
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
        yield f"checkpoints 1 to 6 passed inside layers {layers} too; --json has their numbers"
