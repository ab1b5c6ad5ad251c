"""What a report says to people and to programs."""

from __future__ import annotations

import json
import math

import pytest

from inferno.verify.outcome import Diagnosis, Measure, Report, Row
from inferno.verify.report import as_json, as_table


def measured(name: str, error: float, tolerance: float = 1e-3, problem: str = "") -> Measure:
    return Measure(
        tap=f"0.{name}",
        name=name,
        max_error=error,
        mean_error=error / 2,
        relative_error=error,
        cosine=math.nan if math.isinf(error) else 0.5,
        tolerance=tolerance,
        problem=problem,
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


def report(*rows: Row, cause: str | None = None, where: str | None = None) -> Report:
    diagnosis = Diagnosis(where=where, cause=cause, advice="look at the code")
    return Report(
        model="m", subject="s", oracle="the oracle", text="t", rows=rows, diagnosis=diagnosis
    )


def table(found: Report) -> str:
    return as_table(found, width=80, is_terminal=False)


def test_all_rows_right_is_a_pass_that_counts_checkpoints_by_number() -> None:
    found = report(row("0"), row("1", 0, measured("q", 1e-6)), row("1", 1, measured("q", 1e-6)))
    assert found.passed
    assert found.verdict == (
        "PASS: m is computed as it should be; all 2 checkpoints agree with the oracle."
    )


def test_the_first_failure_is_named_with_its_cause() -> None:
    found = report(
        row("0"),
        row("2", 3, measured("q", 1e-6), measured("k", 0.5)),
        row("8", None, measured("logits", 7.0)),
        cause="the bias is left out",
    )
    assert found.verdict == (
        "FAIL: m is not computed as it should be. The first of 3 checkpoints to differ is 2, "
        "title 2, in layer 3: the error of k is 0.5, where 0.001 is allowed. Likely cause: the "
        "bias is left out."
    )


def test_a_problem_of_a_tensor_is_said_instead_of_its_numbers() -> None:
    found = report(row("1", 3, measured("q", math.inf, problem="the model never ran layer 3")))
    assert "in layer 3: the model never ran layer 3." in found.verdict
    assert "! the model never ran layer 3" in table(found)


def test_the_first_tensor_that_fails_speaks_for_its_checkpoint() -> None:
    found = row("1", 0, measured("good", 0.0), measured("first", 0.002), measured("worse", 9.0))
    assert found.shown is not None
    assert found.shown.name == "first"


def test_of_a_checkpoint_that_passes_the_tensor_nearest_to_failing_is_shown() -> None:
    found = row("1", 0, measured("large", 0.5, 1.0), measured("near", 9e-4, 1e-3))
    assert found.shown is not None
    assert found.shown.name == "near"
    assert row("1", 0, measured("zero", 0.0, 0.0)).passed


@pytest.mark.parametrize("width", [20, 80, 200])
def test_a_table_says_what_was_compared_in_words(width: int) -> None:
    found = report(row("0", problem="weights differ"), row("1", 0, measured("q", 0.5)))
    said = as_table(found, width=width, is_terminal=False)
    for words in ("what 1 compares", "! weights differ", "FAIL", "5.0e-01", "1.0e-03"):
        assert words in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= min(max(width, 80), 100)


def test_a_terminal_gets_colours_and_the_same_words() -> None:
    found = report(row("0"))
    coloured = as_table(found, width=80, is_terminal=True)
    assert "\x1b[32mpass" in coloured
    assert "PASS: m is computed" in coloured


def test_a_report_ends_with_the_verdict_and_what_to_do() -> None:
    found = report(row("0"), row("1", 0, measured("q", 0.5)), cause="c", where="all positions")
    *_, cause, where, todo = table(found).splitlines()
    assert cause.endswith("cause: c.")
    assert where == "Where: all positions."
    assert todo == "What to do: look at the code."
    assert table(report(row("0"))).splitlines()[-1].startswith("PASS: m is computed")


def test_what_fails_after_the_first_failure_is_told_apart_from_it() -> None:
    said = table(report(row("1", 0, measured("q", 0.5)), row("8", None, measured("logits", 7.0))))
    outcomes = [line.split()[-1] for line in said.splitlines() if "title" in line]
    assert outcomes[:2] == ["FAIL", "fail"]
    assert "usually fails with it" in said


def test_other_layers_show_only_what_leaves_them_unless_they_fail_first() -> None:
    inside = [row("0"), row("2", 0), row("7", 0), row("2", 1), row("7", 1)]
    said = table(report(*inside))
    assert said.count("what 2 compares") == 1
    assert "passed inside layers 1" in said
    inside[3] = row("2", 1, measured("q", 1.0))
    said = table(report(*inside))
    assert said.count("what 2 compares") == 2
    assert "inside layer 1" in said


def test_json_has_every_number_and_null_for_none() -> None:
    found = report(row("0"), row("4", 1, measured("scores", math.inf)), cause="c", where="w")
    text = json.dumps(as_json(found), allow_nan=False)
    parsed = json.loads(text)
    assert parsed["passed"] is False
    assert (parsed["first_failure"], parsed["first_failing_layer"]) == ("4", 1)
    assert (parsed["hint"], parsed["where"]) == ("c", "w")
    assert parsed["advice"] == "look at the code"
    [measure] = parsed["checkpoints"][1]["measures"]
    assert measure["max_error"] is None
    assert measure["tolerance"] == 1e-3
    assert measure["passed"] is False
