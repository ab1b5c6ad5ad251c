"""Print what PyTorch and the engine find on this machine, as JSON.

`inferno doctor` runs it as a process of its own: a broken PyTorch, or a driver that hangs, ends
the probe and not the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

from inferno import ops
from inferno.ops import reference
from inferno.ops.kernels import why_not
from inferno.weights.memory import available_bytes


@dataclass(frozen=True, slots=True)
class Device:
    """A device by the name that --device takes; `error` where it did not answer."""

    name: str
    model: str | None = None
    total_bytes: int | None = None
    available_bytes: int | None = None
    capability: str | None = None
    error: str | None = None


def probe() -> dict[str, object]:
    """Collect all that is found, in values that JSON has."""
    return {
        "torch": str(torch.__version__),
        "cuda_build": torch.version.cuda,
        "vector_code": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "devices": [asdict(device) for device in _devices()],
        "kernels": {"isa": ops.isa(torch.device("cpu")), "why_not": why_not()},
        "ops": {kind: serving(kind) for kind in ops.BACKENDS},
    }


def serving(kind: str) -> dict[str, str]:
    """Return the backend that computes each op on devices of that kind, by name."""
    backend = ops.BACKENDS[kind]
    found = {}
    for op in ops.FORWARD_OPS:
        # A backend takes over from the reference what it has no kernel for.
        is_borrowed = getattr(backend, op) is getattr(reference, op)
        found[op] = (reference if is_borrowed else backend).__name__.rpartition(".")[2]
    return found


def _devices() -> Iterator[Device]:
    yield Device("cpu", available_bytes=available_bytes(torch.device("cpu")))
    for index in range(torch.cuda.device_count()):
        yield _cuda_device(index)
    if torch.backends.mps.is_available():
        yield Device("mps")


def _cuda_device(index: int) -> Device:
    name = f"cuda:{index}"
    try:
        found = torch.cuda.get_device_properties(index)
        free = available_bytes(torch.device(name))
    except (RuntimeError, AssertionError) as problem:  # taken by another process, or broken
        return Device(name, error=str(problem).strip().partition("\n")[0])
    capability = f"{found.major}.{found.minor}"
    return Device(name, found.name, found.total_memory, free, capability)


if __name__ == "__main__":
    print(json.dumps(probe()))
