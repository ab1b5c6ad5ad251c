"""What verification found: plain data that a table or JSON is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One tensor against what was expected.

    tap  which tensor, as `taps` names them; name: in words.
    max_error, mean_error  absolute; relative_error: length of the difference / length of the
                           expected; tolerance: the largest max_error that passes.
    """

    tap: str
    name: str
    max_error: float
    mean_error: float
    relative_error: float
    cosine: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.max_error <= self.tolerance

    @property
    def severity(self) -> float:
        """How much of the tolerance is used up."""
        if self.max_error == 0:
            return 0.0
        return self.max_error / self.tolerance if self.tolerance else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A checkpoint's outcome.

    layer     whose checkpoint it is; None for those of the whole model.
    findings  facts that no number says; problems: what fails it besides a measure.
    """

    number: str
    title: str
    compared: str
    layer: int | None = None
    measures: tuple[Measure, ...] = ()
    findings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems and all(measure.passed for measure in self.measures)

    @property
    def worst(self) -> Measure | None:
        """The measure nearest to failing, or failing most."""
        return max(self.measures, key=lambda measure: measure.severity, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was found.

    rows  in the order in which data flows: foundation, each asked layer's, the outcome's.
    hint  what would explain the first failure.
    """

    model: str
    subject: str
    oracle: str
    text: str
    rows: tuple[Row, ...]
    hint: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def first_failure(self) -> Row | None:
        return next((row for row in self.rows if not row.passed), None)

    @property
    def passed(self) -> bool:
        return self.first_failure is None

    @property
    def verdict(self) -> str:
        """One sentence for those who read nothing else."""
        failed = self.first_failure
        if failed is None:
            return f"PASS: all {len(self.rows)} checkpoints agree with {self.oracle}."
        where = "" if failed.layer is None else f" of layer {failed.layer}"
        what = failed.problems[0] if failed.problems else _words(failed.worst)
        hint = f" Likely cause: {self.hint}." if self.hint else ""
        first = f"the first to differ is checkpoint {failed.number}, {failed.title}{where}"
        return f"FAIL: {first}: {what}.{hint}"


def _words(measure: Measure | None) -> str:
    assert measure is not None, "a row without problems fails by a measure"
    error, allowed = measure.max_error, measure.tolerance
    return f"{measure.name} is off by {error:.2g}, where {allowed:.2g} is allowed"
