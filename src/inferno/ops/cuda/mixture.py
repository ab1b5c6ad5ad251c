"""Mixture of experts: two grouped products, and sums by rank.

A program multiplies a tile of one expert's rows by some of its outputs (MegaBlocks,
arXiv:2211.15841, without blocks of zeros); `routing` finds the rows. Outputs are the rows of the
tensor cores' tile and tokens its columns, of which few suffice: so any number of tokens is computed
by the same instructions, in chains of 16 inputs from the first on, and a token's bits are the same
in every batch. Packed weights go from shared memory to the tensor cores through registers, unpacked
on the way.

Shape letters as in ops, and: P choices of all tokens (T * A), M rows and N outputs of a tile, K
inputs of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.config.mixture import Activation, ClampedSwiGLU
from inferno.ops import reference
from inferno.ops.cuda.captured_graph import refuse_capture
from inferno.ops.cuda.chips import Chip, chip_of
from inferno.ops.cuda.dequantize import CHUNK, bfloat16_elements, elements, scale
from inferno.ops.cuda.packed_weights import SLOTS, CodedExperts, chunk_inputs
from inferno.ops.cuda.routing import MOST_UNSORTED, SORTED_BLOCK, order_of, rows_of_slot
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work
from inferno.ops.packed import PackedExperts
from inferno.quantization import FORMATS, MXFP4

_FEW_ROWS, _SOME_ROWS, _MANY_ROWS = 16, 64, 128
_GROUP_TILES = 16
_COMBINE_BLOCK = 1024
_MOST_SLOTS = 65535  # of rows, which CUDA's grids have at most on their second axis
# Two chunks, in every tile: the order of inputs is that of slots, so it depends on their number.
_CODED_INPUTS = {format.name: 2 * chunk_inputs(format) for format in SLOTS}


def experts(
    x_TE: Tensor,
    experts_TA: Tensor,
    weights_TA: Tensor,
    gate_up_XFE: Tensor | PackedExperts,
    down_XEF: Tensor | PackedExperts,
    *,
    activation: Activation,
    gate_up_bias_XF: Tensor | None = None,
    down_bias_XE: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    gate_up, down = _weights(gate_up_XFE, x_TE.dtype), _weights(down_XEF, x_TE.dtype)
    if gate_up is None or down is None or x_TE.dtype not in TYPE_NAMES:
        # A read that breaks a capture off leaves PyTorch's allocator in the midst of it.
        refuse_capture("experts that no kernel takes are counted by the host")
        return reference.experts(
            *(x_TE, experts_TA, weights_TA, gate_up_XFE, down_XEF),
            activation=activation,
            gate_up_bias_XF=gate_up_bias_XF,
            down_bias_XE=down_bias_XE,
            out=out,
        )
    num_tokens, num_chosen = experts_TA.shape
    num_experts, num_outputs, num_hidden = down_XEF.shape
    num_choices = num_tokens * num_chosen
    out_TE = x_TE.new_empty(x_TE.shape) if out is None else out
    if num_choices == 0:
        return out_TE.zero_()
    if x_TE.stride(1) != 1:
        x_TE = x_TE.contiguous()
    chip = chip_of(x_TE.device)
    format = gate_up.format or down.format
    num_rows = _choose_rows(chip, x_TE.dtype, num_choices, num_experts, format)
    most_choices = (_MOST_SLOTS - num_experts) * num_rows
    if num_choices > most_choices:  # 131,072 tokens in float32, with eight experts each
        step = max(1, most_choices // num_chosen)
        for first in range(0, num_tokens, step):
            some = slice(first, first + step)
            experts(
                *(x_TE[some], experts_TA[some], weights_TA[some], gate_up_XFE, down_XEF),
                activation=activation,
                gate_up_bias_XF=gate_up_bias_XF,
                down_bias_XE=down_bias_XE,
                out=out_TE[some],
            )
        return out_TE
    order = order_of(experts_TA, num_experts, num_rows)

    tile = _choose(chip, x_TE.dtype, gate_up.format, num_rows)
    hidden_PF = x_TE.new_empty(num_choices, num_hidden)
    clamped = activation if isinstance(activation, ClampedSwiGLU) else ClampedSwiGLU()
    gate_up_kernel[_grid(order.num_slots, 2 * num_hidden, tile)](
        *(x_TE, x_TE.stride(0), *order.arguments, *gate_up.arguments, gate_up_bias_XF, hidden_PF),
        *(num_choices, num_experts, num_chosen, x_TE.shape[1], num_hidden),
        *(clamped.alpha, clamped.limit),
        IS_CLAMPED=activation is clamped,
        HAS_BIAS=gate_up_bias_XF is not None,
        **order.constants,
        **_constants(tile, gate_up.format, x_TE.shape[1]),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    tile = _choose(chip, x_TE.dtype, down.format, num_rows)
    products_PE = x_TE.new_empty(num_choices, num_outputs)
    down_kernel[_grid(order.num_slots, num_outputs, tile)](
        *(hidden_PF, *order.arguments, *down.arguments, down_bias_XE, products_PE),
        *(num_choices, num_experts, num_hidden, num_outputs),
        HAS_BIAS=down_bias_XE is not None,
        **order.constants,
        **_constants(tile, down.format, num_hidden),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    combine_kernel[(num_tokens, triton.cdiv(num_outputs, _COMBINE_BLOCK))](
        *(products_PE, weights_TA.contiguous(), out_TE, out_TE.stride(0)),
        *(num_chosen, num_outputs),
        BLOCK=_COMBINE_BLOCK,
        enable_fp_fusion=False,
    )
    return out_TE


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights of all experts as kernels take them.

    format     a weight format's name where they are packed, else empty.
    arguments  values or codes, and scales (what is there, where there are none), each with its
               steps from expert to expert and from output to output.
    """

    format: str
    arguments: tuple[Tensor | int, ...]


