"""Mixture of experts: two grouped products, and sums by rank.

A program multiplies a tile of one expert's rows by some of its outputs (MegaBlocks, arXiv:2211.15841,
without blocks of zeros); `routing` finds the rows. Outputs are the rows of the tensor cores' tile and
tokens its columns, of which few suffice: so every number of tokens is computed by the same
instructions, in chains of 16 inputs from the first on, and a token's bits are the same in every
batch. Packed weights go from memory to the tensor cores through registers, unpacked on the way.

Shape letters as in ops, and: P choices of all tokens (T * A), M rows and N outputs of a tile, K
inputs of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.config.mixture import Activation, ClampedSwiGLU
from inferno.ops import reference
from inferno.ops.cuda.chips import Chip, chip_of
from inferno.ops.cuda.dequantize import CHUNK, elements, scale
from inferno.ops.cuda.packed_weights import SLOTS, CodedExperts, chunk_inputs
from inferno.ops.cuda.routing import Order, order_of, rows_of_slot
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work
from inferno.ops.packed import PackedExperts

_COMBINE_BLOCK = 1024
_CHUNK_INPUTS = {format.name: chunk_inputs(format) for format in SLOTS}


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
    tile = _choose(chip, x_TE.dtype, gate_up.format, num_choices, num_experts)
    order = order_of(experts_TA, num_experts, tile.rows)

    hidden_PF = x_TE.new_empty(num_choices, num_hidden)
    is_clamped = isinstance(activation, ClampedSwiGLU)
    gate_up_kernel[(order.num_slots, triton.cdiv(2 * num_hidden, tile.outputs))](
        *(x_TE, x_TE.stride(0), *order.arguments, *gate_up.arguments, gate_up_bias_XF, hidden_PF),
        *(num_choices, num_experts, num_chosen, x_TE.shape[1], num_hidden),
        *((activation.alpha, activation.limit) if is_clamped else (0.0, 0.0)),
        IS_CLAMPED=is_clamped,
        HAS_BIAS=gate_up_bias_XF is not None,
        **_constants(tile, order, gate_up.format, x_TE.shape[1]),
    )
    tile = _choose(chip, x_TE.dtype, down.format, num_choices, num_experts)
    products_PE = x_TE.new_empty(num_choices, num_outputs)
    down_kernel[(order.num_slots, triton.cdiv(num_outputs, tile.outputs))](
        *(hidden_PF, *order.arguments, *down.arguments, down_bias_XE, products_PE),
        *(num_choices, num_experts, num_hidden, num_outputs),
        HAS_BIAS=down_bias_XE is not None,
        **_constants(tile, order, down.format, num_hidden),
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


def _choose(
    chip: Chip, dtype: torch.dtype, format: str, num_choices: int, num_experts: int
) -> _Tile:
    """Choose by the rows that an expert has on average; neither choice changes a row's bits."""
    mean = num_choices / num_experts
    chunk = _CHUNK_INPUTS.get(format)
    if dtype is torch.float32:  # multiplied without tensor cores
        return _Tile(16, 32, chunk or 32, num_warps=4, num_stages=2)
    has_much_memory = chip.shared_bytes > 128 << 10
    if mean <= 16 or num_choices <= 64:
        # Bound by memory: 64 outputs make hundreds of programs, of which a multiprocessor has
        # several at a time, each with a few kilobytes on their way.
        return _Tile(16, 64, chunk or 128, num_warps=4, num_stages=5 if format else 3)
    if mean <= 96:
        return _Tile(64, 128, chunk or 64, num_warps=4, num_stages=3)
    return _Tile(128, 128, chunk or 64, num_warps=8, num_stages=4 if has_much_memory else 2)


def _constants(tile: _Tile, order: Order, format: str, num_inputs: int) -> dict[str, object]:
    """Return what both kernels are compiled for."""
    return {
        "IS_SORTED": order.is_sorted,
        "BLOCK": order.block,
        "FORMAT": format,
        "IS_EVEN": num_inputs % tile.inputs == 0,
        "ROWS": tile.rows,
        "OUTPUTS": tile.outputs,
        "INPUTS": tile.inputs,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }


