"""Mixture of experts: who is chosen, a grouped product of each expert's tokens, sums by rank.

An expert's tokens are computed together (MegaBlocks, arXiv:2211.15841, without blocks of zeros): its
choices lie side by side after a counting sort, and each program takes a tile of rows of one expert.
How many an expert has is known on the device alone, so the grid is bounded by shapes: expert x's
tiles begin at slot start_x // rows + x, where start_x choices fell on experts before it. These slots
never overlap, there are at most P // rows + X of them, and a program finds its expert by counting
the first slots that aren't beyond its own. Few choices aren't sorted: each looks for its equals
among all, and the first of a tile's worth computes them.

A row's product is summed along its inputs in one order, by one chain of the tensor cores' fused
steps of 16, whatever the tile. Tiles of 64 rows or more use other instructions from SM90 on, whose
rounding isn't documented to be the same: `_choose` avoids them where batches must not matter.

Shape letters as in ops, and: P choices of all tokens (T * A), M rows of a tile, N its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.config.mixture import Activation, ClampedSwiGLU
from inferno.ops import reference
from inferno.ops.cuda.chips import Chip, chip_of
from inferno.ops.packed import PackedExperts

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_MOST_EXPERTS = 1024  # which a program looks through at once
_MOST_UNSORTED = 64  # choices; beyond, programs that find nothing cost more than the sort's launch
_SORT_BLOCK = 2048
_COMBINE_BLOCK = 1024


# Who is chosen


def route(logits_TX: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    num_tokens, num_experts = logits_TX.shape
    if logits_TX.dtype not in _FLOATS or num_experts > _MOST_EXPERTS or logits_TX.stride(1) != 1:
        return reference.route(logits_TX, num_chosen, renormalize=renormalize)
    experts_TA = logits_TX.new_empty((num_tokens, num_chosen), dtype=torch.int64)
    weights_TA = logits_TX.new_empty((num_tokens, num_chosen), dtype=torch.float32)
    if num_tokens:
        route_kernel[(num_tokens,)](
            logits_TX,
            logits_TX.stride(0),
            experts_TA,
            weights_TA,
            num_experts,
            num_chosen,
            RENORMALIZE=renormalize,
            BLOCK_X=triton.next_power_of_2(num_experts),
            BLOCK_A=triton.next_power_of_2(num_chosen),
            num_warps=1,
        )
    return experts_TA, weights_TA


@triton.jit
def route_kernel(
    logits,
    logits_stride_t,
    experts,
    weights,
    num_experts,
    num_chosen,
    RENORMALIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    BLOCK_A: tl.constexpr,
):
    """Choose and weigh one token's experts: the highest logit first, then the next."""
    token = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, BLOCK_X)
    is_expert = x < num_experts
    logits_X = tl.load(logits + token * logits_stride_t + x, mask=is_expert, other=0.0)
    logits_X = logits_X.to(tl.float32)
    # A float's bits, as an integer of the same order; NaN is the largest, as in torch's sort, and
    # the two zeros are equal. Below it stands the index, so that no two keys are equal.
    bits_X = tl.where(logits_X == 0.0, 0.0, logits_X).to(tl.int32, bitcast=True)
    order_X = tl.where(bits_X < 0, bits_X ^ 0x7FFFFFFF, bits_X)
    order_X = tl.where(logits_X != logits_X, 0x7FFFFFFF, order_X)
    lowest: tl.constexpr = -(2**63)
    keys_X = (order_X.to(tl.int64) << 32) | (BLOCK_X - 1 - x).to(tl.int64)
    keys_X = tl.where(is_expert, keys_X, lowest)

    a = tl.arange(0, BLOCK_A)
    chosen_A = tl.zeros((BLOCK_A,), tl.float32)
    chosen_A = tl.where(a < num_chosen, chosen_A, float("-inf"))
    for rank in range(num_chosen):
        key = tl.max(keys_X, axis=0)
        expert = BLOCK_X - 1 - (key & 0xFFFFFFFF).to(tl.int32)
        tl.store(experts + token * num_chosen + rank, expert.to(tl.int64))
        logit = tl.sum(tl.where(x == expert, logits_X, 0.0), axis=0)
        chosen_A = tl.where(a == rank, logit, chosen_A)
        keys_X = tl.where(x == expert, lowest, keys_X)

    if RENORMALIZE:
        highest = tl.max(chosen_A, axis=0)
        total = tl.sum(tl.exp(chosen_A - highest), axis=0)
    else:
        highest = tl.max(tl.where(is_expert, logits_X, float("-inf")), axis=0)
        total = tl.sum(tl.where(is_expert, tl.exp(logits_X - highest), 0.0), axis=0)
    # Where a logit is NaN the maximum may not be, but then the total is: so are all weights.
    weights_A = tl.exp(chosen_A - highest) / total
    tl.store(weights + token * num_chosen + a, weights_A, mask=a < num_chosen)


