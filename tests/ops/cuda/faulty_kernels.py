"""Kernels that have one fault each, to see that compile_kernels finds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import triton
import triton.language as tl

from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import Variant, Work


@triton.jit
def sum_kernel(x, out, SIZE: tl.constexpr):
    """Sum the outer product of a vector with itself, which is held in registers."""
    a = tl.load(x + tl.arange(0, SIZE))
    products = a[:, None] * a[None, :]
    tl.store(out, tl.sum(products * tl.sum(products)))


@triton.jit
def copy_kernel(x, out, stride, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i * stride))


@triton.jit
def dot_kernel(x, out, num_columns, PRECISION: tl.constexpr, SIZE: tl.constexpr):
    """Multiply a matrix with its transpose."""
    row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, num_columns, SIZE):
        a = tl.load(x + row * num_columns + start + column)
        total = tl.dot(a, a.T, total, input_precision=PRECISION)
    tl.store(out + row * SIZE + column, total)


@triton.jit
def wrong_kernel(x):
    tl.store(x, tl.arange(0, 16) + tl.arange(0, 32))


@triton.jit
def idle_kernel(x, SIZE: tl.constexpr):
    """Load what nobody needs."""
    tl.load(x + tl.arange(0, SIZE))


@triton.jit
def boxed_kernel(boxes, x, out, SIZE: tl.constexpr):
    """Copy without the boxes that a descriptor would load."""
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i))


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield a good one, then one for each fault."""
    copy = Variant(
        name="good",
        kernel=copy_kernel,
        signature={"x": "*bf16:16", "out": "*bf16:16"},
        constants={"stride": 1, "SIZE": 1024},
        chip=chip,
        num_warps=4,
        num_stages=1,
        work=Work(num_bytes=4096),
        is_bound_by_memory=True,
        is_in_check=True,
    )
    dot = replace(
        copy,
        name="good product",
        kernel=dot_kernel,
        signature={"x": "*fp16:16", "out": "*fp32:16", "num_columns": "i32:16"},
        constants={"PRECISION": "tf32", "SIZE": 64},
        num_stages=2,
        uses_tensor_cores=True,
        tile_rows=64,
    )
    yield copy
    yield dot
    yield replace(
        copy,
        name="narrow loads",
        signature={**copy.signature, "stride": "i32"},
        constants={"SIZE": 1024},
    )
    yield replace(
        copy,
        name="spilled",
        kernel=sum_kernel,
        constants={"SIZE": 128},
        num_warps=1,
        is_bound_by_memory=False,
    )
    yield replace(
        dot,
        name="shared",
        constants={"PRECISION": "tf32", "SIZE": 128},
        num_warps=8,
        num_stages=9,
    )
    yield replace(
        dot,
        name="no tensor cores",
        signature={**dot.signature, "x": "*fp32:16"},
        constants={"PRECISION": "ieee", "SIZE": 64},
        num_warps=8,
    )
    yield replace(dot, name="tensor cores", uses_tensor_cores=False)
    yield replace(dot, name="few rows", tile_rows=16)
    yield replace(
        dot,
        name="repeated products",
        constants={"PRECISION": "tf32", "SIZE": 16},
        tile_rows=16,
    )
    yield replace(
        copy,
        name="idle",
        kernel=idle_kernel,
        signature={"x": "*bf16:16"},
        constants={"SIZE": 1024},
    )
    yield replace(
        copy,
        name="no boxes",
        kernel=boxed_kernel,
        signature={**copy.signature, "boxes": "tensordesc<bf16[64, 64]>"},
        constants={"SIZE": 1024},
    )
    yield replace(copy, name="wrong", kernel=wrong_kernel, signature={"x": "*i32:16"}, constants={})
    yield replace(copy, name="missing argument", constants={"SIZE": 1024})
