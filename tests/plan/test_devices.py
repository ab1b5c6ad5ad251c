"""GPUs are read from the lines of their driver's tool, whatever else it says."""

from __future__ import annotations

from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.plan.devices import Gpu, gpu_plans, parse_gpus
from inferno.plan.shape import read_shape

LINES = (
    "0, NVIDIA H100 80GB HBM3, 80000\n1, NVIDIA A10G, 22000\nFailed to initialize\n\n3, x, [N/A]\n"
)


def test_gpus_are_those_with_free_memory() -> None:
    assert parse_gpus(LINES) == [
        Gpu("cuda:0", "NVIDIA H100 80GB HBM3", 80000 << 20),
        Gpu("cuda:1", "NVIDIA A10G", 22000 << 20),
    ]


def test_what_is_quantized_has_no_plan_on_a_gpu() -> None:
    shape, gpus = read_shape(MODEL_FOLDERS["demo"]), parse_gpus(LINES)
    options = EngineOptions(model=MODEL_FOLDERS["demo"])
    plain = [one.plan for one in gpu_plans(shape, options, gpus)]
    assert all(plan is not None and plan.fits for plan in plain)
    quantized = EngineOptions(model=MODEL_FOLDERS["demo"], quantize="int8")
    assert [one.plan for one in gpu_plans(shape, quantized, gpus)] == [None, None]
