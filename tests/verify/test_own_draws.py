"""A device that draws tokens past the sampler is observed like any other."""

from __future__ import annotations

import pytest

from inferno import ops
from inferno.verify.outcome import Row
from tests.engine.fake_device import Device
from tests.verify.planted import Folders
from tests.verify.test_drawing import FAULTS
from tests.verify.tiny_models import verified

Patch = pytest.MonkeyPatch


def rows_of_a_device(folders: Folders, patch: Patch, **options: object) -> dict[str, Row]:
    patch.setitem(ops.BACKENDS, "cpu", Device())
    return {row.number: row for row in verified(folders["llama"], **options).rows}


def test_all_that_it_draws_is_checked(folders: Folders, monkeypatch: Patch) -> None:
    rows = rows_of_a_device(folders, monkeypatch, invariance=2)
    assert all(row.passed for row in rows.values()), rows["13"].problems
    assert "drawn in 8 ways are those due" in rows["13"].findings[0]
    compared = rows["I"].findings[1].split()
    assert int(compared[compared.index("of") + 1]) > 0, compared


@pytest.mark.parametrize("fault", ["temperature x0.98", "no top-k", "no penalties"])
def test_a_wrong_draw_is_found(folders: Folders, monkeypatch: Patch, fault: str) -> None:
    FAULTS[fault](monkeypatch)
    row = rows_of_a_device(folders, monkeypatch)["13"]
    assert not row.passed
    assert "where its logits and random number make it" in row.problems[0]
