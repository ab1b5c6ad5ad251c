"""On a device that computes on its own, as a GPU does, right models pass as they do on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferno.verify import case
from tests.engine.fake_device import Device, fake_device
from tests.tiny import save_tiny
from tests.verify.tiny_models import verified

__all__ = ["fake_device"]  # a fixture


@pytest.mark.parametrize("asked", [{}, {"invariance": 3}], ids=["alone", "schedules"])
def test_a_right_model_passes(
    asked: dict[str, Any], fake_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "_LEAST_TOKENS", 50)  # in chunks that no padded step fits
    save_tiny(tmp_path, "llama", num_hidden_layers=1)
    report = verified(tmp_path, **asked)
    assert report.passed, report.verdict
    numbers = {row.number for row in report.rows}
    assert numbers >= {"13", "I"} if asked else numbers >= {"13"}
