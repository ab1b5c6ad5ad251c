"""Matrix products with weights in any format, plain or gated.

Few rows: `split_linear_kernel`. Such a product is bound by reading the weight, so all of a GPU's
multiprocessors must have many bytes on their way, also where there are few outputs. A program makes
16 outputs; each of its warps takes every eighth chunk of their inputs, and the warps' sums are
added up last, always in one order. Tensor cores multiply, since 16 rows then cost what one does.

Many rows: `tiled_linear_kernel`, for packed weights; plain ones go to cuBLAS. A program makes a
tile of outputs by rows, and takes all inputs one slot after the other: codes become the tensor
cores' first operand in registers, and never lie in memory as floats. Programs are numbered so that
those at work at once share rows and outputs, which stay in the L2 cache.

What a row's sum is made of, and in which order, is a function of the weight alone for up to
SPLIT_ROWS rows, whatever their number: a chunk's groups one after the other, chunks by warps, then
warps in pairs. Groups are scaled after they are summed; in tiles weights are scaled before.

Weights that are `is_invariant` meet any number of rows in tiles, plain ones too. A tile's inputs go
to one kind of tensor core instruction, 16 after the other from the first on, whatever its rows and
outputs: which tile is chosen changes no bit. There the gated product is never made in two steps.

Shape letters: T tokens, I input and O output features, F outputs of a gated product, J words of
codes and S of scales of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda import fp8_products
from inferno.ops.cuda.chips import Chip, chip_of
from inferno.ops.cuda.dequantize import CHUNK, bfloat16_elements, elements, format_constants, scale
from inferno.ops.cuda.elementwise import silu_mul
from inferno.ops.cuda.fp8_products import ROW_TILES
from inferno.ops.cuda.packed_weights import (
    CHUNK_WORDS,
    SLOTS,
    CodedWeight,
    InvariantFloats,
    chunk_inputs,
    formats_of,
)
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work
from inferno.ops.packed import PackedWeight, RowRanges
from inferno.ops.reference.stored import UnpackedWeight
from inferno.quantization import MXFP4, WeightFormat

SPLIT_ROWS = 16  # at most, of the kernel that splits the inputs
_SPLITS = 8  # warps of a program of it, each of which takes its share of the inputs
_FLOAT_CHUNK = 4 * CHUNK_WORDS  # inputs that a warp takes at once, of a plain weight
# At most, of a gated product in tiles: gates and ups must both stay in registers. Of more rows the
# two are written, and joined by another kernel; that is little beside so many products.
_GATED_ROWS = 64
_HALVES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def linear(
    x_TI: Tensor,
    weight_OI: Tensor | PackedWeight,
    bias_O: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    num_rows, num_outputs = len(x_TI), weight_OI.shape[0]
    if isinstance(weight_OI, UnpackedWeight):
        weight_OI = weight_OI.values
    if isinstance(weight_OI, CodedWeight) and weight_OI.rounds_inputs and x_TI.dtype in TYPE_NAMES:
        return fp8_products.linear(_rows(x_TI), weight_OI, bias_O, out)
    if x_TI.dtype not in _HALVES:
        return reference.linear(x_TI, weight_OI, bias_O, out=out)
    out_TO = x_TI.new_empty((num_rows, num_outputs)) if out is None else out
    if isinstance(weight_OI, RowRanges):
        for part, outputs in zip(weight_OI.parts, weight_OI.rows(), strict=True):
            part_bias_O = None if bias_O is None else bias_O[outputs]
            linear(x_TI, part, part_bias_O, out=out_TO[:, outputs])
        return out_TO
    x_TI = _rows(x_TI)
    if _is_ours(x_TI, weight_OI, out_TO):
        _launch(x_TI, weight_OI, bias_O, out_TO, is_gated=False)
        return out_TO
    if isinstance(weight_OI, Tensor) and out is not None and x_TI.is_cuda:
        return _float32_product(x_TI, weight_OI, bias_O, out)
    return reference.linear(x_TI, weight_OI, bias_O, out=out)


def gated_linear(
    x_TI: Tensor, weight_OI: Tensor | PackedWeight, bias_O: Tensor | None = None
) -> Tensor:
    rounds_inputs = isinstance(weight_OI, CodedWeight) and weight_OI.rounds_inputs
    if x_TI.dtype not in _HALVES and not rounds_inputs:
        return reference.gated_linear(x_TI, weight_OI, bias_O)
    x_TI = _rows(x_TI)
    out_TF = x_TI.new_empty((len(x_TI), weight_OI.shape[0] // 2))
    is_two_steps = len(x_TI) > _GATED_ROWS and not _is_invariant(weight_OI)
    if is_two_steps or not _is_ours(x_TI, weight_OI, out_TF):
        return silu_mul(linear(x_TI, weight_OI, bias_O))
    _launch(x_TI, weight_OI, bias_O, out_TF, is_gated=True)
    return out_TF


def _rows(x_TI: Tensor) -> Tensor:
    """Return the rows with their values side by side."""
    return x_TI if x_TI.stride(-1) == 1 else x_TI.contiguous()


def _is_invariant(weight_OI: Tensor | PackedWeight) -> bool:
    """Say whether a row's bits must not depend on the number of rows."""
    if isinstance(weight_OI, CodedWeight):
        return weight_OI.is_invariant
    return isinstance(weight_OI, InvariantFloats)


