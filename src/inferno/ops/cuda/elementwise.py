"""Copy rows of an embedding table, and compute SwiGLU's gate where no product includes it.

Both kernels move memory and little else: a program takes 1024 columns of a row, eight of a thread,
so that 16-bit values come 128 bits at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work
from inferno.ops.packed import PackedWeight

# Rows are copied as words of the same size, so that one kernel serves both types of 16 bits.
_WORDS = {2: torch.int16, 4: torch.int32}
_COLUMNS = 1024
_WARPS = _COLUMNS // (8 * 32)  # eight values a thread


@triton.jit
def embedding_kernel(
    ids,
    weight,
    out,
    weight_stride_v,
    num_rows,
    num_features,
    num_parts,
    COLUMNS: tl.constexpr,
):
    """Copy a part of one token's row of words; an id outside the table gives zeros."""
    token = (tl.program_id(0) // num_parts).to(tl.int64)
    i = (tl.program_id(0) % num_parts) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(ids + token)
    # Padded tokens may have any id, and must read no memory that isn't the table's.
    num_read = tl.where((row >= 0) & (row < num_rows), num_features, 0)
    values = tl.load(weight + row * weight_stride_v + i, i < num_read, other=0)
    tl.store(out + token * num_features + i, values, i < num_features)


@triton.jit
def silu_mul_kernel(gate_up, out, gate_up_stride_t, num_features, num_parts, COLUMNS: tl.constexpr):
    """Compute a part of one row of silu(gate) * up; gate and up lie side by side."""
    token = (tl.program_id(0) // num_parts).to(tl.int64)
    i = (tl.program_id(0) % num_parts) * COLUMNS + tl.arange(0, COLUMNS)
    is_inside = i < num_features
    at = gate_up + token * gate_up_stride_t + i
    gate = tl.load(at, is_inside, other=0.0).to(tl.float32)
    up = tl.load(at + num_features, is_inside, other=0.0)
    silu = (gate / (1.0 + tl.exp(-gate))).to(up.dtype)
    # A product of 16-bit numbers is exact in float32, so this is one rounding.
    product = silu.to(tl.float32) * up.to(tl.float32)
    tl.store(out + token * num_features + i, product.to(up.dtype), is_inside)


def embedding(ids_T: Tensor, weight_VE: Tensor | PackedWeight) -> Tensor:
    is_taken = (
        isinstance(weight_VE, Tensor)
        and weight_VE.dtype in TYPE_NAMES
        and weight_VE.stride(-1) == 1
        and ids_T.dtype is torch.int64
        and ids_T.is_contiguous()
    )
    if not is_taken:
        return reference.embedding(ids_T, weight_VE)
    assert isinstance(weight_VE, Tensor)
    num_rows, num_features = weight_VE.shape
    out_TE = weight_VE.new_empty((len(ids_T), num_features))
    if len(ids_T) == 0:
        return out_TE
    num_parts, words = triton.cdiv(num_features, _COLUMNS), _WORDS[weight_VE.itemsize]
    embedding_kernel[(len(ids_T) * num_parts,)](
        *(ids_T, weight_VE.view(words), out_TE.view(words)),
        *(weight_VE.stride(0), num_rows, num_features, num_parts),
        COLUMNS=_COLUMNS,
        num_warps=_WARPS,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return out_TE


def silu_mul(gate_up_TF: Tensor) -> Tensor:
    """Compute silu(first half), rounded, times the second half: [T, 2F] -> [T, F]."""
    if gate_up_TF.dtype not in TYPE_NAMES or gate_up_TF.stride(-1) != 1 or gate_up_TF.ndim != 2:
        return reference.silu_mul(gate_up_TF)
    num_tokens, num_features = gate_up_TF.shape[0], gate_up_TF.shape[1] // 2
    out_TF = gate_up_TF.new_empty((num_tokens, num_features))
    if out_TF.numel() == 0:
        return out_TF
    num_parts = triton.cdiv(num_features, _COLUMNS)
    silu_mul_kernel[(num_tokens * num_parts,)](
        *(gate_up_TF, out_TF, gate_up_TF.stride(0), num_features, num_parts),
        COLUMNS=_COLUMNS,
        num_warps=_WARPS,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return out_TF


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield both kernels for each type, with rows of multiples of 16 and other sizes."""
    for mark in (":16", ""):
        for size, words in _WORDS.items():
            pointer, number = f"*i{8 * words.itemsize}:16", f"i32{mark}"
            signature = {"ids": "*i64:16", "weight": pointer, "out": pointer, "num_parts": "i32"}
            signature |= {"weight_stride_v": number, "num_rows": "i32", "num_features": number}
            name = f"embedding {8 * size} bits"
            yield _variant(chip, name, embedding_kernel, signature, mark, size, num_passes=2)
        for dtype, letters in TYPE_NAMES.items():
            # float32 only meets weights that round activations to FP8.
            if dtype is not torch.float32 or chip.has_fp8:
                signature = dict.fromkeys(("gate_up", "out"), f"*{letters}:16")
                signature |= dict.fromkeys(("gate_up_stride_t", "num_features"), f"i32{mark}")
                signature |= {"num_parts": "i32"}
                name, size = f"silu_mul {letters}", dtype.itemsize
                yield _variant(chip, name, silu_mul_kernel, signature, mark, size, num_passes=3)


def _variant(
    chip: Chip,
    name: str,
    kernel: Any,
    signature: dict[str, str],
    mark: str,
    size: int,
    *,
    num_passes: int,
) -> Variant:
    return Variant(
        name=f"{name}{'' if mark else ' odd width'}",
        kernel=kernel,
        signature=signature,
        constants={"COLUMNS": _COLUMNS},
        chip=chip,
        num_warps=_WARPS,
        num_stages=1,
        work=Work(num_bytes=num_passes * _COLUMNS * size),
        is_bound_by_memory=bool(mark),
        is_in_check=bool(mark) and size == 2 and "fp16" not in name,
        has_fused_multiply_add=False,
    )
