"""What a report says to people and to programs."""

from __future__ import annotations

import json
import math

from inferno.verify.outcome import Measure, Report, Row
from inferno.verify.report import as_json, as_table


def measured(name: str, error: float, tolerance: float = 1e-3) -> Measure:
    return Measure(
        tap=f"0.{name}",
        name=name,
        max_error=error,
        mean_error=error / 2,
        relative_error=error,
        cosine=math.nan if math.isinf(error) else 0.5,
        tolerance=tolerance,
    )


def row(number: str, layer: int | None = None, *measures: Measure, problem: str = "") -> Row:
    return Row(
        number=number,
        title=f"title {number}",
        compared=f"what {number} compares",
        layer=layer,
        measures=measures,
        problems=(problem,) * bool(problem),
    )


def report(*rows: Row, hint: str | None = None) -> Report:
    return Report(model="m", subject="s", oracle="the oracle", text="t", rows=rows, hint=hint)


def test_all_rows_right_is_a_pass() -> None:
    found = report(row("0"), row("1", 0, measured("q", 1e-6)))
    assert found.passed
    assert found.verdict == "PASS: all 2 checkpoints agree with the oracle."


def test_the_first_failure_is_named_with_its_hint() -> None:
    found = report(
        row("0"),
        row("2", 3, measured("q", 1e-6), measured("k", 0.5)),
        row("8", None, measured("logits", 7.0)),
        hint="the bias is left out",
    )
    assert found.verdict == (
        "FAIL: the first to differ is checkpoint 2, title 2 of layer 3: k is off by 0.5, where "
        "0.001 is allowed. Likely cause: the bias is left out."
    )


def test_the_worst_measure_is_that_nearest_its_tolerance() -> None:
    found = row("1", 0, measured("large", 0.5, 1.0), measured("bad", 1e-3, 1e-6))
    assert found.worst is not None
    assert found.worst.name == "bad"
    assert row("1", 0, measured("zero", 0.0, 0.0)).passed


def test_a_table_says_what_was_compared_in_words() -> None:
    table = as_table(
        report(row("0", problem="weights differ"), row("1", 0, measured("q", 0.5))),
        width=80,
        is_terminal=False,
    )
    for said in ("what 1 compares", "! weights differ", "FAIL", "5.0e-01", "1.0e-03"):
        assert said in table
    assert "\x1b" not in table
    assert max(map(len, table.splitlines())) <= 80


def test_other_layers_show_only_what_leaves_them_unless_they_fail_first() -> None:
    inside = [row("0"), row("2", 0), row("7", 0), row("2", 1), row("7", 1)]
    table = as_table(report(*inside), width=80, is_terminal=False)
    assert table.count("what 2 compares") == 1
    assert "passed inside layers 1" in table
    inside[3] = row("2", 1, measured("q", 1.0))
    table = as_table(report(*inside), width=80, is_terminal=False)
    assert table.count("what 2 compares") == 2


def test_json_has_every_number_and_null_for_none() -> None:
    found = report(row("0"), row("4", 1, measured("scores", math.inf)), hint="h")
    text = json.dumps(as_json(found), allow_nan=False)
    parsed = json.loads(text)
    assert parsed["passed"] is False
    assert (parsed["first_failure"], parsed["first_failing_layer"]) == ("4", 1)
    [measure] = parsed["checkpoints"][1]["measures"]
    assert measure["max_error"] is None
    assert measure["tolerance"] == 1e-3
    assert measure["passed"] is False
