"""The measured limits are positive, and the thread count is given back."""

from __future__ import annotations

import pytest
import torch

from inferno.bench import roofline
from inferno.bench.roofline import measure_limits


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_BUFFER_BYTES", 2**20)
    monkeypatch.setattr(roofline, "_ROUNDS", 1)
    monkeypatch.setattr(roofline, "_OUTPUTS", 64)


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16", "float16", "int8"])
def test_each_arithmetic_has_a_peak(arithmetic: str) -> None:
    found = measure_limits(1, arithmetic)
    assert found.arithmetic == arithmetic
    assert found.bandwidth > 0
    assert found.peak > 0


def test_threads_are_as_before() -> None:
    assert torch.get_num_threads() == 1
    measure_limits(2, "float32")
    assert torch.get_num_threads() == 1
