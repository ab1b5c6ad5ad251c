"""Products in FP8 on both sides: tensor cores multiply elements of weights and of activations.

This is DeepSeek's recipe (arXiv:2412.19437, section 3.3), which Qwen's FP8 checkpoints were made
for. Each 128 inputs of a row are quantized by their largest value; tensor cores add up 128 products
of elements, and float32 takes over from there: each sum is scaled by the weight's scale and the
row's, and added. So scales are exact, and sums of tensor cores, which keep few bits, stay short.

`products.linear` comes here with weights of `fp8-dynamic` (`CodedWeight.rounds_inputs`), which are
loaded on chips with such tensor cores only (SM89 and newer). Those of `fp8`, and experts, meet
activations as they are. A NaN or infinity among a row's inputs makes all outputs of the row NaN.

Any number of rows is quantized and multiplied in this way, in steps of 128 inputs from the first
on, with outputs as the rows of the tensor cores' tile: a row's bits don't depend on the others.
Codes of activations lie in the order that `packed_weights` gives those of weights.

Shape letters: T tokens, I input and O output features, G groups of 128 inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops.cuda.chips import Chip, chip_of
from inferno.ops.cuda.packed_weights import CHUNK_WORDS, CodedWeight
from inferno.ops.cuda.rotation import quantized
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work
from inferno.quantization import FP8

_GROUP = tl.constexpr(FP8.group)
_WORDS = tl.constexpr(CHUNK_WORDS)
_LARGEST = tl.constexpr(448.0)
_QUANTIZED_GROUPS = 8  # of a row, that one program takes
ROW_TILES = 8  # that share a tile of outputs, one after the other
_FEW_ROWS, _SOME_ROWS, _MANY_ROWS = 16, 64, 128


def linear(
    x_TI: Tensor, weight_OI: CodedWeight, bias_O: Tensor | None, out: Tensor | None
) -> Tensor:
    """Return what `ops.linear` returns, for rows whose values lie side by side."""
    if out is not None and out.stride(-1) != 1:
        return out.copy_(linear(x_TI, weight_OI, bias_O, torch.empty_like(out).contiguous()))
    num_rows, num_outputs = len(x_TI), weight_OI.shape[0]
    out_TO = x_TI.new_empty((num_rows, num_outputs)) if out is None else out
    if num_rows == 0 or num_outputs == 0:
        return out_TO
    codes_TI, scales_GT = quantize_rows(x_TI)
    weight, scales = weight_OI.codes.view(torch.float8_e4m3fn), weight_OI.scales
    tile = _choose(chip_of(x_TI.device), num_rows)
    num_row_tiles = triton.cdiv(num_rows, tile.block_rows)
    in_group = min(num_row_tiles, ROW_TILES)
    num_output_tiles = triton.cdiv(num_outputs, tile.block_outputs)
    grid = (in_group, num_output_tiles, triton.cdiv(num_row_tiles, in_group))
    fp8_linear_kernel[grid](
        *(codes_TI, scales_GT, weight, scales.view(torch.float32)),
        *(x_TI if bias_O is None else bias_O, out_TO),
        *(num_rows, num_outputs, scales.shape[1]),
        *(codes_TI.stride(0), scales_GT.stride(0), weight.stride(0), scales.stride(0)),
        out_TO.stride(0),
        HAS_BIAS=bias_O is not None,
        **_constants(tile),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return out_TO


def quantize_rows(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    """Return elements [T, G * 128] and scales [G, T], float32, of rows in groups of 128.

    Inputs beyond the last are zeros. A group with a NaN or infinity has a scale of NaN.
    """
    num_rows, num_inputs = x_TI.shape
    num_groups = triton.cdiv(num_inputs, FP8.group)
    codes_TI = x_TI.new_empty((num_rows, num_groups * FP8.group), dtype=torch.uint8)
    scales_GT = x_TI.new_empty((num_groups, num_rows), dtype=torch.float32)
    quantize_rows_kernel[(num_rows, triton.cdiv(num_groups, _QUANTIZED_GROUPS))](
        *(x_TI, codes_TI, scales_GT, num_inputs, num_groups),
        *(x_TI.stride(0), codes_TI.stride(0), scales_GT.stride(0)),
        GROUPS=_QUANTIZED_GROUPS,
        num_warps=4,
        num_stages=1,
    )
    return codes_TI.view(torch.float8_e4m3fn), scales_GT


@dataclass(frozen=True, slots=True)
class _Tile:
    """A configuration of fp8_linear_kernel."""

    block_outputs: int
    block_rows: int
    num_warps: int
    num_stages: int


def _choose(chip: Chip, num_rows: int) -> _Tile:
    """Choose for so many rows; of a step each output and each row of a tile takes 128 bytes."""
    if num_rows <= _FEW_ROWS:
        return _Tile(64, _FEW_ROWS, 4, 6)
    if num_rows <= _SOME_ROWS:
        return _Tile(64, _SOME_ROWS, 4, 4)
    if chip.has_tensor_memory:
        # Sums come out of tensor memory by outputs, so that a thread has the scales of all rows.
        return _Tile(128, _SOME_ROWS, 8, 4)
    return _Tile(128, _MANY_ROWS, 8, 4 if chip.shared_bytes > 140 << 10 else 2)


def _constants(tile: _Tile) -> dict[str, object]:
    return {"BLOCK_O": tile.block_outputs, "BLOCK_T": tile.block_rows}


@triton.jit(do_not_specialize=["scales_stride_g"])
def quantize_rows_kernel(
    x,
    codes,
    scales,
    num_inputs,
    num_groups,
    x_stride_t,
    codes_stride_t,
    scales_stride_g,
    GROUPS: tl.constexpr,
):
    """Quantize a few groups of one row; inputs lie as in the words of a weight."""
    row = tl.program_id(0).to(tl.int64)
    groups = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    place = tl.arange(0, _GROUP)
    # Byte p of word j of a chunk holds the chunk's input 16 p + j.
    chunk_bytes: tl.constexpr = 4 * _WORDS
    in_chunk = place % 4 * _WORDS + place % chunk_bytes // 4
    inputs = groups[:, None] * _GROUP + (place // chunk_bytes * chunk_bytes + in_chunk)[None, :]
    values = tl.load(x + row * x_stride_t + inputs, inputs < num_inputs, other=0.0).to(tl.float32)
    # Comparisons are false for NaN, which so takes no part in the maximum on any chip.
    most = tl.max(tl.where(tl.abs(values) >= 0.0, tl.abs(values), 0.0), axis=1)
    poison = tl.sum(values * 0.0, axis=1)
    scale = tl.div_rn(most, tl.full(most.shape, _LARGEST, tl.float32))
    is_group = groups < num_groups
    tl.store(scales + groups * scales_stride_g + row, scale + poison, is_group)
    at = codes + row * codes_stride_t + groups[:, None] * _GROUP + place[None, :]
    tl.store(at, quantized(values, scale[:, None], "float8"), is_group[:, None])


@triton.jit(do_not_specialize=["num_rows", "x_scales_stride_g"])
def fp8_linear_kernel(
    x,
    x_scales,
    weight,
    scales,
    bias,
    out,
    num_rows,
    num_outputs,
    num_groups,
    x_stride_t,
    x_scales_stride_g,
    weight_stride_o,
    scales_stride_o,
    out_stride_t,
    HAS_BIAS: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Compute a tile of BLOCK_O outputs of BLOCK_T rows."""
    row_tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    rows = row_tile * BLOCK_T + tl.arange(0, BLOCK_T)
    outputs = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    # Rows and outputs beyond the last are made of the last one, and not stored.
    x_rows = tl.minimum(rows, num_rows - 1)
    weight_rows = tl.minimum(outputs, num_outputs - 1).to(tl.int64)
    k = tl.arange(0, _GROUP)
    x_at = x + x_rows.to(tl.int64)[None, :] * x_stride_t + k[:, None]
    at = weight + weight_rows[:, None] * weight_stride_o + k[None, :]
    x_scales_at = x_scales + x_rows
    scales_at = scales + weight_rows * scales_stride_o
    total = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    # The weight's scales are asked for a step ahead. Those of rows, which lie side by side, would
    # take too many registers.
    scale = tl.load(scales_at)
    for group in tl.range(0, num_groups):
        tile = tl.load(at + group * _GROUP)
        x_tile = tl.load(x_at + group * _GROUP)
        next_scale = tl.load(scales_at + tl.minimum(group + 1, num_groups - 1))
        x_scale = tl.load(x_scales_at)
        x_scales_at += x_scales_stride_g
        total += tl.dot(tile, x_tile) * scale[:, None] * x_scale[None, :]
        scale = next_scale
    if HAS_BIAS:
        total += tl.load(bias + weight_rows)[:, None].to(tl.float32)
    mask = (outputs < num_outputs)[:, None] & (rows < num_rows)[None, :]
    out_at = out + rows.to(tl.int64)[None, :] * out_stride_t + outputs[:, None]
    tl.store(out_at, total.to(out.dtype.element_ty), mask=mask)


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield both kernels of this file in every configuration that is launched on a chip.

    A head is never in `fp8-dynamic`, so results have the type of the rows.
    """
    if not chip.has_fp8:
        return
    for half in TYPE_NAMES.values():
        yield Variant(
            name=f"quantize_rows_{half}",
            kernel=quantize_rows_kernel,
            signature={"x": f"*{half}:16", "codes": "*u8:16", "scales": "*fp32:16"}
            | dict.fromkeys(("num_inputs", "num_groups", "scales_stride_g"), "i32")
            | dict.fromkeys(("x_stride_t", "codes_stride_t"), "i32:16"),
            constants={"GROUPS": _QUANTIZED_GROUPS},
            chip=chip,
            num_warps=4,
            num_stages=1,
            work=Work(num_bytes=3 * _QUANTIZED_GROUPS * FP8.group),
            is_in_check=half == "bf16",
        )
    choices = [
        (half, has_bias, num_rows)
        for half in TYPE_NAMES.values()
        for has_bias in (False, True)
        for num_rows in (_FEW_ROWS, _SOME_ROWS, _MANY_ROWS)
    ]
    for half, has_bias, num_rows in choices:
        tile = _choose(chip, num_rows)
        yield Variant(
            name=f"fp8_linear_{half}{'_bias' * has_bias}_{num_rows}",
            kernel=fp8_linear_kernel,
            signature={
                **dict.fromkeys(("x", "weight"), "*fp8e4nv:16"),
                **dict.fromkeys(("x_scales", "scales"), "*fp32:16"),
                **dict.fromkeys(("bias", "out"), f"*{half}:16"),
                **dict.fromkeys(("num_rows", "num_groups", "x_scales_stride_g"), "i32"),
                **dict.fromkeys(("num_outputs", "out_stride_t"), "i32:16"),
                **dict.fromkeys(("x_stride_t", "weight_stride_o"), "i32:16"),
                "scales_stride_o": "i32",
            },
            constants={"HAS_BIAS": has_bias, **_constants(tile)},
            chip=chip,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            work=Work(
                num_bytes=4096 * (tile.block_outputs + tile.block_rows),
                flops=2 * 4096 * tile.block_outputs * tile.block_rows,
            ),
            uses_tensor_cores=True,
            tile_rows=tile.block_outputs,
            is_bound_by_memory=num_rows == _FEW_ROWS,
            is_in_check=(half, has_bias, num_rows) == ("bf16", False, _FEW_ROWS),
        )
