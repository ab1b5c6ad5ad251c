"""Attention over the paged cache in plain torch: each request's keys, and the algorithm to run.

Shape letters as in ops, and: L keys, N blocks of the pool, B of a request, S slots of a block.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from inferno.ops.batch import AttentionKind, Batch, GroupTables, LayerKV, first_visible
from inferno.ops.flash import FlashAttentionConfig, flash_attention
from inferno.ops.naive import naive_attention

FLASH_FROM_SCORES = 1 << 16  # T * L; measured by benchmarks/attention_speed.py


def attention(
    q_THD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    scale: float,
    sinks_H: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """One request after the other: nothing is padded, and no result depends on who else is there.

    Only slots that were written are read, so what lies in the others, be it NaN, can't leak.
    """
    naive = partial(naive_attention, scale=scale)
    flash = partial(flash_attention, config=FlashAttentionConfig(softmax_scale=scale))
    tables = batch.groups[kv.group]
    out_THD = torch.empty_like(q_THD) if out is None else out
    row = 0
    for request, query_len in enumerate(batch.query_lens):
        rows = slice(row, row := row + query_len)
        positions = _visible_positions(batch, request, tables.window)
        k_LKD, v_LKD = _read(kv, tables, request, positions)
        attend = flash if is_flash(batch.attention, query_len * len(positions)) else naive
        out_THD[rows] = attend(
            q_THD[rows],
            k_LKD,
            v_LKD,
            window=tables.window,
            sinks_H=sinks_H,
            query_start=positions.stop - query_len,
            key_start=positions.start,
        )
    return out_THD


def describe(kind: AttentionKind) -> str:
    """What was chosen, in words."""
    if kind is AttentionKind.AUTO:
        return f"flash from {FLASH_FROM_SCORES} scores a head on, naive below"
    return str(kind)


def is_flash(kind: AttentionKind, num_scores: int) -> bool:
    """Whether a chunk with that many scores per head is computed by flash_attention."""
    if kind is AttentionKind.AUTO:
        return num_scores >= FLASH_FROM_SCORES
    return kind is AttentionKind.FLASH


def _visible_positions(batch: Batch, request: int, window: int | None) -> range:
    """The positions that the request's tokens see in this step."""
    context_len = batch.context_lens[request]
    return range(first_visible(context_len - batch.query_lens[request], window), context_len)


def _read(
    kv: LayerKV, tables: GroupTables, request: int, positions: range
) -> tuple[Tensor, Tensor]:
    """Keys and values [L, K, D] of a request's positions: views if its blocks are one run."""
    block_size = kv.keys_NSKD.shape[1]
    first, last = positions.start // block_size, -(-positions.stop // block_size)
    keys_NSKD, values_NSKD = kv.keys_NSKD, kv.values_NSKD
    run_start = tables.run_starts[request]
    if run_start is None:
        blocks_B = tables.block_tables_RB[request, first:last]
        keys_NSKD = keys_NSKD.index_select(0, blocks_B)
        values_NSKD = values_NSKD.index_select(0, blocks_B)
        run_start = 0
    start = (run_start - first) * block_size + positions.start
    slots = slice(start, start + len(positions))
    return keys_NSKD.flatten(0, 1)[slots], values_NSKD.flatten(0, 1)[slots]