# Kernels


@triton.jit
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
    """Multiply rows of x by gates and ups of their expert, and join both.

    hidden  [P, F], in the order by experts where choices are sorted, else in their own.
    """
    expert, places_M, choices_M, is_row = rows_of_slot(
        experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    if tl.max(is_row.to(tl.int32), axis=0) == 0:
        return
    # Eight gates, their eight ups, and so on: a thread of a tensor core holds every eighth row of a
    # tile, so that it has both of a pair.
    half: tl.constexpr = OUTPUTS // 2
    n = tl.arange(0, OUTPUTS)
    pairs_N = tl.program_id(1) * half + n // 16 * 8 + n % 8
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
    f = tl.program_id(1) * half + tl.arange(0, half)
    hidden_NM = hidden + places_M.to(tl.int64)[None, :] * num_hidden + f[:, None]
    tl.store(hidden_NM, gated_NM, mask=is_row[None, :] & (f < num_hidden)[:, None])


@triton.jit
def _gated(gate, up, alpha, limit, IS_CLAMPED: tl.constexpr, dtype: tl.constexpr):
    """Join gates and ups, rounded where the reference rounds; NaN stays NaN."""
    gate = gate.to(dtype).to(tl.float32)
    up = up.to(dtype).to(tl.float32)
    if IS_CLAMPED:
        nan: tl.constexpr = tl.PropagateNan.ALL
        gate = tl.minimum(gate, limit, propagate_nan=nan)
        up = tl.maximum(tl.minimum(up, limit, propagate_nan=nan), -limit, propagate_nan=nan)
        return ((up + 1.0) * gate * tl.sigmoid(alpha * gate)).to(dtype)
    else:
        return ((gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up).to(dtype)


@triton.jit
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
    """Multiply rows of hidden by outputs of their expert; products [P, E] are by choice."""
    expert, places_M, choices_M, is_row = rows_of_slot(
        experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    if tl.max(is_row.to(tl.int32), axis=0) == 0:
        return
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
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
        j = tl.arange(0, CHUNK)
        words_NJ = weight_N[:, None] + j[None, :]
        scales_N = scales + expert.to(tl.int64) * scales_stride_x + outputs_N * scales_stride_o
        x_JM = x_M[None, :] + j[:, None]
        slots: tl.constexpr = INPUTS // CHUNK
        # Of a chunk: its scales are E8M0, of one byte, or bfloat16.
        scale_words: tl.constexpr = 2 if FORMAT == "int4" else 1
        for chunk in range(0, tl.cdiv(num_inputs, INPUTS)):
            words = tl.load(words_NJ + chunk * CHUNK)
            for slot in tl.static_range(slots):
                if slot == 0:
                    scales_word = tl.load(scales_N + chunk * scale_words)
                elif slot == slots // scale_words:
                    scales_word = tl.load(scales_N + chunk * scale_words + 1)
                first = chunk * INPUTS + slot * CHUNK
                if IS_EVEN:
                    x_tile = tl.load(x_JM + first, mask=is_row[None, :], other=0.0)
                else:
                    is_loaded = is_row[None, :] & (first + j < num_inputs)[:, None]
                    x_tile = tl.load(x_JM + first, mask=is_loaded, other=0.0)
                scale_N = scale(scales_word, slot // 2, FORMAT)
                values = elements(words, slot, FORMAT) * scale_N[:, None]
                values = values.to(x_M.dtype.element_ty)
                product_NM = tl.dot(values, x_tile, product_NM, input_precision="ieee")
    if HAS_BIAS:
        bias_N = tl.load(bias + expert * num_outputs + outputs_N)
        product_NM += bias_N[:, None].to(tl.float32)
    return product_NM


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