def _weights(weight_XOI: Tensor | PackedExperts, dtype: torch.dtype) -> _Weights | None:
    """Return None for what the kernels don't take."""
    if isinstance(weight_XOI, CodedExperts):
        parts, format = (weight_XOI.codes, weight_XOI.scales), weight_XOI.format.name
    elif isinstance(weight_XOI, Tensor) and weight_XOI.dtype is dtype:
        parts, format = (weight_XOI, weight_XOI), ""
    else:
        return None
    if any(part.stride(2) != 1 for part in parts):
        return None
    return _Weights(
        format, tuple(one for part in parts for one in (part, part.stride(0), part.stride(1)))
    )


# Tiles


@dataclass(frozen=True, slots=True)
class _Tile:
    """The part of a product that a program computes: rows by outputs, so many inputs at a time."""

    rows: int
    outputs: int
    inputs: int
    num_warps: int
    num_stages: int


def _choose(chip: Chip, dtype: torch.dtype, format: str, rows: int) -> _Tile:
    """Choose for a weight's format and tiles of so many rows (`_choose_rows`).

    No choice changes a row's bits: tensor cores add up 16 inputs after the other in any tile.
    """
    inputs = _CODED_INPUTS.get(format)
    if dtype is torch.float32:  # multiplied without tensor cores
        return _Tile(rows, 32, inputs or 32, num_warps=4, num_stages=2)
    if rows == _FEW_ROWS:
        # Bound by memory: 64 outputs make hundreds of programs, of which a multiprocessor has
        # three at a time, each with more than ten kilobytes on their way.
        num_stages = 4 if chip.has_warpgroups else 3
        return _Tile(rows, 64, inputs or 128, num_warps=4, num_stages=num_stages)
    if not format:
        return _Tile(rows, 128, 64, num_warps=4 if rows == _SOME_ROWS else 8, num_stages=3)
    # Of packed weights each slot's inputs of x have buffers of their own. Four warps, or eight
    # without Hopper's larger steps, could not keep 128 outputs and their scales in registers.
    if rows == _SOME_ROWS and not chip.has_warpgroups:
        return _Tile(rows, 64, _CODED_INPUTS[format], num_warps=4, num_stages=2)
    return _Tile(rows, 128, _CODED_INPUTS[format], num_warps=8, num_stages=2)


