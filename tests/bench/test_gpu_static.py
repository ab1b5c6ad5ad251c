"""Estimates of what a kernel would do on a chip, against numbers reckoned by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytest.importorskip("triton")
import gpu_static

from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.variants import Variant, Work
from tests.ops.cuda.compile_kernels import Compiled

A100 = next(chip for chip in CHIPS if chip.capability == 80)
VARIANT = Variant(
    name="a kernel",
    kernel=None,
    signature={},
    constants={},
    chip=A100,
    num_warps=4,
    num_stages=1,
    work=Work(num_bytes=65536),
)
COMPILED = Compiled(name="a kernel", kernel="kernel", capability=80, form="")


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "blocks", "bound_by"),
    [
        # A100: 65,536 registers, 164 KiB of shared memory and 64 warps, 32 blocks at most.
        (128, 0, 4, "registers"),
        (129, 0, 3, "registers"),  # given to a warp in pieces of 256
        (32, 0, 16, "registers"),
        (16, 80 << 10, 2, "shared memory"),
        (16, 82 << 10, 1, "shared memory"),  # a block has a KiB more than it asks for
    ],
)
def test_the_blocks_of_a_multiprocessor(
    registers: int, shared_bytes: int, blocks: int, bound_by: str
) -> None:
    compiled = replace(COMPILED, registers=registers, shared_bytes=shared_bytes)
    found = gpu_static.estimate(VARIANT, compiled)
    assert (found.blocks, found.bound_by) == (blocks, bound_by)
    assert found.occupancy == blocks * 4 / 64
    assert found.is_estimate


def test_what_binds_a_program() -> None:
    compiled = replace(COMPILED, registers=128)
    # Each of 108 multiprocessors has its share of 2.039 TB/s, and of 312 TFLOP/s.
    found = gpu_static.estimate(VARIANT, compiled)
    assert found.limit == "memory"
    assert found.microseconds == pytest.approx(65536 * 108 / A100.bandwidth * 1e6)
    assert 3 < found.microseconds < 5
    flops = replace(VARIANT, work=Work(num_bytes=65536, flops=1e9))
    found = gpu_static.estimate(flops, compiled)
    assert found.limit == "tensor cores"
    assert found.microseconds == pytest.approx(1e9 * 108 / 312e12 * 1e6)
