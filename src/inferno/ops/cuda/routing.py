"""Routing in a mixture of experts: each token's experts, and each expert's rows.

Choices are sorted by expert on the device, where alone it is known how many an expert has; so the
grid of what comes next is bounded by shapes. Expert x's tiles begin at slot start_x // rows + x,
where start_x choices fell on experts before it. Slots of two experts never overlap, there are at
most P // rows + X of them, and a program finds its expert by counting the first slots that aren't
beyond its own. Few choices aren't sorted: each looks for its equals among all, and the first of a
tile's worth computes them.

Shape letters as in ops, and: P choices of all tokens (T * A), M rows of a tile.
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

# Experts that the router looks through at once: every power of two from a warp's threads on.
_ROUTED_BLOCKS = (32, 64, 128, 256, 512, 1024)
_MOST_CHOSEN = 32  # one for each thread of a warp
MOST_UNSORTED = 64  # choices; beyond, programs that find nothing cost more than the sort's launch
SORTED_BLOCK = 128  # experts that a product's program looks through at once
_SORT_BLOCK = 2048


def route(logits_TX: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    num_tokens, num_experts = logits_TX.shape
    block = next((block for block in _ROUTED_BLOCKS if block >= num_experts), None)
    is_taken = logits_TX.dtype in TYPE_NAMES and logits_TX.stride(1) == 1
    if not is_taken or block is None or num_chosen > _MOST_CHOSEN:
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
            BLOCK_X=block,
            BLOCK_A=_MOST_CHOSEN,
            num_warps=1,
            num_stages=1,
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


@dataclass(frozen=True, slots=True)
class Order:
    """All choices of experts, sorted by expert, as kernels take them.

    arguments  experts [P]; the sorted choices [P]; where the choices of each expert begin and end,
               [2, X].
    num_slots  the most slots of tiles.
    constants  the constants for which `rows_of_slot` is compiled.
    """

    arguments: tuple[Tensor, Tensor, Tensor]
    num_slots: int
    constants: dict[str, object]


def order_of(experts_TA: Tensor, num_experts: int, num_rows: int) -> Order:
    """Sort choices by expert, those of an expert by token and rank, for tiles of so many rows."""
    experts_TA = experts_TA.contiguous()
    num_choices = experts_TA.numel()
    if num_choices <= MOST_UNSORTED:
        constants: dict[str, object] = {"IS_SORTED": False, "BLOCK": MOST_UNSORTED}
        return Order((experts_TA, experts_TA, experts_TA), num_choices, constants)
    order_P = experts_TA.new_empty(num_choices, dtype=torch.int32)
    bounds_2X = experts_TA.new_empty((2, num_experts), dtype=torch.int32)
    sort_choices_kernel[(num_experts,)](
        *(experts_TA, order_P, bounds_2X, num_choices, num_experts), BLOCK=_SORT_BLOCK
    )
    num_slots = num_choices // num_rows + num_experts
    constants = {"IS_SORTED": True, "BLOCK": SORTED_BLOCK}
    return Order((experts_TA, order_P, bounds_2X), num_slots, constants)


@triton.jit(do_not_specialize=["num_choices"])
def sort_choices_kernel(experts, order, bounds, num_choices, num_experts, BLOCK: tl.constexpr):
    """Write one expert's choices to their place in the order by experts, and where it begins.

    Every expert reads all choices, so that no expert waits for another: a counting sort in one
    launch.
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
def _sorted_rows(slot, order, bounds, num_experts, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return a slot's expert, its rows' places in the order, their choices, and which exist."""
    # The first block stands before the loop, where no test of the loop delays what it loads.
    counts_X = _is_begun(slot, bounds, 0, num_experts, ROWS, BLOCK)
    for first in range(BLOCK, num_experts, BLOCK):
        counts_X += _is_begun(slot, bounds, first, num_experts, ROWS, BLOCK)
    expert = tl.maximum(tl.sum(counts_X, axis=0) - 1, 0)
    start = tl.load(bounds + expert)
    end = tl.load(bounds + num_experts + expert)
    places_M = start + (slot - start // ROWS - expert) * ROWS + tl.arange(0, ROWS)
    is_row = places_M < end
    return expert, places_M, tl.load(order + places_M, mask=is_row, other=0), is_row


@triton.jit
def _is_begun(slot, bounds, first, num_experts, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return 1 for each expert from `first` on whose slots begin at this one or before, else 0."""
    x = first + tl.arange(0, BLOCK)
    starts_X = tl.load(bounds + x, mask=x < num_experts, other=0)
    return ((x < num_experts) & (starts_X // ROWS + x <= slot)).to(tl.int32)


@triton.jit
def _unsorted_rows(choice, experts, num_choices, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the same for a choice: itself and later ones of its expert, if tiles begin with it."""
    expert = tl.load(experts + choice)
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


@triton.jit
def rows_of_slot(
    slot,
    experts,
    order,
    bounds,
    num_choices,
    num_experts,
    IS_SORTED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return a slot's expert, the places and choices of its rows, and which rows exist."""
    if IS_SORTED:
        found = _sorted_rows(slot, order, bounds, num_experts, ROWS, BLOCK)
    else:
        found = _unsorted_rows(slot, experts, num_choices, ROWS, BLOCK)
    return found


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the router's kernel for all types and numbers of experts, and the sort's."""
    for dtype, letters in TYPE_NAMES.items():
        for block in _ROUTED_BLOCKS:
            for renormalize in (True, False):
                yield Variant(
                    name=f"route {letters} {block} experts"
                    + (", renormalized" if renormalize else ""),
                    kernel=route_kernel,
                    signature={"logits": f"*{letters}:16", "logits_stride_t": "i32"}
                    | {"experts": "*i64:16", "weights": "*fp32:16"}
                    | dict.fromkeys(("num_experts", "num_chosen"), "i32"),
                    constants={"RENORMALIZE": renormalize}
                    | {"BLOCK_X": block, "BLOCK_A": _MOST_CHOSEN},
                    chip=chip,
                    num_warps=1,
                    num_stages=1,
                    work=Work(num_bytes=block * dtype.itemsize + _MOST_CHOSEN * 12),
                    is_in_check=(letters, block, renormalize) == ("bf16", 128, True),
                )
    yield Variant(
        name="sort choices",
        kernel=sort_choices_kernel,
        signature={"experts": "*i64:16", "order": "*i32:16", "bounds": "*i32:16"}
        | dict.fromkeys(("num_choices", "num_experts"), "i32"),
        constants={"BLOCK": _SORT_BLOCK},
        chip=chip,
        num_warps=4,
        num_stages=3,
        work=Work(num_bytes=2 * 8 * _SORT_BLOCK),
        is_in_check=True,
    )
