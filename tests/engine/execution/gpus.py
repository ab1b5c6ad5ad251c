"""GPUs that aren't there: PyTorch's functions that tell of them, played for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inferno.engine.execution import gpu

GIB = 2**30


@dataclass
class FakeGpus:
    """What torch.cuda is to say. Change a field, and it says something else."""

    capabilities: list[tuple[int, int]] = field(default_factory=lambda: [(9, 0)])
    total: int = 80 * GIB
    free: int = 79 * GIB
    reserved: int = 0
    problem: Exception | None = None  # of starting CUDA
    problem_of_one: Exception | None = None  # of a question about one GPU

    def properties(self, index: int) -> Any:
        self._answer()
        major, minor = self.capabilities[index]
        return SimpleNamespace(
            name="Fake H100",
            major=major,
            minor=minor,
            total_memory=self.total,
            multi_processor_count=1,
        )

    def memory(self, _device: object = None) -> tuple[int, int]:
        self._answer()
        return self.free, self.total

    def init(self) -> None:
        if self.problem is not None:
            raise self.problem

    def _answer(self) -> None:
        if self.problem_of_one is not None:
            raise self.problem_of_one


def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """Let PyTorch have one GPU, which has all that is needed."""
    found = FakeGpus()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    fakes: dict[str, Callable[..., Any]] = {
        "init": found.init,
        "is_available": lambda: True,
        "device_count": lambda: 0 if found.problem else len(found.capabilities),
        "get_device_properties": found.properties,
        "mem_get_info": found.memory,
        "memory_reserved": lambda _device: found.reserved,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(gpu, "has_triton", lambda: True)
    return found