def _choose_rows(
    chip: Chip, dtype: torch.dtype, num_choices: int, num_experts: int, format: str = ""
) -> int:
    """Choose the rows of tiles by how many an expert has on average; format: of packed weights."""
    mean = num_choices / num_experts
    if dtype is torch.float32 or mean <= _FEW_ROWS or num_choices <= MOST_UNSORTED:
        return _FEW_ROWS
    if format and not chip.has_tall_packed_tiles:
        return _FEW_ROWS
    return _SOME_ROWS if mean <= 96 or chip.shared_bytes < 128 << 10 else _MANY_ROWS


def _constants(tile: _Tile, format: str, num_inputs: int) -> dict[str, object]:
    """Return what both kernels are compiled for, besides the order of rows."""
    return {
        "FORMAT": format,
        "IS_EVEN": num_inputs % tile.inputs == 0,
        "ROWS": tile.rows,
        "OUTPUTS": tile.outputs,
        "INPUTS": tile.inputs,
    }


def _grid(num_slots: int, num_outputs: int, tile: _Tile) -> tuple[int, int, int]:
    """Return programs by tiles of outputs in a group, slots of rows, and groups.

    The first are at work at once: they share rows, and the next slots, of the same expert, share
    their weights. So both come from the L2 cache, which a group's weights of one expert fit into.
    """
    num_tiles = triton.cdiv(num_outputs, tile.outputs)
    size = min(num_tiles, _GROUP_TILES)
    return size, num_slots, triton.cdiv(num_tiles, size)


# Kernels


@triton.jit(do_not_specialize=["num_choices"])
def gate_up_kernel(
    x,
    x_stride_t,
    experts,
    order,
    bounds,
    weight,
    weight_stride_x,
    weight_stride_o,
    scales,
    scales_stride_x,
    scales_stride_o,
    bias,
    hidden,
    num_choices,
    num_experts,
    num_chosen,
    num_inputs,
    num_hidden,
    alpha,
    limit,
    IS_CLAMPED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    IS_SORTED: tl.constexpr,
    BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    IS_EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Multiply rows of x by the gates and ups of their expert, and join both.

    hidden  [P, F], in the order of experts if choices are sorted, else in the order of choices.
    """
    slot, tile = _slot_and_tile()
    expert, places_M, choices_M, is_row = rows_of_slot(
        slot, experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    if tl.max(is_row.to(tl.int32), axis=0) == 0 or tile * OUTPUTS >= 2 * num_hidden:
        return
    # Eight gates, their eight ups, and so on: a thread of a tensor core holds every eighth row of a
    # tile, so that it has both of a pair.
    half: tl.constexpr = OUTPUTS // 2
    n = tl.arange(0, OUTPUTS)
    pairs_N = tile * half + n // 16 * 8 + n % 8
    product_NM = _product(
        x + (choices_M // num_chosen).to(tl.int64) * x_stride_t,
        is_row,
        expert,
        tl.minimum(pairs_N, num_hidden - 1) + n // 8 % 2 * num_hidden,
        weight,
        weight_stride_x,
        weight_stride_o,
        scales,
        scales_stride_x,
        scales_stride_o,
        bias,
        num_inputs,
        2 * num_hidden,
        HAS_BIAS,
        FORMAT,
        IS_EVEN,
        ROWS,
        OUTPUTS,
        INPUTS,
    )
    pairs = tl.trans(tl.reshape(product_NM, (OUTPUTS // 16, 2, 8, ROWS)), (0, 2, 3, 1))
    gates, ups = tl.split(pairs)
    gated = _gated(gates, ups, alpha, limit, IS_CLAMPED, hidden.dtype.element_ty)
    gated_NM = tl.reshape(gated, (half, ROWS))
    f = tile * half + tl.arange(0, half)
    hidden_NM = hidden + places_M.to(tl.int64)[None, :] * num_hidden + f[:, None]
    tl.store(hidden_NM, gated_NM, mask=is_row[None, :] & (f < num_hidden)[:, None])


@triton.jit
def _slot_and_tile():
    """Return this program's slot of rows and tile of outputs, as `_grid` numbers them."""
    return tl.program_id(1), tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)


