"""Make random numbers on the device by Philox4x32-10, equal to those of ops/reference/philox.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import Variant, Work
from inferno.ops.drawing import Purpose
from inferno.ops.reference.philox import INCREMENTS, MULTIPLIERS, NUM_ROUNDS

_ROUNDS = tl.constexpr(NUM_ROUNDS)
_M0, _M1 = (tl.constexpr(int(multiplier)) for multiplier in MULTIPLIERS)
_K0, _K1 = (tl.constexpr(int(increment)) for increment in INCREMENTS)
_MASK = tl.constexpr(0xFFFFFFFF)
_ROWS = 128  # of a program: a choice, for the work is nothing


@triton.jit(do_not_specialize=["num_rows", "purpose", "stride"])
def uniform_kernel(rows, out, num_rows, stride, purpose, ROWS: tl.constexpr):
    """Make a number for each row; rows [3, R]: seeds, sequence indices, positions, int64."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < num_rows
    seed = tl.load(rows + row, is_row, other=0).to(tl.uint64, bitcast=True)
    # Words are below 2**32 and held in 64 bits, where a product has its high word.
    k0, k1 = seed & _MASK, seed >> 32
    c0 = tl.load(rows + stride + row, is_row, other=0).to(tl.uint64, bitcast=True) & _MASK
    c1 = tl.load(rows + 2 * stride + row, is_row, other=0).to(tl.uint64, bitcast=True) & _MASK
    c2 = tl.zeros_like(c0) + purpose
    c3 = tl.zeros_like(c0)
    for _ in tl.static_range(_ROUNDS):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _K0) & _MASK, (k1 + _K1) & _MASK
    bits = ((c0 >> 5) << 26) | (c1 >> 6)
    tl.store(out + row, bits.to(tl.int64).to(tl.float64) * (1.0 / 2**53), is_row)


def uniform(
    seeds: Sequence[int],
    sequence_indices: Sequence[int],
    positions: Sequence[int],
    purpose: Purpose,
    device: torch.device,
) -> Tensor:
    # One copy to the device brings all.
    rows_3R = np.array((seeds, sequence_indices, positions), dtype=np.int64).reshape(3, -1)
    return uniform_of(torch.from_numpy(rows_3R).to(device, non_blocking=True), purpose)


def uniform_of(rows_3R: Tensor, purpose: Purpose) -> Tensor:
    """Return what `uniform` returns; rows_3R: seeds, sequence indices, positions, int64."""
    num_rows = rows_3R.shape[1]
    out_R = torch.empty(num_rows, dtype=torch.float64, device=rows_3R.device)
    if num_rows > 0:
        uniform_kernel[triton.cdiv(num_rows, _ROWS),](
            *(rows_3R, out_R, num_rows, rows_3R.stride(0), int(purpose), _ROWS),
            num_warps=_ROWS // 32,
        )
    return out_R


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the kernel of this file."""
    yield Variant(
        name="uniform",
        kernel=uniform_kernel,
        signature={"rows": "*i64:16", "out": "*fp64:16"}
        | dict.fromkeys(("num_rows", "stride", "purpose"), "i32"),
        constants={"ROWS": _ROWS},
        chip=chip,
        num_warps=_ROWS // 32,
        num_stages=3,
        work=Work(num_bytes=_ROWS * 32),
        is_in_check=True,
    )
