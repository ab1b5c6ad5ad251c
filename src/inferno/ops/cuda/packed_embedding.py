"""Take rows of a packed embedding table; plain tables are read in `elementwise`.

A program takes a few chunks of one token's row, since a row of codes is short: 2 KB of 4096 inputs.

Shape letters: T tokens, V vocabulary, E model width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops.cuda import elementwise
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.dequantize import CHUNK, elements, format_constants, scale
from inferno.ops.cuda.packed_weights import (
    CodedWeight,
    InvariantFloats,
    chunk_inputs,
    formats_of,
)
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work
from inferno.ops.packed import PackedWeight

_CHUNKS = 8


def embedding(ids_T: Tensor, weight_VE: Tensor | PackedWeight) -> Tensor:
    if isinstance(weight_VE, InvariantFloats):
        weight_VE = weight_VE.values
    if not isinstance(weight_VE, CodedWeight) or not ids_T.is_contiguous():
        return elementwise.embedding(ids_T, weight_VE)
    format, (num_rows, width) = weight_VE.format, weight_VE.shape
    out_TE = torch.empty((len(ids_T), width), dtype=weight_VE.dtype, device=ids_T.device)
    if out_TE.numel() == 0:
        return out_TE
    num_chunks = triton.cdiv(width, chunk_inputs(format))
    gather_kernel[(len(ids_T), triton.cdiv(num_chunks, _CHUNKS))](
        *(ids_T, weight_VE.codes, weight_VE.scales, out_TE, num_rows, width, num_chunks),
        *(weight_VE.codes.stride(0), weight_VE.scales.stride(0)),
        **format_constants(format),
        CHUNKS=_CHUNKS,
        num_warps=4,
        num_stages=1,
    )
    return out_TE


@triton.jit
def gather_kernel(
    ids,
    codes,
    scales,
    out,
    num_rows,
    width,
    num_chunks,
    codes_stride_v,
    scales_stride_v,
    FORMAT: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS_PER_WORD: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Unpack a few chunks of one token's row; an id outside the table gives zeros."""
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + token)
    # Padded tokens may have any id, and must read no memory that isn't the table's.
    num_read = tl.where((row >= 0) & (row < num_rows), num_chunks, 0)
    chunk = tl.program_id(1) * CHUNKS + tl.arange(0, CHUNKS)[:, None]
    is_read = chunk < num_read
    in_chunk = tl.arange(0, CHUNK)[None, :]
    words = tl.load(codes + row * codes_stride_v + chunk * CHUNK + in_chunk, is_read, other=0)
    for slot in tl.static_range(SLOTS):
        if slot % (2 * GROUPS_PER_WORD) == 0:
            index = (chunk * SLOTS + slot) // (2 * GROUPS_PER_WORD)
            # A scale of zeros makes zeros of any code; that of MXFP4 is small enough.
            word = tl.load(scales + row * scales_stride_v + index, is_read, other=0)
        values = elements(words, slot, FORMAT) * scale(word, slot // 2, FORMAT)
        inputs = (chunk * SLOTS + slot) * CHUNK + in_chunk
        values = values.to(out.dtype.element_ty)
        tl.store(out + token * width + inputs, values, inputs < width)


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the kernel for each type, and each format that an embedding may be in."""
    for format in formats_of("embed_tokens"):
        for letters in TYPE_NAMES.values():
            yield Variant(
                name=f"gather {format} {letters}",
                kernel=gather_kernel,
                signature={
                    **dict.fromkeys(("codes", "scales"), "*i32:16"),
                    **dict.fromkeys(("num_rows", "num_chunks", "scales_stride_v"), "i32"),
                    **dict.fromkeys(("width", "codes_stride_v"), "i32:16"),
                    "ids": "*i64:16",
                    "out": f"*{letters}:16",
                },
                constants={**format_constants(format), "CHUNKS": _CHUNKS},
                chip=chip,
                num_warps=4,
                num_stages=1,
                work=Work(_CHUNKS * chunk_inputs(format) * (format.bits / 8 + 2)),
                is_in_check=(format.name, letters) == ("mxfp4", "bf16"),
            )
