"""The outcome of verification: plain data that a table or JSON is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_TOLD = 3  # problems of one check


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A tensor's errors, and the errors that are allowed.

    tap  which tensor, as `taps` names them; name: in words.
    max_error, mean_error  absolute; relative_error: length of the difference / length of the
                           expected.
    tolerance, relative_tolerance  the largest max_error and relative_error that pass.
    problem  what is wrong with it that no number says, such as that nobody saw it: a sentence.
    """

    tap: str
    name: str
    max_error: float
    mean_error: float
    relative_error: float
    cosine: float
    tolerance: float
    relative_tolerance: float = math.inf
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and not self.is_far and not self.is_relatively_far

    @property
    def is_far(self) -> bool:
        """Return whether a value is too far off."""
        return not self.max_error <= self.tolerance

    @property
    def is_relatively_far(self) -> bool:
        """Return whether a tensor is too far off as a whole, though each value may not be."""
        return self.relative_error > self.relative_tolerance

    @property
    def severity(self) -> float:
        """Return the share of the tolerances that is used up; above 1 it has failed."""
        if self.max_error == 0:
            return 0.0
        if not (self.tolerance and self.relative_tolerance):
            return math.inf
        return max(self.max_error / self.tolerance, self.relative_error / self.relative_tolerance)

    @property
    def words(self) -> str:
        """Describe why a tensor failed: its problem, or its error and the allowed one."""
        if self.problem:
            return self.problem
        if self.is_far:
            numbers = f"{self.max_error:.2g}, where {self.tolerance:.2g} is allowed"
            return f"the error of {self.name} is {numbers}"
        numbers = f"{self.relative_error:.2g}, where {self.relative_tolerance:.2g} is allowed"
        return f"the relative error of {self.name} is {numbers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A checkpoint's outcome.

    layer     whose checkpoint it is; None for those of the whole model.
    measures  its tensors, in the order in which they are made.
    products  what its matrix products make of the engine's own inputs.
    findings  facts that no number says; problems: what fails it besides a tensor.
    """

    number: str
    title: str
    compared: str
    layer: int | None = None
    measures: tuple[Measure, ...] = ()
    products: tuple[Measure, ...] = ()
    findings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        both = (*self.measures, *self.products)
        return not self.problems and all(measure.passed for measure in both)

    @property
    def shown(self) -> Measure | None:
        """Return the measure to print: the first that failed, else the one nearest to failing."""
        both = (*self.measures, *self.products)
        failed = (measure for measure in both if not measure.passed)
        nearest = max(self.measures, key=lambda measure: measure.severity, default=None)
        return next(failed, nearest)

    @property
    def what(self) -> str:
        """Describe why a checkpoint failed: a problem, or the tensor or product that is off."""
        if self.problems:
            return self.problems[0]
        assert self.shown is not None, "a row without problems fails by a measure"
        by_itself = (one for one in self.products if not one.passed)
        wrong = next(by_itself, self.shown)
        return self.shown.words if wrong is self.shown else f"{self.shown.words}; {wrong.words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of the first failure; empty where nothing failed.

    where   at which positions and heads its tensor is wrong.
    cause   the mistake that was tried, and gave what the engine has.
    advice  what to do next.
    """

    where: str | None = None
    cause: str | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The full outcome of a verification.

    rows  in the order in which data flows: foundation, each asked layer's, the outcome's.
    """

    model: str
    subject: str
    oracle: str
    text: str
    rows: tuple[Row, ...]
    diagnosis: Diagnosis = Diagnosis()
    notes: tuple[str, ...] = ()

    @property
    def first_failure(self) -> Row | None:
        return next((row for row in self.rows if not row.passed), None)

    @property
    def passed(self) -> bool:
        return self.first_failure is None

    @property
    def num_checkpoints(self) -> int:
        """Count checkpoints by their numbers: one of many layers counts once."""
        return len({row.number for row in self.rows})

    @property
    def verdict(self) -> str:
        """Return the verdict, PASS or FAIL, in sentences that need no table."""
        failed, total = self.first_failure, self.num_checkpoints
        if failed is None:
            return (
                f"PASS: {self.model} is computed as it should be; all {total} checkpoints agree "
                f"with {self.oracle}."
            )
        place = "" if failed.layer is None else f", in layer {failed.layer}"
        cause = f" Likely cause: {self.diagnosis.cause}." if self.diagnosis.cause else ""
        return (
            f"FAIL: {self.model} is not computed as it should be. The first of {total} checkpoints "
            f"to differ is {failed.number}, {failed.title}{place}: {failed.what}.{cause}"
        )
