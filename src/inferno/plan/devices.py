"""Find the devices of this machine that could run a model, and make the plan for each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from inferno.errors import InfernoError
from inferno.options import EngineOptions
from inferno.plan.memory import Plan, make_plan
from inferno.plan.shape import ModelShape

_QUERY = ("--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits")
_ROW = re.compile(r"(\d{1,3}), ([\w-]{1,80}), ([^,]{1,80}), (\d{1,9}), (\d{1,9})")
_MOST_SECONDS = 5.0
CONTEXT_BYTES = 500_000_000  # of CUDA itself, with PyTorch's kernels: about


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the option --device names it; its bytes, and those of them that are free."""

    device: str
    name: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A GPU and the plan of a model on it; `plan` is None where the model can't run there."""

    gpu: Gpu
    plan: Plan | None


def find_gpus() -> list[Gpu]:
    """Return NVIDIA's GPUs by their driver's tool; an empty list where the tool isn't installed."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, *_QUERY], capture_output=True, text=True, timeout=_MOST_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError, ValueError):
        return []
    return parse_gpus(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse_gpus(text: str, shown: str | None = None) -> list[Gpu]:
    """Return the GPUs in nvidia-smi's lines: number, id, name, MiB in all, MiB that are free.

    shown   the value of CUDA_VISIBLE_DEVICES: its GPUs, in its order, up to the first that isn't
            there; None: all. The option --device counts only visible GPUs.
    """
    rows = [found for line in text.splitlines() if (found := _ROW.fullmatch(line.strip()))]
    if shown is not None:
        names = [name.strip() for name in shown.split(",")]
        named = ([row for row in rows if _is_named(row, name)] for name in names)
        rows = [found[0] for found in takewhile(lambda found: len(found) == 1, named)]
        numbers: Iterable[object] = range(len(rows))
    else:
        numbers = [row[1] for row in rows]
    return [
        Gpu(f"cuda:{number}", row[3], int(row[4]) << 20, int(row[5]) << 20)
        for number, row in zip(numbers, rows, strict=True)
    ]


def gpu_plans(
    shape: ModelShape,
    options: EngineOptions,
    gpus: list[Gpu],
    draft: ModelShape | None = None,
    share: float | None = None,
) -> Iterator[GpuPlan]:
    """Yield the plan on each GPU, which counts the GPU's memory alone.

    draft   the shape of a draft model that runs on the same GPU.
    share   of each GPU's whole memory that the engine may take; None: the usual one.
    """
    for gpu in gpus:
        try:
            plan = make_plan(
                shape,
                replace(options, memory=None, device=gpu.device, gpu_memory_utilization=share),
                gpu.free,
                base=CONTEXT_BYTES,
                has_text=False,
                gpu_total=gpu.total,
                draft=draft,
            )
        except InfernoError:
            plan = None
        yield GpuPlan(gpu, plan)


def _is_named(row: re.Match[str], name: str) -> bool:
    """Return whether a GPU is the one of a number, or of the beginning of an id."""
    return row[1] == name or (name.startswith("GPU-") and row[2].startswith(name))
