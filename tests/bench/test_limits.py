"""The measured limits are positive, and the thread count is given back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from inferno import ops
from inferno.bench import roofline
from inferno.bench.roofline import measure_limits
from inferno.quantization import INT8


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


def test_a_slow_product_is_measured_by_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processors have no instructions for some types: PyTorch is very slow there."""
    rows: list[int] = []
    monkeypatch.setattr(roofline, "_seconds", lambda call, rounds: (call(), 10.0)[1])
    roofline._rate_of_rows(rows.append, 3)
    assert rows == [8]
    rows.clear()
    monkeypatch.setattr(roofline, "_seconds", lambda call, rounds: (call(), 1e-6)[1])
    assert roofline._rate_of_rows(rows.append, 3) == pytest.approx(2 * 32 * 64 * 64 / 1e-6)
    assert rows == [8, 32]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
def test_a_plan_is_made_of_what_engines_compute(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    seen: list[object] = []
    linear = ops.linear

    def watched(x: torch.Tensor, weight: Any) -> torch.Tensor:
        seen.append(weight)
        return linear(x, weight)

    monkeypatch.setattr(ops, "linear", watched)
    assert roofline.measure_kernels(dtype, 1, 1) > 0
    packed = ops.pack(torch.randn(64, 64), INT8)
    assert dtype is not torch.int8 or isinstance(seen[0], type(packed))
    assert torch.get_num_threads() == 1


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
