"""Say why a checkpoint failed: try the usual mistakes and see which one gives what was found.

A cause is computed, never guessed: the expected tensors are recomputed with one mistake in them,
and a mistake counts if its result is what the engine has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.verify.compare import largest, measure
from inferno.verify.outcome import Measure
from inferno.verify.suspects import Evidence, Suspect, Suspects, Table
from inferno.verify.suspects_any import any_suspects
from inferno.verify.suspects_attention import ATTENTION
from inferno.verify.suspects_experts import EXPERTS
from inferno.verify.suspects_layer import LAYER
from inferno.verify.suspects_projection import PROJECTION
from inferno.verify.where import wrong_part

_AS_NEAR = 2
# How much nearer than what was expected a suspect must be, and where that alone has to do.
_NEARER, _RELATIVELY_NEARER = (3, 50), (2, 10)
_TABLES: tuple[Table, ...] = (PROJECTION, ATTENTION, EXPERTS, LAYER)


def find_cause(failed: Measure, evidence: Evidence) -> str | None:
    """Return the mistake that explains a tensor that failed, or None.

    Mistakes that the tensor is known for go first, then those that any may suffer, then the former
    at the positions and heads that are wrong only. What explains it no better than a mistake may
    whose own rounding is large, such as a scale that sharpens the softmax, goes last.
    """
    found, expected = evidence.found[failed.tap], evidence.expected[failed.tap]
    named = list(_named(failed.tap, evidence))
    others = any_suspects(failed.tap.rpartition(".")[2], found, expected, evidence)
    partly = _in_part(named, failed, evidence)
    nearness = Nearness(failed, found, largest(expected))
    return (
        nearness.best(named)
        or nearness.best(others)
        or nearness.best(partly)
        or nearness.best(named, is_wide=True)
    )


@dataclass(frozen=True, slots=True)
class Nearness:
    """The measure of how near suspects are to what was found, and how near they must be.

    In 16 bits the relative error is compared, which roundings spoil least; else the largest one.
    scale  the expected tensor's largest value, by which rounding goes.
    """

    failed: Measure
    found: Tensor
    scale: float

    def best(self, suspects: Iterable[Suspect], *, is_wide: bool = False) -> str | None:
        """Return the words of the first suspect that is about as near as any, within the limits."""
        near = [
            (distance, suspect.words)
            for suspect in suspects
            if suspect.expected.shape == self.found.shape
            and (distance := self._distance(suspect)) <= self._limit(suspect, is_wide=is_wide)
        ]
        least = min((distance for distance, _ in near), default=0.0)
        return next((words for distance, words in near if distance <= _AS_NEAR * least), None)

    @property
    def _is_relative(self) -> bool:
        return math.isfinite(self.failed.relative_tolerance)

    def _distance(self, suspect: Suspect) -> float:
        found = measure("", "", self.found, suspect.expected, 0.0)
        return found.relative_error if self._is_relative else found.max_error

    def _limit(self, suspect: Suspect, *, is_wide: bool) -> float:
        """Return the largest error that a suspect may leave and still be the cause.

        The narrow limit is what rounding explains, and so far below the error found that it can't
        be by chance. The wide limit may also be a share of the error found.
        """
        growth = largest(suspect.expected) / self.scale if self.scale else 1.0
        if self._is_relative:
            error, allowed = self.failed.relative_error, self.failed.relative_tolerance
            nearer, much_nearer = _RELATIVELY_NEARER
        else:
            error, allowed = self.failed.max_error, self.failed.tolerance * max(1.0, growth)
            nearer, much_nearer = _NEARER
        narrow = min(allowed, error / nearer)
        return max(narrow, error / much_nearer) if is_wide and math.isfinite(error) else narrow


def _named(tap: str, evidence: Evidence) -> Suspects:
    """Yield the mistakes that this tensor is known for."""
    layer, _, name = tap.rpartition(".")
    for table in _TABLES:
        if name in table:
            yield from table[name](name, int(layer or 0), evidence)


def _in_part(suspects: Iterable[Suspect], failed: Measure, evidence: Evidence) -> Suspects:
    """Yield the same mistakes where the tensor is wrong, with expected values elsewhere."""
    expected = evidence.expected[failed.tap].float()
    if failed.tap.endswith("sinks"):
        return
    part = wrong_part(failed, evidence)
    if not part.all():
        for suspect in suspects:
            if suspect.expected.shape == expected.shape:
                merged = torch.where(part, suspect.expected.float(), expected)
                yield Suspect(suspect.words, merged)
