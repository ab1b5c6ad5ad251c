"""GPUs are read from the lines of their driver's tool, whatever else it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from inferno import ops
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.plan.devices import Gpu, gpu_plans, parse_gpus
from inferno.plan.memory import Plan
from inferno.plan.report import memory_table
from inferno.plan.shape import read_shape
from inferno.quantization import INT8

GIB = 2**30
H100, A10 = "NVIDIA H100 80GB HBM3", "NVIDIA A10G"
LINES = (
    f"0, GPU-aa11, {H100}, 81559, 80000\n1, GPU-aa22, {A10}, 23028, 22000\n"
    "Failed to initialize\n\n3, GPU-33, x, [N/A], [N/A]\n"
)
DEMO = MODEL_FOLDERS["demo"]


def gpu(total: int, free: int) -> Gpu:
    return Gpu("cuda:0", H100, total, free)


def plan_on(one: Gpu, share: float | None = None, **given: Any) -> Plan:
    options = EngineOptions(model=DEMO, **given)
    [found] = gpu_plans(read_shape(DEMO), options, [one], share=share)
    assert found.plan is not None
    return found.plan


def test_gpus_are_those_with_free_memory() -> None:
    assert parse_gpus(LINES) == [
        Gpu("cuda:0", H100, 81559 << 20, 80000 << 20),
        Gpu("cuda:1", A10, 23028 << 20, 22000 << 20),
    ]


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ("1", [A10]),
        ("1,0", [A10, H100]),
        ("1, 9, 0", [A10]),
        ("GPU-aa1", [H100]),
        ("GPU-aa", []),  # of both
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_counted_as_the_environment_shows_them(shown: str, names: list[str]) -> None:
    found = parse_gpus(LINES, shown)
    assert [one.name for one in found] == names
    assert [one.device for one in found] == [f"cuda:{i}" for i in range(len(names))]


def test_a_plan_keeps_to_a_share_of_the_whole_gpu() -> None:
    whole = plan_on(gpu(10 * GIB, 10 * GIB), max_num_seqs=4096)
    assert whole.room == int(10 * GIB * 0.9)
    assert whole.is_bound
    half = plan_on(gpu(2 * GIB, 2 * GIB), share=0.5, max_num_seqs=1024)
    assert half.room == GIB
    assert half.total_bytes <= GIB
    # The cache takes all that is left, for so many requests could fill it.
    assert GIB - half.total_bytes < 2 * (half.cache.block_bytes + 500)


def test_what_others_hold_is_not_there() -> None:
    found = plan_on(gpu(80 * GIB, 3 * GIB), max_num_seqs=4096)
    assert found.room == 3 * GIB
    assert not found.is_bound
    assert found.fits
    assert not plan_on(gpu(80 * GIB, GIB // 4)).fits


def test_a_gpus_table_names_its_own_memory() -> None:
    lines = "\n".join(memory_table(plan_on(gpu(10 * GIB, 10 * GIB))))
    assert "share of the GPU" in lines
    assert "CUDA, PyTorch" in lines
    assert "Python" not in lines
    assert "free on the GPU" in "\n".join(memory_table(plan_on(gpu(10 * GIB, GIB))))


def test_quantized_weights_and_keys_run_on_a_gpu_as_its_plans_say() -> None:
    assert ops.has_kernels(torch.device("cuda"), INT8)
    quantized = EngineOptions(model=DEMO, quantize="int8", kv_dtype="int8")
    found = [one.plan for one in gpu_plans(read_shape(DEMO), quantized, parse_gpus(LINES))]
    assert len(found) == 2
    assert all(plan is not None and plan.fits for plan in found)