def _is_ours(x_TI: Tensor, weight_OI: Tensor | PackedWeight, out_TO: Tensor) -> bool:
    """Say whether kernels of this file make a product; cuBLAS makes plain ones of many rows."""
    if out_TO.stride(-1) != 1:
        return False
    if isinstance(weight_OI, Tensor):
        is_plain = weight_OI.dtype == x_TI.dtype and weight_OI.stride(-1) == 1
        return is_plain and len(x_TI) <= SPLIT_ROWS
    if isinstance(weight_OI, InvariantFloats):
        return True
    return isinstance(weight_OI, CodedWeight) and not weight_OI.rounds_inputs


def _float32_product(
    x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, out_TO: Tensor
) -> Tensor:
    """Have cuBLAS make a product, which it does not round before it is in the result's dtype."""
    if out_TO.dtype != torch.float32 or weight_OI.dtype != x_TI.dtype:
        return reference.linear(x_TI, weight_OI, bias_O, out=out_TO)
    product_TO = torch.mm(x_TI, weight_OI.t(), out_dtype=torch.float32)
    return out_TO.copy_(product_TO if bias_O is None else product_TO + bias_O)


@dataclass(frozen=True, slots=True)
class _Split:
    """A configuration of split_linear_kernel: the tile, and how many steps are on their way."""

    block_outputs: int
    block_rows: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class _Tile:
    """A configuration of tiled_linear_kernel."""

    block_outputs: int
    block_rows: int
    num_warps: int
    num_stages: int


def _choose_split(
    chip: Chip, format: WeightFormat | None, num_rows: int, *, is_gated: bool
) -> _Split:
    """Choose for so many rows; format: None for plain weights.

    The order of sums depends on none of it. Two programs should fit into a multiprocessor's shared
    memory, so that one loads while the other multiplies, with as many steps each as fit then.
    """
    block_outputs, block_rows = 16, 8 if num_rows <= 8 else SPLIT_ROWS
    inputs = _SPLITS * (_FLOAT_CHUNK if format is None else chunk_inputs(format))
    bits = 16.0 if format is None else format.bits
    step_bytes = inputs * (block_outputs * (1 + is_gated) * bits / 8 + 2 * block_rows)
    fitting = [n for n in (5, 4, 3) if 2 * (n - 1) * step_bytes <= chip.shared_bytes]
    return _Split(block_outputs, block_rows, fitting[0] if fitting else 2)


def _choose_tile(chip: Chip, num_rows: int, *, is_gated: bool, is_packed: bool) -> _Tile:
    """Choose for so many rows: few of them leave fewer tiles, which had better be small then.

    Of 64 outputs at least: the tensor cores of every chip then have one instruction for all tiles.
    """
    if num_rows <= SPLIT_ROWS:
        # Bound by reading the weight: as many steps on their way as leave room for two programs.
        return _Tile(64, SPLIT_ROWS, 4, 5 if chip.shared_bytes > 100 << 10 else 4)
    if num_rows <= 32 or (is_packed and not chip.has_tall_packed_tiles):
        return _Tile(64, 32, 4, 3)
    if is_gated and not chip.has_warpgroups:
        # A warp keeps its operands in registers too: four warps have too few for 64 outputs, and
        # of eight, each of which takes 16 outputs, four would repeat what the others compute.
        return _Tile(128, _GATED_ROWS, 8, 3)
    if num_rows <= _GATED_ROWS or is_gated:
        return _Tile(64, _GATED_ROWS, 4, 3)
    return _Tile(128, 128, 8, 3 if chip.shared_bytes > 100 << 10 else 2)


