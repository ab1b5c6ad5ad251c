"""A planted mistake, and what a report must say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferno.verify.outcome import Report
from tests.verify.faults import Plant
from tests.verify.tiny_models import save_model, verified


@dataclass(frozen=True, slots=True)
class Fault:
    """Where it is planted, the checkpoint and layer that must fail first, words of the report."""

    model: str
    plant: Plant
    number: str
    layer: int | None
    said: str
    where: str = ""


class Folders:
    """Tiny checkpoints, made when first asked for."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[str, Path] = {}

    def __getitem__(self, model: str) -> Path:
        if model not in self._made:
            self._made[model] = save_model(self._factory.mktemp("model"), model)
        return self._made[model]


def check(folders: Folders, patch: pytest.MonkeyPatch, fault: Fault, **options: Any) -> Report:
    """Plant the fault, and see that the report finds and names it."""
    fault.plant(patch)
    report = verified(folders[fault.model], **options)
    failed = report.first_failure
    assert failed is not None
    assert (failed.number, failed.layer) == (fault.number, fault.layer), report.verdict
    assert fault.said in report.verdict
    assert fault.where in (report.diagnosis.where or ""), report.diagnosis
    return report
