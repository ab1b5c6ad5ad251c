"""Penalise tokens that have occurred, by rows' lists that one copy brings to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.streams import sent
from inferno.ops.cuda.variants import Variant, Work
from inferno.ops.drawing import Penalties
from inferno.ops.reference.sampling import LARGEST, SMALLEST

_LARGEST = tl.constexpr(LARGEST)
_BLOCK = 512  # tokens of a program: four a thread, for each is a load from a place of its own
_SEARCH = 2048  # tokens that are looked through at a time: four loads of 128 bits a thread


@triton.jit
def _penalized(logit, count, factors):
    """Return penalised logits of tokens that outputs have so many times. No two steps are rounded
    once.
    """
    repetition, frequency, presence = factors
    # Rounded right, as the quotient of torch is; `/` is not.
    quotient = tl.div_rn(logit, tl.zeros_like(logit) + repetition)
    logit = tl.where(logit > 0.0, quotient, logit * repetition)
    logit -= count.to(tl.float32) * frequency + (count > 0).to(tl.float32) * presence
    return tl.where(logit > _LARGEST, _LARGEST, logit)


@triton.jit(do_not_specialize=["num_rows", "num_tokens", "vocab_size", "logits_stride_r"])
def penalize_kernel(
    logits,
    lists,
    drawn,
    num_rows,
    num_tokens,
    vocab_size,
    logits_stride_r,
    BLOCK: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """Penalise a block of a row's tokens; `_staged` describes the lists.

    The token drawn last counts once more. Where the list lacks that token, the row's first program
    penalises it too.
    """
    i = tl.program_id(0)
    row = tl.load(lists + i).to(tl.int64)
    begin, end = tl.load(lists + num_rows + i), tl.load(lists + 2 * num_rows + i)
    bits = lists + 3 * num_rows + i
    repetition = tl.load(bits).to(tl.float32, bitcast=True)
    frequency = tl.load(bits + num_rows).to(tl.float32, bitcast=True)
    presence = tl.load(bits + 2 * num_rows).to(tl.float32, bitcast=True)
    factors = repetition, frequency, presence
    tokens = lists + 7 * num_rows
    place = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + place, place < end, other=vocab_size)
    count = tl.load(tokens + num_tokens + place, place < end, other=0)
    if drawn is not None:
        pending_row = tl.load(lists + 6 * num_rows + i)
        pending = tl.load(drawn + pending_row, pending_row >= 0, other=-1).to(tl.int32)
        count += (token == pending).to(tl.int32)
        if (tl.program_id(1) == 0) & (pending >= 0) & (pending < vocab_size):
            num_found = tl.zeros((SEARCH,), tl.int32)
            for start in range(begin, end, SEARCH):
                listed = start + tl.arange(0, SEARCH)
                found = tl.load(tokens + listed, listed < end, other=-1)
                num_found += (found == pending).to(tl.int32)
            one = tl.arange(0, SEARCH)  # of which the first stands for the token, if it is new
            is_new = one == tl.where(tl.sum(num_found) == 0, 0, -1)
            at = logits + row * logits_stride_r + pending + tl.zeros_like(one)
            logit = tl.load(at, is_new, other=0.0)
            tl.store(at, _penalized(logit, tl.full((SEARCH,), 1, tl.int32), factors), is_new)
    is_token = (token >= 0) & (token < vocab_size)
    at = logits + row * logits_stride_r + token
    logit = tl.load(at, is_token, other=0.0)
    tl.store(at, _penalized(logit, count, factors), is_token)


def penalize(
    logits_RV: Tensor,
    rows: Sequence[int],
    penalties: Sequence[Penalties],
    drawn_N: Tensor | None = None,
) -> None:
    if logits_RV.dtype is not torch.float32 or logits_RV.stride(1) != 1:
        return reference.penalize(logits_RV, rows, penalties, drawn_N)
    lengths_R = np.array([len(each.token_ids) for each in penalties], np.int32)
    longest, num_tokens = int(lengths_R.max(initial=0)), int(lengths_R.sum())
    if all(each.pending_row is None for each in penalties):
        drawn_N = None
    if num_tokens > 0 or drawn_N is not None:
        lists = sent(_staged(rows, penalties, lengths_R), logits_RV.device)
        penalize_kernel[len(rows), max(1, triton.cdiv(longest, _BLOCK))](
            *(logits_RV, lists, drawn_N, len(rows), num_tokens),
            *(logits_RV.shape[1], logits_RV.stride(0), _BLOCK, _SEARCH),
            num_warps=4,
            enable_fp_fusion=False,
        )
    return None


def _staged(
    rows: Sequence[int], penalties: Sequence[Penalties], lengths_R: np.ndarray
) -> np.ndarray:
    """Return one array of int32: of all rows their numbers, where their tokens begin and where they
    end, the bits of their three penalties, and the rows of the last draw whose tokens count too, or
    -1; then all tokens, and how often outputs have them.
    """
    ends_R = np.cumsum(lengths_R, dtype=np.int32)
    factors_R3 = np.array(
        [(max(p.repetition, SMALLEST), p.frequency, p.presence) for p in penalties], np.float32
    )
    return np.concatenate(
        [
            np.array(rows, np.int32),
            ends_R - lengths_R,
            ends_R,
            factors_R3.T.ravel().view(np.int32),
            np.array([-1 if p.pending_row is None else p.pending_row for p in penalties], np.int32),
            *(np.asarray(each.token_ids, np.int32) for each in penalties),
            *(np.asarray(each.in_output, np.int32) for each in penalties),
        ]
    )


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the kernel of this file in every configuration that is launched on a chip."""
    for has_drawn in (True, False):
        drawn: dict[str, object] = {} if has_drawn else {"drawn": None}
        types = {"logits": "*fp32:16", "lists": "*i32:16", "drawn": "*i64:16"}
        numbers = ("num_rows", "num_tokens", "vocab_size", "logits_stride_r")
        types |= dict.fromkeys(numbers, "i32")
        yield Variant(
            name=f"penalize{' with a draw' * has_drawn}",
            kernel=penalize_kernel,
            signature={arg: kind for arg, kind in types.items() if arg not in drawn},
            constants={"BLOCK": _BLOCK, "SEARCH": _SEARCH} | drawn,
            chip=chip,
            num_warps=4,
            num_stages=3,
            # A sector of 32 bytes is read and written for each token.
            work=Work(num_bytes=_BLOCK * (8 + 2 * 32)),
            is_in_check=True,
            has_fused_multiply_add=False,
        )
