"""Batches for tests of the ops, built from lists of lengths and block tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from inferno.ops.batch import AttentionKind, Batch, GroupTables


def make_batch(
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    block_tables: Sequence[Sequence[int]],
    *,
    block_size: int,
    window: int | None = None,
    attention: AttentionKind = AttentionKind.AUTO,
) -> Batch:
    """A step with one group of layers; the tables are padded with block 0, token ids are zeros."""
    width = max(map(len, block_tables))
    tables = [[*table, *(0,) * (width - len(table))] for table in block_tables]
    positions = [
        range(context_len - query_len, context_len)
        for query_len, context_len in zip(query_lens, context_lens, strict=True)
    ]
    slots = [
        table[position // block_size] * block_size + position % block_size
        for table, chunk in zip(tables, positions, strict=True)
        for position in chunk
    ]
    group = GroupTables(
        window=window,
        block_tables_RB=torch.tensor(tables),
        slots_T=torch.tensor(slots),
    )
    return Batch(
        token_ids_T=torch.zeros(sum(query_lens), dtype=torch.int64),
        positions_T=torch.tensor([position for chunk in positions for position in chunk]),
        query_lens=tuple(query_lens),
        context_lens=tuple(context_lens),
        query_starts_R=torch.tensor([0, *accumulate(query_lens)]),
        context_lens_R=torch.tensor(context_lens),
        groups=(group,),
        attention=attention,
    )