# Which rows an expert has


@triton.jit
def sort_choices_kernel(experts, order, bounds, num_choices, num_experts, BLOCK: tl.constexpr):
    """Write one expert's choices to their place in the order by experts, and where it begins.

    Every expert reads all choices, so that none waits for another: a counting sort in one launch.
    """
    expert = tl.program_id(0)
    p = tl.arange(0, BLOCK)
    place = 0
    for first in range(0, num_choices, BLOCK):
        is_choice = first + p < num_choices
        experts_P = tl.load(experts + first + p, mask=is_choice, other=num_experts)
        place += tl.sum((experts_P < expert).to(tl.int32), axis=0)
    tl.store(bounds + expert, place)
    for first in range(0, num_choices, BLOCK):
        is_choice = first + p < num_choices
        experts_P = tl.load(experts + first + p, mask=is_choice, other=num_experts)
        is_ours = experts_P == expert
        places_P = place + tl.cumsum(is_ours.to(tl.int32), axis=0) - 1
        tl.store(order + places_P, first + p, mask=is_ours)
        place += tl.sum(is_ours.to(tl.int32), axis=0)
    tl.store(bounds + num_experts + expert, place)


@triton.jit
def _sorted_rows(order, bounds, num_experts, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return this slot's expert, its rows' places in the order, their choices, and which exist."""
    slot = tl.program_id(0)
    x = tl.arange(0, BLOCK)
    starts_X = tl.load(bounds + x, mask=x < num_experts, other=0)
    slots_X = tl.where(x < num_experts, starts_X // ROWS + x, slot + 1)
    expert = tl.maximum(tl.sum((slots_X <= slot).to(tl.int32), axis=0) - 1, 0)
    start = tl.load(bounds + expert)
    end = tl.load(bounds + num_experts + expert)
    places_M = start + (slot - start // ROWS - expert) * ROWS + tl.arange(0, ROWS)
    is_row = places_M < end
    return expert, places_M, tl.load(order + places_M, mask=is_row, other=0), is_row


@triton.jit
def _unsorted_rows(experts, num_choices, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the same for a choice: itself and later ones of its expert, if tiles begin with it."""
    choice = tl.program_id(0)
    expert = tl.load(experts + choice)
    if ROWS == 1:
        choices_M = choice + tl.arange(0, 1)
        return expert, choices_M, choices_M, choices_M >= 0
    else:
        p = tl.arange(0, BLOCK)
        experts_P = tl.load(experts + p, mask=p < num_choices, other=-1)
        is_equal = (experts_P == expert).to(tl.int32)
        num_before = tl.sum(tl.where(p < choice, is_equal, 0), axis=0)
        num_after = tl.sum(is_equal, axis=0) - num_before
        ranks_P = tl.where(is_equal != 0, tl.cumsum(is_equal, axis=0) - 1 - num_before, -1)
        m = tl.arange(0, ROWS)
        choices_M = tl.sum(tl.where(ranks_P[None, :] == m[:, None], p[None, :], 0), axis=1)
        is_row = m < tl.where(num_before % ROWS == 0, num_after, 0)
        return expert, choices_M, choices_M, is_row


# What an expert computes


@triton.jit
def _rows(
    experts,
    order,
    bounds,
    num_choices,
    num_experts,
    IS_SORTED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if IS_SORTED:
        return _sorted_rows(order, bounds, num_experts, ROWS, BLOCK)
    else:
        return _unsorted_rows(experts, num_choices, ROWS, BLOCK)


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
    bias,
    hidden,
    num_choices,
    num_experts,
    num_chosen,
    num_inputs,
    num_hidden,
    alpha,
    limit,
    IS_SORTED: tl.constexpr,
    IS_CLAMPED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    IS_EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply rows of x by gates and ups of their expert, and join both.

    hidden  [P, F], in the order by experts where choices are sorted, else in their own.
    """
    expert, places_M, choices_M, is_row = _rows(
        experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    if tl.max(is_row.to(tl.int32), axis=0) == 0:
        return
    # Gate, up, gate, up: a thread then holds both of a pair, as it does any two neighbours.
    half: tl.constexpr = OUTPUTS // 2
    n = tl.arange(0, OUTPUTS)
    pairs_N = tl.minimum(tl.program_id(1) * half + n // 2, num_hidden - 1)
    product_MN = _product(
        x + (choices_M // num_chosen).to(tl.int64) * x_stride_t,
        is_row,
        expert,
        pairs_N + (n % 2) * num_hidden,
        weight,
        weight_stride_x,
        weight_stride_o,
        bias,
        num_inputs,
        2 * num_hidden,
        HAS_BIAS,
        IS_EVEN,
        ROWS,
        OUTPUTS,
        INPUTS,
    )
    gate_MN, up_MN = tl.split(tl.reshape(product_MN, (ROWS, half, 2)))
    gated_MN = _gated(gate_MN, up_MN, alpha, limit, IS_CLAMPED, hidden.dtype.element_ty)
    f = tl.program_id(1) * half + tl.arange(0, half)
    hidden_MF = hidden + places_M.to(tl.int64)[:, None] * num_hidden + f[None, :]
    tl.store(hidden_MF, gated_MN, mask=is_row[:, None] & (f < num_hidden)[None, :])


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
    bias,
    products,
    num_choices,
    num_experts,
    num_inputs,
    num_outputs,
    IS_SORTED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    IS_EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply rows of hidden by outputs of their expert; products [P, E] are by choice."""
    expert, places_M, choices_M, is_row = _rows(
        experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    if tl.max(is_row.to(tl.int32), axis=0) == 0:
        return
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    product_MN = _product(
        hidden + places_M.to(tl.int64) * num_inputs,
        is_row,
        expert,
        tl.minimum(n, num_outputs - 1),
        weight,
        weight_stride_x,
        weight_stride_o,
        bias,
        num_inputs,
        num_outputs,
        HAS_BIAS,
        IS_EVEN,
        ROWS,
        OUTPUTS,
        INPUTS,
    )
    products_MN = products + choices_M.to(tl.int64)[:, None] * num_outputs + n[None, :]
    is_stored = is_row[:, None] & (n < num_outputs)[None, :]
    tl.store(products_MN, product_MN.to(products.dtype.element_ty), mask=is_stored)


@triton.jit
def _product(
    x_M,
    is_row,
    expert,
    outputs_N,
    weight,
    weight_stride_x,
    weight_stride_o,
    bias,
    num_inputs,
    num_outputs,
    HAS_BIAS: tl.constexpr,
    IS_EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Return rows of inputs times an expert's outputs, plus bias, in float32: [M, N].

    Outputs exist, so that loads need no mask for them.
    """
    k = tl.arange(0, INPUTS)
    x_MK = x_M[:, None] + k[None, :]
    weight_KN = weight + expert.to(tl.int64) * weight_stride_x
    weight_KN += outputs_N[None, :] * weight_stride_o + k[:, None]
    product_MN = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for first in range(0, num_inputs, INPUTS):
        if IS_EVEN:
            x_tile = tl.load(x_MK + first, mask=is_row[:, None], other=0.0)
            weight_tile = tl.load(weight_KN + first)
        else:
            is_input = first + k < num_inputs
            x_tile = tl.load(x_MK + first, mask=is_row[:, None] & is_input[None, :], other=0.0)
            weight_tile = tl.load(weight_KN + first, mask=is_input[:, None], other=0.0)
        product_MN = tl.dot(x_tile, weight_tile, product_MN, input_precision="ieee")
    if HAS_BIAS:
        bias_N = tl.load(bias + expert * num_outputs + outputs_N)
        product_MN += bias_N[None, :].to(tl.float32)
    return product_MN


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


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a product that a program computes, and the warps that do it."""

    rows: int
    outputs: int
    inputs: int
    num_warps: int
    num_stages: int


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
    num_tokens, num_chosen = experts_TA.shape
    num_choices = num_tokens * num_chosen
    num_experts, num_outputs, num_hidden = down_XEF.shape
    experts_TA, weights_TA = experts_TA.contiguous(), weights_TA.contiguous()
    out_TE = torch.empty_like(x_TE) if out is None else out
    if num_choices == 0:
        return out_TE.zero_()
    tile = _choose(chip_of(x_TE.device), x_TE.dtype, num_tokens, num_choices, num_experts)
    is_sorted = num_choices > _MOST_UNSORTED
    num_slots = num_choices
    order_P = bounds_2X = experts_TA
    if is_sorted:
        num_slots = num_choices // tile.rows + num_experts
        order_P = experts_TA.new_empty(num_choices, dtype=torch.int32)
        bounds_2X = experts_TA.new_empty(2 * num_experts, dtype=torch.int32)
        sort_choices_kernel[(num_experts,)](
            *(experts_TA, order_P, bounds_2X, num_choices, num_experts), BLOCK=_SORT_BLOCK
        )
    block = triton.next_power_of_2(num_experts if is_sorted else num_choices)
    hidden_PF = x_TE.new_empty(num_choices, num_hidden)
    is_clamped = isinstance(activation, ClampedSwiGLU)
    gate_up_kernel[(num_slots, triton.cdiv(2 * num_hidden, tile.outputs))](
        *(x_TE, x_TE.stride(0), experts_TA, order_P, bounds_2X),
        *(gate_up_XFE, gate_up_XFE.stride(0), gate_up_XFE.stride(1), gate_up_bias_XF, hidden_PF),
        *(num_choices, num_experts, num_chosen, x_TE.shape[1], num_hidden),
        *((activation.alpha, activation.limit) if is_clamped else (0.0, 0.0)),
        IS_SORTED=is_sorted,
        IS_CLAMPED=is_clamped,
        HAS_BIAS=gate_up_bias_XF is not None,
        IS_EVEN=x_TE.shape[1] % tile.inputs == 0,
        ROWS=tile.rows, OUTPUTS=tile.outputs, INPUTS=tile.inputs, BLOCK=block,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )
    products_PE = x_TE.new_empty(num_choices, num_outputs)
    down_kernel[(num_slots, triton.cdiv(num_outputs, tile.outputs))](
        *(hidden_PF, experts_TA, order_P, bounds_2X),
        *(down_XEF, down_XEF.stride(0), down_XEF.stride(1), down_bias_XE, products_PE),
        *(num_choices, num_experts, num_hidden, num_outputs),
        IS_SORTED=is_sorted,
        HAS_BIAS=down_bias_XE is not None,
        IS_EVEN=num_hidden % tile.inputs == 0,
        ROWS=tile.rows, OUTPUTS=tile.outputs, INPUTS=tile.inputs, BLOCK=block,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )
    combine_kernel[(num_tokens, triton.cdiv(num_outputs, _COMBINE_BLOCK))](
        *(products_PE, weights_TA, out_TE, out_TE.stride(0), num_chosen, num_outputs),
        BLOCK=_COMBINE_BLOCK,
    )
    return out_TE


def _choose(chip, dtype, num_tokens, num_choices, num_experts):
    if num_tokens == 1:
        return Tile(1, 32, 128, 4, 4)
    return Tile(16, 32, 128, 4, 4)
