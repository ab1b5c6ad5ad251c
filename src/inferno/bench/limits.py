"""The limits of this machine's memory and arithmetic, measured through PyTorch.

Both are what a process reaches with the threads that inferno uses, not a data sheet's figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from inferno import machine
from inferno.bench.job import Limits

_BUFFER_BYTES = 2**30  # far more than any cache holds
_ROUNDS = 8
# A feed-forward product of a small model over a chunk of a prompt.
_ROWS, _INPUTS, _OUTPUTS = 512, 2048, 5632


def measure_limits(num_threads: int, arithmetic: str) -> Limits:
    """Measure the limits with so many threads.

    `arithmetic` is a dtype's name, int8 for quantized weights.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        return Limits(
            bandwidth=_bandwidth(), peak=_peak(getattr(torch, arithmetic)), arithmetic=arithmetic
        )
    finally:
        torch.set_num_threads(before)


def _bandwidth() -> float:
    """Measure the bytes that are read a second, by the sum of a large buffer."""
    available = machine.available_memory() or 4 * _BUFFER_BYTES
    buffer = torch.ones(min(_BUFFER_BYTES, available // 4) // torch.float32.itemsize)
    return buffer.nbytes / _seconds(buffer.sum)


def _peak(dtype: torch.dtype) -> float:
    """Measure the operations a second of one matrix product."""
    if dtype is torch.int8:
        x = torch.randint(-127, 128, (_ROWS, _INPUTS), dtype=dtype)
        weight = torch.randint(-127, 128, (_INPUTS, _OUTPUTS), dtype=dtype)
        seconds = _seconds(lambda: torch._int_mm(x, weight))
    else:
        x, weight = torch.randn(_ROWS, _INPUTS).to(dtype), torch.randn(_OUTPUTS, _INPUTS).to(dtype)
        seconds = _seconds(lambda: torch.nn.functional.linear(x, weight))
    return 2 * _ROWS * _INPUTS * _OUTPUTS / seconds


def _seconds(function: Callable[[], object]) -> float:
    """Return the time of the quickest of several calls, after one that warms up."""
    function()
    taken = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return min(taken)
