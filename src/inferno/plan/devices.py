"""The devices of this machine that could run a model, and the plan for each."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inferno.errors import InfernoError
from inferno.options import EngineOptions
from inferno.plan.memory import Plan, make_plan
from inferno.plan.shape import ModelShape

_QUERY = ("--query-gpu=index,name,memory.free", "--format=csv,noheader,nounits")
_ROW = re.compile(r"(\d{1,3}), ([^,]{1,80}), (\d{1,9})")
_MOST_SECONDS = 5.0
CONTEXT_BYTES = 500_000_000  # of CUDA itself, with PyTorch's kernels: about


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the option --device names it, and its free bytes."""

    device: str
    name: str
    free: int


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """The plan of a model on a GPU; None where it can't run there."""

    gpu: Gpu
    plan: Plan | None


def find_gpus() -> list[Gpu]:
    """Return NVIDIA's GPUs, as their driver's tool lists them; none where it isn't there."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, *_QUERY], capture_output=True, text=True, timeout=_MOST_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError, ValueError):
        return []
    return parse_gpus(done.stdout)


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs of the tool's lines: number, name, free MiB."""
    found = (_ROW.fullmatch(line.strip()) for line in text.splitlines())
    return [Gpu(f"cuda:{one[1]}", one[2], int(one[3]) << 20) for one in found if one]


def gpu_plans(
    shape: ModelShape, options: EngineOptions, gpus: list[Gpu], draft: ModelShape | None = None
) -> Iterator[GpuPlan]:
    """Yield the plan on each GPU, of its memory alone.

    draft   the shape of a draft model that runs there too.
    What is quantized runs on the CPU only, whose kernels compute with it.
    """
    for gpu in gpus:
        plan = None
        if options.quantize == "none" and options.kv_dtype != "int8":
            try:
                plan = make_plan(
                    shape,
                    replace(options, memory=None),
                    gpu.free,
                    base=CONTEXT_BYTES,
                    has_text=False,
                    is_cpu=False,
                    draft=draft,
                )
            except InfernoError:
                plan = None
        yield GpuPlan(gpu, plan)
