"""Penalties of tokens that have occurred, from lists of rows that one copy brings to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import Variant, Work
from inferno.ops.drawing import Penalties
from inferno.ops.reference.sampling import LARGEST, SMALLEST

_LARGEST = tl.constexpr(LARGEST)
_BLOCK = 512  # tokens of a program: four a thread, for each is a load from a place of its own


@triton.jit(do_not_specialize=["num_rows", "num_tokens"])
def penalize_kernel(
    logits, lists, num_rows, num_tokens, vocab_size, logits_stride_r, BLOCK: tl.constexpr
):
    """Penalise a block of a row's tokens; lists: see `_staged`. No two steps are rounded once."""
    i = tl.program_id(0)
    row = tl.load(lists + i).to(tl.int64)
    begin, end = tl.load(lists + num_rows + i), tl.load(lists + 2 * num_rows + i)
    factors = lists + 3 * num_rows + i
    repetition = tl.load(factors).to(tl.float32, bitcast=True)
    frequency = tl.load(factors + num_rows).to(tl.float32, bitcast=True)
    presence = tl.load(factors + 2 * num_rows).to(tl.float32, bitcast=True)
    place = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(lists + 6 * num_rows + place, place < end, other=vocab_size)
    count = tl.load(lists + 6 * num_rows + num_tokens + place, place < end, other=0)
    is_token = (token >= 0) & (token < vocab_size)
    at = logits + row * logits_stride_r + token
    logit = tl.load(at, is_token, other=0.0)
    # Rounded right, as the quotient of torch is; `/` is not.
    quotient = tl.div_rn(logit, tl.zeros_like(logit) + repetition)
    logit = tl.where(logit > 0.0, quotient, logit * repetition)
    logit -= count.to(tl.float32) * frequency + (count > 0).to(tl.float32) * presence
    tl.store(at, tl.where(logit > _LARGEST, _LARGEST, logit), is_token)


def penalize(logits_RV: Tensor, rows: Sequence[int], penalties: Sequence[Penalties]) -> None:
    if logits_RV.dtype is not torch.float32 or logits_RV.stride(1) != 1:
        return reference.penalize(logits_RV, rows, penalties)
    lengths_R = np.array([len(each.token_ids) for each in penalties], np.int32)
    longest, num_tokens = int(lengths_R.max(initial=0)), int(lengths_R.sum())
    if num_tokens > 0:
        staged = torch.from_numpy(_staged(rows, penalties, lengths_R))
        # From memory that isn't pinned, the call returns when the driver has it: nothing waits.
        lists = staged.to(logits_RV.device, non_blocking=True)
        penalize_kernel[len(rows), triton.cdiv(longest, _BLOCK)](
            *(logits_RV, lists, len(rows), num_tokens, logits_RV.shape[1], logits_RV.stride(0)),
            _BLOCK,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return None


def _staged(
    rows: Sequence[int], penalties: Sequence[Penalties], lengths_R: np.ndarray
) -> np.ndarray:
    """Return one array of int32: of all rows their numbers, where their tokens begin and where they
    end, and the bits of their three penalties; then all tokens, and how often outputs have them.
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
            *(np.asarray(each.token_ids, np.int32) for each in penalties),
            *(np.asarray(each.in_output, np.int32) for each in penalties),
        ]
    )


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the one kernel, for rows that are multiples of 16 and not."""
    for mark in (":16", ""):
        yield Variant(
            name="penalize" if mark else "penalize odd rows",
            kernel=penalize_kernel,
            signature={"logits": "*fp32:16", "lists": "*i32:16"}
            | dict.fromkeys(("num_rows", "num_tokens"), "i32")
            | dict.fromkeys(("vocab_size", "logits_stride_r"), f"i32{mark}"),
            constants={"BLOCK": _BLOCK},
            chip=chip,
            num_warps=4,
            num_stages=3,
            # A sector of 32 bytes is read and written for each token.
            work=Work(num_bytes=_BLOCK * (8 + 2 * 32)),
            is_in_check=bool(mark),
            has_fused_multiply_add=False,
        )
