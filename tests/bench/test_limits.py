"""The measured limits are positive, and the thread count is given back."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from inferno.bench import roofline
from inferno.bench.roofline import measure_limits


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(roofline.measure_bandwidth, 2**20, 1)  # whose defaults are a GiB, nine times
    monkeypatch.setattr(roofline, "measure_bandwidth", small)
    monkeypatch.setattr(roofline, "_ROWS", 32)
    monkeypatch.setattr(roofline, "_INPUTS", 64)
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


def test_another_device_multiplies_matrices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPU in its place: the operations of all products over the time of all."""
    monkeypatch.setattr(roofline, "_SIDE", 64)
    found = roofline._peak_elsewhere(torch.float32, 2, torch.device("cpu"))
    usual = roofline.measure_peak(torch.float32, 2)
    assert usual / 100 < found < usual * 100


def test_a_gpus_memory_is_measured_by_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "copy_bandwidth", lambda device: 2e12 + device.index)
    monkeypatch.setattr(roofline, "measure_peak", lambda dtype, device: 1e15 + device.index)
    found = measure_limits(1, "bfloat16", torch.device("cuda", 1))
    assert (found.bandwidth, found.peak, found.arithmetic) == (2e12 + 1, 1e15 + 1, "bfloat16")
