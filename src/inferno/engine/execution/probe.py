"""Print what PyTorch and the engine find on this machine, as JSON.

`inferno doctor` runs this module as a process of its own: a broken PyTorch, or a driver that hangs,
ends the probe and not the report.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

from inferno import ops
from inferno.compiled_kernels import why_not
from inferno.engine.execution.gpu import (
    copy_bandwidth,
    gpu_memory,
    triton_folder,
    why_no_cuda,
    why_no_kernels,
)
from inferno.ops import reference
from inferno.out_of_memory import is_out_of_memory
from inferno.weights.memory import available_bytes

# Bytes that others may hold of a GPU that is measured unasked: a screen holds less, a model more.
_MOST_HELD = 1 << 30


@dataclass(frozen=True, slots=True)
class Device:
    """A device by the name that --device takes; `error` says why it did not answer, if so.

    bandwidth   bytes a second that a GPU copies within its memory; None if not measured, and
                why_unmeasured says why.
    """

    name: str
    model: str | None = None
    total_bytes: int | None = None
    available_bytes: int | None = None
    capability: str | None = None
    error: str | None = None
    bandwidth: float | None = None
    why_unmeasured: str | None = None


def probe(*, measures_all: bool = False) -> dict[str, object]:
    """Collect what PyTorch and the engine find on this machine, in values that JSON has.

    measures_all    whether GPUs that others use are to copy something too, which takes a second
                    and two GB of each.
    """
    return {
        "torch": str(torch.__version__),
        "cuda_build": torch.version.cuda,
        "vector_code": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": {
            "why_not": why_no_cuda(),
            "why_no_kernels": why_no_kernels(),
            "triton_cache": str(triton_folder()),
            "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        },
        "devices": [asdict(device) for device in _devices(measures_all=measures_all)],
        "kernels": {"isa": ops.isa(torch.device("cpu")), "why_not": why_not()},
        "ops": {kind: serving(kind) for kind in ops.BACKENDS},
    }


def serving(kind: str) -> dict[str, str]:
    """Return, for each op, the name of the backend that computes it on devices of that kind."""
    backend = ops.BACKENDS[kind]
    found = {}
    for op in ops.FORWARD_OPS:
        # A backend takes over from the reference what it has no kernel for.
        is_borrowed = getattr(backend, op) is getattr(reference, op)
        found[op] = (reference if is_borrowed else backend).__name__.rpartition(".")[2]
    return found


def _devices(*, measures_all: bool) -> Iterator[Device]:
    yield Device("cpu", available_bytes=available_bytes(torch.device("cpu")))
    for index in range(torch.cuda.device_count()):
        yield _cuda_device(index, measures_all=measures_all)
    if torch.backends.mps.is_available():
        yield Device("mps")


def _cuda_device(index: int, *, measures_all: bool) -> Device:
    name = f"cuda:{index}"
    try:
        found = torch.cuda.get_device_properties(index)
        free = available_bytes(torch.device(name))
        held = gpu_memory(torch.device(name)).others
        if measures_all or held <= _MOST_HELD:
            bandwidth, why_unmeasured = _measure(name)
        else:
            why_unmeasured = f"others hold {held / 1e9:.1f} GB of it; see --measure"
            bandwidth = None
    except (RuntimeError, AssertionError) as problem:  # taken by another process, or broken
        return Device(name, error=str(problem).strip().partition("\n")[0])
    capability = f"{found.major}.{found.minor}"
    return Device(
        *(name, found.name, found.total_memory, free, capability),
        bandwidth=bandwidth,
        why_unmeasured=why_unmeasured,
    )


def _measure(name: str) -> tuple[float | None, str | None]:
    """Return how fast a GPU copies, or why that isn't known."""
    try:
        return copy_bandwidth(torch.device(name)), None
    except RuntimeError as problem:
        if not is_out_of_memory(problem):
            raise
        return None, "its memory has no room for a copy"


if __name__ == "__main__":
    print(json.dumps(probe(measures_all="--measure" in sys.argv[1:])))
