"""Times and limits on a GPU, by the device's own events; on a CPU by its clock, to try scripts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

_WARM_UPS = 3
_ROUNDS = 20
_COPY_BYTES = 2 << 30  # far more than a chip's L2 cache
_GEMM_SIZE = 8192


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a device, measured: bytes a second of a copy, operations of a product."""

    copy_bandwidth: float
    bf16_flops: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table.

    ratio   to what `beside` names: a limit, as a fraction, or a peer.
    bar     the least ratio that is wanted; None: it is only told.
    """

    work: str
    value: str
    ratio: float | None = None
    beside: str = ""
    bar: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Return whether the bar is reached; None where there is none."""
        return None if self.bar is None or self.ratio is None else self.ratio >= self.bar


@dataclass(frozen=True, slots=True)
class Bench:
    """The device, a folder for configs, and the limits that figures are compared with."""

    device: torch.device
    folder: Path
    limits: Limits

    @property
    def is_gpu(self) -> bool:
        """Return whether this is for real; otherwise shapes are tiny."""
        return self.device.type == "cuda"

    def describe(self) -> str:
        """Return the machine in a line."""
        name = torch.cuda.get_device_name(self.device) if self.is_gpu else "a CPU, interpreting"
        return (
            f"{name}, torch {torch.__version__}: copy {self.limits.copy_bandwidth / 1e12:.2f} TB/s,"
            f" bf16 product {self.limits.bf16_flops / 1e12:.0f} TFLOP/s"
        )

    def seconds(self, function: Callable[[], object], rounds: int = _ROUNDS) -> float:
        """Return the median time of a call on the device, after some that warm up."""
        for _ in range(_WARM_UPS if self.is_gpu else 0):
            function()
        if not self.is_gpu:
            begun = time.perf_counter()
            function()
            return time.perf_counter() - begun
        pairs = []
        for _ in range(rounds):
            start, end = _event(), _event()
            start.record()
            function()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize(self.device)
        return statistics.median(float(start.elapsed_time(end)) for start, end in pairs) / 1e3

    def peak_bytes(self, function: Callable[[], object]) -> int:
        """Return the most memory that a call takes beside what is there before it."""
        if not self.is_gpu:
            function()
            return 0
        torch.cuda.synchronize(self.device)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        function()
        torch.cuda.synchronize(self.device)
        return torch.cuda.max_memory_allocated(self.device) - before


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def measure_limits(device: torch.device) -> Limits:
    """Measure what the device copies and multiplies, through PyTorch."""
    bench = Bench(device, Path(), Limits(1.0, 1.0))
    num_bytes, size = (_COPY_BYTES, _GEMM_SIZE) if bench.is_gpu else (1 << 20, 64)
    return Limits(
        copy_bandwidth=2 * num_bytes / bench.seconds(_copy(num_bytes, device)),
        bf16_flops=2 * size**3 / bench.seconds(_product(size, device)),
    )


def _copy(num_bytes: int, device: torch.device) -> Callable[[], object]:
    source = torch.randint(256, (num_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _product(size: int, device: torch.device) -> Callable[[], object]:
    a, b = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
    return lambda: a @ b
