"""Attend to the paged cache in plain torch: collect each request's keys, then run an algorithm.

Shape letters as in ops, and: P keys of one piece of them, N blocks of the pool, B of a request, S
slots of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from inferno.ops.batch import AttentionKind, Batch, LayerKV, first_visible
from inferno.ops.reference.flash import FlashAttentionConfig, flash_attention
from inferno.ops.reference.naive import naive_attention

FLASH_FROM_SCORES = 1 << 16  # T * L; measured by benchmarks/attention_speed.py
COPIED_TOKENS = 512  # likewise


def attention(
    q_THD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    scale: float,
    sinks_H: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attend for one request after the other, without padding; no result depends on other requests.

    Only slots that were written are read, so NaN in other slots does no harm.
    """
    tables = batch.groups[kv.group]
    out_THD = torch.empty_like(q_THD) if out is None else out
    row = 0
    for request, query_len in enumerate(batch.query_lens):
        rows = slice(row, row := row + query_len)
        positions = _visible_positions(batch, request, tables.window)
        blocks_B = tables.block_tables_RB[request]
        attend = (
            _flash if is_flash(batch.attention, query_len * len(positions)) else naive_attention
        )
        out_THD[rows] = attend(
            q_THD[rows],
            _pieces(kv.keys_NSKD, blocks_B, positions, q_THD.dtype),
            _pieces(kv.values_NSKD, blocks_B, positions, q_THD.dtype),
            scale=scale,
            window=tables.window,
            sinks_H=sinks_H,
            query_start=positions.stop - query_len,
            key_start=positions.start,
        )
    return out_THD


def describe(kind: AttentionKind) -> str:
    """Return the chosen attention algorithm in words."""
    if kind is AttentionKind.AUTO:
        return f"flash from {FLASH_FROM_SCORES} scores a head on, all scores at once below"
    return str(kind)


def is_flash(kind: AttentionKind, num_scores: int) -> bool:
    """Return whether flash_attention computes a chunk with that many scores per head."""
    if kind is AttentionKind.AUTO:
        return num_scores >= FLASH_FROM_SCORES
    return kind is AttentionKind.FLASH


def _flash(
    q_THD: Tensor, keys: Iterable[Tensor], values: Iterable[Tensor], *, scale: float, **where: Any
) -> Tensor:
    config = FlashAttentionConfig(softmax_scale=scale)
    return flash_attention(q_THD, _join(keys), _join(values), config, **where)


def _join(pieces: Iterable[Tensor]) -> Tensor:
    whole = [*pieces]
    return whole[0] if len(whole) == 1 else torch.cat(whole)


def _visible_positions(batch: Batch, request: int, window: int | None) -> range:
    """Return the positions that the request's tokens see in this step."""
    context_len = batch.context_lens[request]
    return range(first_visible(context_len - batch.query_lens[request], window), context_len)


def _pieces(
    cache_NSKD: Tensor, blocks_B: Tensor, positions: range, dtype: torch.dtype
) -> Iterator[Tensor]:
    """Yield what the cache holds at `positions`, in tensors [P, K, D] that join to it.

    Each is small enough to be read from the processor's cache after it was copied there.
    """
    block_size = cache_NSKD.shape[1]
    first, last = positions.start // block_size, -(-positions.stop // block_size)
    num_blocks = max(1, COPIED_TOKENS // block_size)
    for start in range(first, last, num_blocks):
        copied_BSKD = cache_NSKD.index_select(0, blocks_B[start : min(start + num_blocks, last)])
        offset = start * block_size
        here = slice(max(0, positions.start - offset), positions.stop - offset)
        yield copied_BSKD.flatten(0, 1)[here].to(dtype)