def _launch(
    x_TI: Tensor,
    weight_OI: Tensor | PackedWeight,
    bias_O: Tensor | None,
    out_TO: Tensor,
    *,
    is_gated: bool,
) -> None:
    (num_rows, num_inputs), num_outputs = x_TI.shape, out_TO.shape[1]
    if num_rows == 0 or num_outputs == 0:
        return
    chip = chip_of(x_TI.device)
    if isinstance(weight_OI, CodedWeight):
        format: WeightFormat | None = weight_OI.format
        codes, scales = weight_OI.codes, weight_OI.scales
        num_chunks = -(-num_inputs // chunk_inputs(weight_OI.format))
    else:
        values_OI = weight_OI.values if isinstance(weight_OI, InvariantFloats) else weight_OI
        assert isinstance(values_OI, Tensor)
        format, codes, scales = None, values_OI, values_OI
        num_chunks = -(-num_inputs // _FLOAT_CHUNK)
    arguments = (
        *(x_TI, codes, scales, x_TI if bias_O is None else bias_O, out_TO),
        *(num_rows, num_outputs, num_inputs, num_chunks),
        *(x_TI.stride(0), codes.stride(0), scales.stride(0), out_TO.stride(0)),
    )
    flags = {"IS_GATED": is_gated, "HAS_BIAS": bias_O is not None}
    is_invariant = _is_invariant(weight_OI)
    if num_rows <= SPLIT_ROWS and not is_invariant:
        split = _choose_split(chip, format, num_rows, is_gated=is_gated)
        split_linear_kernel[(-(-num_outputs // split.block_outputs),)](
            *arguments,
            **flags,
            **_split_constants(format, split),
            num_warps=_SPLITS,
            num_stages=split.num_stages,
        )
        return
    assert format is not None or is_invariant, "cuBLAS makes plain products of many rows"
    tile = _choose_tile(chip, num_rows, is_gated=is_gated, is_packed=format is not None)
    num_row_tiles = triton.cdiv(num_rows, tile.block_rows)
    in_group = min(num_row_tiles, ROW_TILES)
    num_output_tiles = triton.cdiv(num_outputs, tile.block_outputs)
    grid = (in_group, num_output_tiles, triton.cdiv(num_row_tiles, in_group))
    tiled_linear_kernel[grid](
        *arguments,
        **flags,
        **_tile_constants(format, tile),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


def _format_constants(format: WeightFormat | None) -> dict[str, object]:
    no_codes: dict[str, object] = {"FORMAT": "float", "SLOTS": 0, "GROUPS_PER_WORD": 0}
    return no_codes if format is None else format_constants(format)


def _split_constants(format: WeightFormat | None, split: _Split) -> dict[str, object]:
    return {
        **_format_constants(format),
        "SPLITS": _SPLITS,
        "BLOCK_O": split.block_outputs,
        "BLOCK_T": split.block_rows,
        "STAGES": split.num_stages,
    }


def _tile_constants(format: WeightFormat | None, tile: _Tile) -> dict[str, object]:
    return {
        **_format_constants(format),
        "BLOCK_O": tile.block_outputs,
        "BLOCK_T": tile.block_rows,
    }


@triton.jit(do_not_specialize=["num_rows"])
def split_linear_kernel(
    x,
    weight,
    scales,
    bias,
    out,
    num_rows,
    num_outputs,
    num_inputs,
    num_chunks,
    x_stride_t,
    weight_stride_o,
    scales_stride_o,
    out_stride_t,
    FORMAT: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS_PER_WORD: tl.constexpr,
    IS_GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_T: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute BLOCK_O outputs of BLOCK_T rows; SPLITS warps share the inputs.

    FORMAT  "float" or the name of a packed one; a chunk of floats is 4 * CHUNK of them.
    Where the product is gated, num_outputs counts outputs of the result, and as many rows of ups
    follow.
    """
    rows = tl.arange(0, BLOCK_T)
    outputs = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    split = tl.arange(0, SPLITS)[:, None, None]
    is_row = rows < num_rows
    # Outputs beyond the last are made of the last one's weights, and not stored.
    weight_rows = tl.minimum(outputs, num_outputs - 1).to(tl.int64)[None, :, None]
    x_rows = x + rows.to(tl.int64)[None, None, :] * x_stride_t
    total = tl.zeros((SPLITS, BLOCK_O, BLOCK_T), tl.float32)
    total_up = total
    # Named here, the number of stages holds for loads too that no product takes: for scales.
    for first in tl.range(0, num_chunks, SPLITS, num_stages=STAGES):
        chunk = first + split
        if FORMAT == "float":
            inputs = chunk * (4 * CHUNK) + tl.arange(0, 4 * CHUNK)[None, None, :]
            at = weight + weight_rows * weight_stride_o + inputs
            is_input = inputs < num_inputs
            tile = tl.load(at, mask=is_input, other=0.0)
            x_inputs = chunk * (4 * CHUNK) + tl.arange(0, 4 * CHUNK)[None, :, None]
            x_mask = (x_inputs < num_inputs) & is_row[None, None, :]
            x_tile = tl.load(x_rows + x_inputs, mask=x_mask, other=0.0)
            total = tl.dot(tile, x_tile, total)
            if IS_GATED:
                up_at = at + tl.cast(num_outputs, tl.int64) * weight_stride_o
                total_up = tl.dot(tl.load(up_at, mask=is_input, other=0.0), x_tile, total_up)
        else:
            # Beyond the last chunk it is read again: the zeros that meet it there add nothing.
            read = tl.minimum(chunk, num_chunks - 1)
            in_chunk = read * CHUNK + tl.arange(0, CHUNK)[None, None, :]
            at = weight + weight_rows * weight_stride_o + in_chunk
            words = tl.load(at)
            scales_at = scales + weight_rows * scales_stride_o
            scales_at += read * (SLOTS // 2) // GROUPS_PER_WORD
            if IS_GATED:
                up_words = tl.load(at + tl.cast(num_outputs, tl.int64) * weight_stride_o)
                up_scales_at = scales_at + tl.cast(num_outputs, tl.int64) * scales_stride_o
            for group in tl.static_range(SLOTS // 2):
                x_inputs = (chunk * SLOTS + 2 * group) * CHUNK + tl.arange(0, CHUNK)[None, :, None]
                x_mask = (x_inputs < num_inputs) & is_row[None, None, :]
                x_low = tl.load(x_rows + x_inputs, mask=x_mask, other=0.0)
                x_mask = (x_inputs < num_inputs - CHUNK) & is_row[None, None, :]
                x_high = tl.load(x_rows + x_inputs + CHUNK, mask=x_mask, other=0.0)
                if group % GROUPS_PER_WORD == 0:
                    word = tl.load(scales_at + group // GROUPS_PER_WORD)
                total = _add_group(total, words, word, x_low, x_high, group, FORMAT)
                if IS_GATED:
                    if group % GROUPS_PER_WORD == 0:
                        up_word = tl.load(up_scales_at + group // GROUPS_PER_WORD)
                    total_up = _add_group(total_up, up_words, up_word, x_low, x_high, group, FORMAT)
    result = _sum_of_splits(total, SPLITS, BLOCK_O, BLOCK_T)
    mask = (outputs < num_outputs)[:, None] & is_row[None, :]
    if HAS_BIAS:
        result += tl.load(bias + weight_rows.reshape(BLOCK_O))[:, None].to(tl.float32)
    if IS_GATED:
        up = _sum_of_splits(total_up, SPLITS, BLOCK_O, BLOCK_T)
        if HAS_BIAS:
            up += tl.load(bias + num_outputs + weight_rows.reshape(BLOCK_O))[:, None].to(tl.float32)
        result = result * tl.sigmoid(result) * up
    out_at = out + rows.to(tl.int64)[None, :] * out_stride_t + outputs[:, None]
    tl.store(out_at, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_group(total, words, scale_word, x_low, x_high, GROUP: tl.constexpr, FORMAT: tl.constexpr):
    """Add the products of a group: of the two slots that share a scale."""
    if x_low.dtype == tl.bfloat16:
        low = bfloat16_elements(words, 2 * GROUP, FORMAT)
        high = bfloat16_elements(words, 2 * GROUP + 1, FORMAT)
    else:
        low = elements(words, 2 * GROUP, FORMAT).to(x_low.dtype)
        high = elements(words, 2 * GROUP + 1, FORMAT).to(x_high.dtype)
    products = tl.dot(high, x_high, tl.dot(low, x_low))
    return total + products * scale(scale_word, GROUP, FORMAT)


@triton.jit
def _sum_of_splits(total, SPLITS: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_T: tl.constexpr):
    """Add up what the warps have: [SPLITS, BLOCK_O, BLOCK_T] -> [BLOCK_O, BLOCK_T], in pairs.

    tl.sum would choose its order by the shape of the tile.
    """
    total = tl.permute(total, (1, 2, 0))
    tl.static_assert(SPLITS == 8)
    for halving in tl.static_range(3):
        pairs = tl.reshape(total, (BLOCK_O, BLOCK_T, 4 >> halving, 2))
        even, odd = tl.split(pairs)
        total = even + odd
    return tl.reshape(total, (BLOCK_O, BLOCK_T))


@triton.jit(do_not_specialize=["num_rows"])
def tiled_linear_kernel(
    x,
    weight,
    scales,
    bias,
    out,
    num_rows,
    num_outputs,
    num_inputs,
    num_chunks,
    x_stride_t,
    weight_stride_o,
    scales_stride_o,
    out_stride_t,
    FORMAT: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS_PER_WORD: tl.constexpr,
    IS_GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Compute a tile of BLOCK_O outputs of BLOCK_T rows; arguments as in split_linear_kernel.

    The products are added up in the order of inputs, at most 16 at a time.
    """
    # A few tiles of rows for each tile of outputs, then the next few: the first axis goes fastest.
    row_tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    rows = row_tile * BLOCK_T + tl.arange(0, BLOCK_T)
    outputs = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    is_row = rows < num_rows
    weight_rows = tl.minimum(outputs, num_outputs - 1)
    in_chunk = tl.arange(0, CHUNK)
    x_at = x + rows.to(tl.int64)[None, :] * x_stride_t + in_chunk[:, None]
    at = weight + weight_rows.to(tl.int64)[:, None] * weight_stride_o + in_chunk[None, :]
    scales_at = scales + weight_rows.to(tl.int64) * scales_stride_o
    up_at = at + tl.cast(num_outputs, tl.int64) * weight_stride_o
    up_scales_at = scales_at + tl.cast(num_outputs, tl.int64) * scales_stride_o
    total = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    total_up = total
    for chunk in tl.range(0, num_chunks):
        if FORMAT == "float":
            inputs = chunk * (4 * CHUNK) + tl.arange(0, 4 * CHUNK)
            is_input = inputs < num_inputs
            values_at = (
                weight + weight_rows.to(tl.int64)[:, None] * weight_stride_o + inputs[None, :]
            )
            rows_at = x + rows.to(tl.int64)[None, :] * x_stride_t + inputs[:, None]
            x_tile = tl.load(rows_at, mask=is_row[None, :] & is_input[:, None], other=0.0)
            tile = tl.load(values_at, mask=is_input[None, :], other=0.0)
            total = tl.dot(tile, x_tile, total)
            if IS_GATED:
                ups_at = values_at + tl.cast(num_outputs, tl.int64) * weight_stride_o
                up_tile = tl.load(ups_at, mask=is_input[None, :], other=0.0)
                total_up = tl.dot(up_tile, x_tile, total_up)
        else:
            words = tl.load(at + chunk * CHUNK)
            if IS_GATED:
                up_words = tl.load(up_at + chunk * CHUNK)
            for slot in tl.static_range(SLOTS):
                if slot % (2 * GROUPS_PER_WORD) == 0:
                    word_index = (chunk * SLOTS + slot) // (2 * GROUPS_PER_WORD)
                    word = tl.load(scales_at + word_index)
                    if IS_GATED:
                        up_word = tl.load(up_scales_at + word_index)
                first = (chunk * SLOTS + slot) * CHUNK
                is_input = first + in_chunk < num_inputs
                x_mask = is_row[None, :] & is_input[:, None]
                x_tile = tl.load(x_at + first, mask=x_mask, other=0.0)
                total = _add_slot(total, words, word, x_tile, slot, FORMAT)
                if IS_GATED:
                    total_up = _add_slot(total_up, up_words, up_word, x_tile, slot, FORMAT)
    if HAS_BIAS:
        total += tl.load(bias + weight_rows)[:, None].to(tl.float32)
    if IS_GATED:
        if HAS_BIAS:
            total_up += tl.load(bias + num_outputs + weight_rows)[:, None].to(tl.float32)
        total = total * tl.sigmoid(total) * total_up
    mask = (outputs < num_outputs)[:, None] & is_row[None, :]
    out_at = out + rows.to(tl.int64)[None, :] * out_stride_t + outputs[:, None]
    tl.store(out_at, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_slot(total, words, scale_word, x_tile, SLOT: tl.constexpr, FORMAT: tl.constexpr):
    """Add the products of a slot, whose weights are scaled first: their rows are far more."""
    scales = scale(scale_word, SLOT // 2, FORMAT)[:, None]
    values = elements(words, SLOT, FORMAT) * scales
    return tl.dot(values.to(x_tile.dtype), x_tile, total)


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield every kernel of this file in every configuration that is launched on a chip.

    Only logits are float32, of a head without bias, which isn't in all formats.
    """
    formats, of_heads = (None, *SLOTS), (None, *formats_of("lm_head"))
    choices = [
        (format, half, is_gated, has_bias, half)
        for format in formats
        for half in _HALVES.values()
        for is_gated in (False, True)
        for has_bias in (False, True)
    ]
    choices += [
        (format, half, False, False, "fp32") for format in of_heads for half in _HALVES.values()
    ]
    for format, half, is_gated, has_bias, out in choices:
        flags = {"IS_GATED": is_gated, "HAS_BIAS": has_bias}
        signature = _signature(format, half, out)
        name = f"{format or 'float'}_{half}_{out}{'_gated' * is_gated}{'_bias' * has_bias}"
        is_plain = (half, out, is_gated, has_bias) == ("bf16", "bf16", False, False)
        for num_rows in (1, SPLIT_ROWS):
            split = _choose_split(chip, format, num_rows, is_gated=is_gated)
            yield Variant(
                name=f"split_linear_{name}_{split.block_rows}",
                kernel=split_linear_kernel,
                signature=signature,
                constants={**flags, **_split_constants(format, split)},
                chip=chip,
                num_warps=_SPLITS,
                num_stages=split.num_stages,
                work=_work(format, split.block_outputs * (1 + is_gated), split.block_rows),
                uses_tensor_cores=True,
                tile_rows=split.block_outputs,
                is_bound_by_memory=True,
                is_in_check=is_plain and num_rows == 1 and format is None,
            )
        every_rows = (SPLIT_ROWS, 32, _GATED_ROWS, *(() if is_gated else (2 * _GATED_ROWS,)))
        tiles = [
            _choose_tile(chip, num_rows, is_gated=is_gated, is_packed=format is not None)
            for num_rows in every_rows
        ]
        for tile in dict.fromkeys(tiles):
            yield Variant(
                name=f"tiled_linear_{name}_{tile.block_rows}",
                kernel=tiled_linear_kernel,
                signature=signature,
                constants={**flags, **_tile_constants(format, tile)},
                chip=chip,
                num_warps=tile.num_warps,
                num_stages=tile.num_stages,
                work=_work(format, tile.block_outputs * (1 + is_gated), tile.block_rows),
                uses_tensor_cores=True,
                tile_rows=tile.block_outputs,
                is_in_check=is_plain and tile == tiles[-1] and format in (None, MXFP4),
            )


def _signature(format: WeightFormat | None, half: str, out: str) -> dict[str, str]:
    weight = f"*{half}:16" if format is None else "*i32:16"
    pointers = {"x": f"*{half}:16", "weight": weight, "scales": weight, "bias": f"*{half}:16"}
    sizes = dict.fromkeys(("num_outputs", "num_inputs", "x_stride_t", "out_stride_t"), "i32:16")
    others = dict.fromkeys(("num_rows", "num_chunks", "scales_stride_o"), "i32")
    return {**pointers, "out": f"*{out}:16", **sizes, **others, "weight_stride_o": "i32:16"}


def _work(format: WeightFormat | None, num_outputs: int, num_rows: int) -> Work:
    """Estimate a program's work, of 4096 inputs."""
    num_inputs, bits = 4096, 16 if format is None else format.bits
    return Work(
        num_bytes=num_inputs * (num_outputs * bits / 8 + num_rows * 2),
        flops=2 * num_inputs * num_outputs * num_rows,
    )