@triton.jit
def _gated(gate, up, alpha, limit, IS_CLAMPED: tl.constexpr, dtype: tl.constexpr):
    """Join gates and ups, rounded where the reference rounds; NaN stays NaN."""
    gate = gate.to(dtype).to(tl.float32)
    up = up.to(dtype).to(tl.float32)
    if IS_CLAMPED:
        nan: tl.constexpr = tl.PropagateNan.ALL
        gate = tl.minimum(gate, limit, propagate_nan=nan)
        up = tl.maximum(tl.minimum(up, limit, propagate_nan=nan), -limit, propagate_nan=nan)
        gated = (up + 1.0) * gate * tl.sigmoid(alpha * gate)
    else:
        gated = (gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up
    return gated.to(dtype)


@triton.jit(do_not_specialize=["num_choices"])
def down_kernel(
    hidden,
    experts,
    order,
    bounds,
    weight,
    weight_stride_x,
    weight_stride_o,
    scales,
    scales_stride_x,
    scales_stride_o,
    bias,
    products,
    num_choices,
    num_experts,
    num_inputs,
    num_outputs,
    HAS_BIAS: tl.constexpr,
    IS_SORTED: tl.constexpr,
    BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    IS_EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Multiply rows of hidden by outputs of their expert; products [P, E] are in choices' order."""
    slot, tile = _slot_and_tile()
    expert, places_M, choices_M, is_row = rows_of_slot(
        slot, experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    if tl.max(is_row.to(tl.int32), axis=0) == 0 or tile * OUTPUTS >= num_outputs:
        return
    n = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    product_NM = _product(
        hidden + places_M.to(tl.int64) * num_inputs,
        is_row,
        expert,
        tl.minimum(n, num_outputs - 1),
        weight,
        weight_stride_x,
        weight_stride_o,
        scales,
        scales_stride_x,
        scales_stride_o,
        bias,
        num_inputs,
        num_outputs,
        HAS_BIAS,
        FORMAT,
        IS_EVEN,
        ROWS,
        OUTPUTS,
        INPUTS,
    )
    products_NM = products + choices_M.to(tl.int64)[None, :] * num_outputs + n[:, None]
    is_stored = is_row[None, :] & (n < num_outputs)[:, None]
    tl.store(products_NM, product_NM.to(products.dtype.element_ty), mask=is_stored)


@triton.jit
def _product(
    x_M,
    is_row,
    expert,
    outputs_N,
    weight,
    weight_stride_x,
    weight_stride_o,
    scales,
    scales_stride_x,
    scales_stride_o,
    bias,
    num_inputs,
    num_outputs,
    HAS_BIAS: tl.constexpr,
    FORMAT: tl.constexpr,
    IS_EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Return an expert's outputs of rows of inputs, plus bias, in float32: [N, M].

    All of the outputs exist, so that loads need no mask for them.
    """
    product_NM = tl.zeros((OUTPUTS, ROWS), tl.float32)
    weight_N = weight + expert.to(tl.int64) * weight_stride_x + outputs_N * weight_stride_o
    if FORMAT == "":
        k = tl.arange(0, INPUTS)
        weight_NK = weight_N[:, None] + k[None, :]
        x_KM = x_M[None, :] + k[:, None]
        for first in range(0, num_inputs, INPUTS):
            if IS_EVEN:
                weight_tile = tl.load(weight_NK + first)
                x_tile = tl.load(x_KM + first, mask=is_row[None, :], other=0.0)
            else:
                is_input = first + k < num_inputs
                weight_tile = tl.load(weight_NK + first, mask=is_input[None, :], other=0.0)
                is_loaded = is_row[None, :] & is_input[:, None]
                x_tile = tl.load(x_KM + first, mask=is_loaded, other=0.0)
            product_NM = tl.dot(weight_tile, x_tile, product_NM, input_precision="ieee")
    else:
        # Inputs of a step: one slot of two chunks at a time, which is two steps of a tensor core.
        j = tl.arange(0, 2 * CHUNK)
        c = tl.arange(0, 2)
        chunk_inputs: tl.constexpr = INPUTS // 2
        slots: tl.constexpr = chunk_inputs // CHUNK
        # A chunk's scales are E8M0, of one byte, or bfloat16; in FP8 two chunks have one.
        scale_words: tl.constexpr = 2 if FORMAT == "int4" else 1
        chunks_of_word: tl.constexpr = 2 if FORMAT == "fp8" else 1
        words_NJ = weight_N[:, None] + j[None, :]
        scales_N = scales + expert.to(tl.int64) * scales_stride_x + outputs_N * scales_stride_o
        scales_NC = scales_N[:, None] + c[None, :] // chunks_of_word * scale_words
        inputs_J = j // CHUNK * chunk_inputs + j % CHUNK
        x_JM = x_M[None, :] + inputs_J[:, None]
        for first in range(0, num_inputs, INPUTS):
            chunk = first // chunk_inputs
            if IS_EVEN:
                words = tl.load(words_NJ + chunk * CHUNK)
            else:
                num_left = num_inputs - first
                is_word = (j // CHUNK * chunk_inputs < num_left)[None, :]
                words = tl.load(words_NJ + chunk * CHUNK, mask=is_word, other=0)
            for slot in tl.static_range(slots):
                if slot == 0:
                    scales_at = scales_NC + chunk // chunks_of_word * scale_words
                elif slot == slots // scale_words:
                    scales_at = scales_NC + chunk * scale_words + 1
                if slot == 0 or slot == slots // scale_words:
                    if IS_EVEN:
                        word_NC = tl.load(scales_at)
                    else:
                        is_chunk = (c * chunk_inputs < num_left)[None, :]
                        word_NC = tl.load(scales_at, mask=is_chunk, other=0)
                x_at = x_JM + first + slot * CHUNK
                if IS_EVEN:
                    x_tile = tl.load(x_at, mask=is_row[None, :], other=0.0)
                else:
                    is_input = (inputs_J + slot * CHUNK < num_left)[:, None]
                    x_tile = tl.load(x_at, mask=is_row[None, :] & is_input, other=0.0)
                values = _values(words, word_NC, slot, FORMAT, OUTPUTS, x_M.dtype.element_ty)
                product_NM = tl.dot(values, x_tile, product_NM, input_precision="ieee")
    if HAS_BIAS:
        bias_N = tl.load(bias + expert * num_outputs + outputs_N)
        product_NM += bias_N[:, None].to(tl.float32)
    return product_NM


@triton.jit
def _values(
    words_NJ,
    scales_NC,
    SLOT: tl.constexpr,
    FORMAT: tl.constexpr,
    OUTPUTS: tl.constexpr,
    dtype: tl.constexpr,
):
    """Return the values in one slot of two chunks' words, rounded to a type of activations."""
    scale_NC = scale(scales_NC, SLOT // 2, FORMAT)
    # Scales are bfloat16 or powers of two, but for FP8's: its values are rounded once, when scaled.
    is_bfloat16: tl.constexpr = dtype == tl.bfloat16 and FORMAT != "fp8"
    if is_bfloat16:
        scale_NC = scale_NC.to(dtype)
    scale_NCJ = tl.broadcast_to(scale_NC[:, :, None], (OUTPUTS, 2, CHUNK))
    scale_NJ = tl.reshape(scale_NCJ, (OUTPUTS, 2 * CHUNK))
    if is_bfloat16:
        values_NJ = bfloat16_elements(words_NJ, SLOT, FORMAT) * scale_NJ
    else:
        values_NJ = (elements(words_NJ, SLOT, FORMAT) * scale_NJ).to(dtype)
    return values_NJ


@triton.jit
def combine_kernel(
    products, weights, out, out_stride_t, num_chosen, num_outputs, BLOCK: tl.constexpr
):
    """Sum a token's products by their weights in float32, from rank 0 on."""
    token = tl.program_id(0).to(tl.int64)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_output = e < num_outputs
    sum_E = tl.zeros((BLOCK,), tl.float32)
    for choice in range(token * num_chosen, (token + 1) * num_chosen):
        product_E = tl.load(products + choice * num_outputs + e, mask=is_output, other=0.0)
        sum_E += product_E.to(tl.float32) * tl.load(weights + choice)
    tl.store(out + token * out_stride_t + e, sum_E.to(out.dtype.element_ty), mask=is_output)


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the kernels for every type, format, tile and order, and combine's for every type.

    Experts have SwiGLU without biases or the clamped one with them: no model has other pairs.
    """
    for dtype, letters in TYPE_NAMES.items():
        every_rows = (_FEW_ROWS,) if dtype is torch.float32 else (_FEW_ROWS, _SOME_ROWS, _MANY_ROWS)
        kinds = product(("", *_CODED_INPUTS), every_rows, (True, False), (True, False))
        for format, rows, is_even, is_sorted in kinds:
            most_rows = _choose_rows(chip, dtype, 1 << 20, 1, format)
            if rows <= most_rows and (is_sorted or rows == _FEW_ROWS):
                for is_clamped in (False, True):
                    given = (chip, dtype, letters, format, rows, is_even, is_sorted, is_clamped)
                    yield from _of_kind(*given)
        yield Variant(
            name=f"combine {letters}",
            kernel=combine_kernel,
            signature=dict.fromkeys(("products", "out"), f"*{letters}:16")
            | {"weights": "*fp32:16", "num_chosen": "i32"}
            | dict.fromkeys(("out_stride_t", "num_outputs"), "i32:16"),
            constants={"BLOCK": _COMBINE_BLOCK},
            chip=chip,
            num_warps=4,
            num_stages=3,
            work=Work(num_bytes=5 * _COMBINE_BLOCK * dtype.itemsize),
            is_bound_by_memory=True,
            is_in_check=letters == "bf16",
            has_fused_multiply_add=False,
        )


def _of_kind(
    chip: Chip,
    dtype: torch.dtype,
    letters: str,
    format: str,
    rows: int,
    is_even: bool,
    is_sorted: bool,
    is_clamped: bool,
) -> Iterator[Variant]:
    tile = _choose(chip, dtype, format, rows)
    num_inputs = 16 * tile.inputs - (0 if is_even else 16)
    floats, strides = f"*{letters}:16", ("weight_stride_x", "weight_stride_o")
    order = "*i32:16" if is_sorted else "*i64:16"
    signature = (
        {"experts": "*i64:16", "order": order, "bounds": order}
        | ({"bias": floats} if is_clamped else {})
        | {"weight": "*i32:16" if format else floats, "scales": "*i32:16" if format else floats}
        | dict.fromkeys((*strides, "num_inputs"), "i32:16")
        | dict.fromkeys(("scales_stride_x", "scales_stride_o", "num_choices", "num_experts"), "i32")
    )
    of_gate_up = {"x": floats, "hidden": floats, "x_stride_t": "i32:16", "num_chosen": "i32"}
    of_gate_up |= {"num_hidden": "i32:16", "alpha": "fp32", "limit": "fp32"}
    of_down = {"hidden": floats, "products": floats, "num_outputs": "i32:16"}
    constants = _constants(tile, format, num_inputs) | {"HAS_BIAS": is_clamped}
    constants |= {} if is_clamped else {"bias": None}
    constants |= {"IS_SORTED": is_sorted, "BLOCK": SORTED_BLOCK if is_sorted else MOST_UNSORTED}
    words = [f"{rows} rows", "even" if is_even else "odd", "sorted" if is_sorted else "unsorted"]
    words += ["clamped"] if is_clamped else []
    bits = FORMATS[format].bits if format else 8 * dtype.itemsize
    num_bytes = num_inputs * (tile.outputs * bits / 8 + rows * dtype.itemsize)
    for name, kernel, more, special in (
        ("gate_up", gate_up_kernel, of_gate_up, {"IS_CLAMPED": is_clamped}),
        ("down", down_kernel, of_down, {}),
    ):
        yield Variant(
            name=" ".join((f"experts {name}", letters, format or "floats", *words)),
            kernel=kernel,
            signature=signature | more,
            constants=constants | special,
            chip=chip,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            work=Work(num_bytes, flops=2 * num_inputs * tile.outputs * rows),
            uses_tensor_cores=dtype is not torch.float32,
            tile_rows=tile.outputs,
            # Of packed weights half of all loads are of x, eight bytes each, from the L2 cache.
            is_bound_by_memory=rows == _FEW_ROWS and not format and dtype is not torch.float32,
            is_in_check=(letters, format) == ("bf16", MXFP4.name)
            and words == ["16 rows", "odd", "unsorted", "clamped"],
        )
