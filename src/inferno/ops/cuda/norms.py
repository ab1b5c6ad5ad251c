"""Compute RMSNorm of rows (arXiv:1910.07467), alone or with the sum of the residual stream.

A program takes a row, in registers from the load to the store, so that memory is read once. Its sum
of squares is a tree over the row alone, whose shape only the width decides: a row's bits are the
same in every batch. Nothing is contracted to a multiply-add; all but the sum is rounded as in the
reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work

# Of tiles: a warp with 8 values a thread, for it costs no less than it would with fewer; and as
# many values as stay in registers.
_MIN_WIDTH, MAX_WIDTH = 256, 16384


@dataclass(frozen=True, slots=True)
class _Tile:
    width: int
    num_warps: int


def _choose(num_features: int) -> _Tile:
    """Choose for rows of that width; the number of rows has no say, or their bits would change."""
    width = max(triton.next_power_of_2(num_features), _MIN_WIDTH)
    # 16 values a thread, two loads of 128 bits: with fewer, warps wait for each other longer
    # than for memory. From 8 warps on the tree over warps costs more than longer threads.
    return _Tile(width, num_warps=min(max(width // 512, 1), 8 if width <= 8192 else 16))


@triton.jit
def _normalized(x, weight, num_features, eps):
    """Return a row, rounded to the weight's type, times the weight; elements beyond it are 0."""
    wide = x.to(tl.float32)
    mean = tl.div_rn(tl.sum(wide * wide, axis=0), num_features.to(tl.float32))
    # A square root and a quotient that are rounded right, unlike rsqrt, cost one row nothing.
    scale = tl.div_rn(1.0, tl.sqrt_rn(mean + eps))
    # Products of 16-bit numbers are exact in float32: one rounding, as in their own type.
    normalized = (wide * scale).to(weight.dtype).to(tl.float32)
    return (weight.to(tl.float32) * normalized).to(weight.dtype)


@triton.jit
def rms_norm_kernel(
    x, weight, out, x_stride_t, out_stride_t, num_features, eps, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    is_inside = i < num_features
    # The weight is asked for first, so that it comes while the squares are summed.
    w = tl.load(weight + i, is_inside, other=0.0)
    values = tl.load(x + row * x_stride_t + i, is_inside, other=0.0)
    tl.store(out + row * out_stride_t + i, _normalized(values, w, num_features, eps), is_inside)


@triton.jit
def add_rms_norm_kernel(
    x,
    residual,
    weight,
    out,
    summed,
    x_stride_t,
    residual_stride_t,
    out_stride_t,
    num_features,
    eps,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    is_inside = i < num_features
    w = tl.load(weight + i, is_inside, other=0.0)
    added = tl.load(x + row * x_stride_t + i, is_inside, other=0.0).to(tl.float32)
    stream = tl.load(residual + row * residual_stride_t + i, is_inside, other=0.0).to(tl.float32)
    # The stream is what later blocks read, so its rounded values are what is normalized.
    values = (added + stream).to(w.dtype)
    tl.store(summed + row * out_stride_t + i, values, is_inside)
    tl.store(out + row * out_stride_t + i, _normalized(values, w, num_features, eps), is_inside)


def _takes(x_TE: Tensor, *others: Tensor) -> bool:
    """Say whether the kernels take rows of such tensors; the reference takes the rest."""
    return (
        x_TE.ndim == 2
        and x_TE.dtype in TYPE_NAMES
        and 1 < x_TE.shape[1] <= MAX_WIDTH
        and all(other.dtype is x_TE.dtype for other in others)
        and all(one.stride(-1) == 1 for one in (x_TE, *others))
    )


def rms_norm(x_TE: Tensor, weight_E: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    if not _takes(x_TE, weight_E, *([] if out is None else [out])):
        return reference.rms_norm(x_TE, weight_E, eps, out=out)
    num_tokens, num_features = x_TE.shape
    out_TE = torch.empty_like(x_TE, memory_format=torch.contiguous_format) if out is None else out
    if num_tokens == 0:
        return out_TE
    tile = _choose(num_features)
    rms_norm_kernel[(num_tokens,)](
        *(x_TE, weight_E, out_TE, x_TE.stride(0), out_TE.stride(0), num_features, eps, tile.width),
        num_warps=tile.num_warps,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return out_TE


def add_rms_norm(
    x_TE: Tensor, residual_TE: Tensor | None, weight_E: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    if residual_TE is None:
        return rms_norm(x_TE, weight_E, eps), x_TE
    if not _takes(x_TE, residual_TE, weight_E):
        return reference.add_rms_norm(x_TE, residual_TE, weight_E, eps)
    num_tokens, num_features = x_TE.shape
    out_TE, summed_TE = x_TE.new_empty((2, num_tokens, num_features))
    if num_tokens == 0:
        return out_TE, summed_TE
    tile = _choose(num_features)
    add_rms_norm_kernel[(num_tokens,)](
        *(x_TE, residual_TE, weight_E, out_TE, summed_TE),
        *(x_TE.stride(0), residual_TE.stride(0), num_features, num_features, eps, tile.width),
        num_warps=tile.num_warps,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return out_TE, summed_TE


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield both kernels for every width of a tile, of rows of multiples of 16 and others."""
    width = _MIN_WIDTH
    while width <= MAX_WIDTH:
        for dtype, letters in TYPE_NAMES.items():
            for mark in (":16", ""):
                yield from _of_width(chip, width, dtype, letters, mark)
        width *= 2


def _of_width(
    chip: Chip, width: int, dtype: torch.dtype, letters: str, mark: str
) -> Iterator[Variant]:
    tile = _choose(width)
    row = width * dtype.itemsize
    strides = {"x_stride_t": "i32" + mark, "out_stride_t": "i32" + mark}
    numbers = {"num_features": "i32" + mark, "eps": "fp32"}
    pointer = f"*{letters}:16"
    of_kernel = {
        "rms_norm": (
            rms_norm_kernel,
            dict.fromkeys(("x", "weight", "out"), pointer) | strides | numbers,
            Work(num_bytes=2 * row),
        ),
        "add_rms_norm": (
            add_rms_norm_kernel,
            dict.fromkeys(("x", "residual", "weight", "out", "summed"), pointer)
            | {"residual_stride_t": "i32" + mark}
            | strides
            | numbers,
            Work(num_bytes=4 * row),
        ),
    }
    for name, (kernel, signature, work) in of_kernel.items():
        yield Variant(
            name=f"{name} {letters} {'odd width' if not mark else 'width'} {width}",
            kernel=kernel,
            signature=signature,
            constants={"WIDTH": tile.width},
            chip=chip,
            num_warps=tile.num_warps,
            num_stages=1,
            work=work,
            is_bound_by_memory=bool(mark),
            is_in_check=(letters, mark, width) == ("bf16", ":16", 4096),
            has_fused_multiply_add=False,
        )
