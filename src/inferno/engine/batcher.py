"""A plan becomes device tensors: what a forward pass reads goes to the device here."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferno.engine.plan import ScheduledChunk, StepPlan
from inferno.ops import AttentionKind, Batch, GroupTables


class Batcher:
    """Builds the batch of each step for one device."""

    def __init__(
        self,
        *,
        block_size: int,
        group_windows: tuple[int | None, ...],
        device: torch.device,
        attention: AttentionKind,
    ) -> None:
        self._block_size = block_size
        self._group_windows = group_windows
        self._device = device
        self._attention = attention

    def build(self, plan: StepPlan) -> Batch:
        """The step's tokens, positions, lengths and block tables as tensors."""
        chunks = plan.chunks
        token_ids: list[int] = []
        positions: list[int] = []
        for chunk in chunks:
            stop = chunk.start + chunk.num_tokens
            token_ids += chunk.token_ids[chunk.start : stop]
            positions += range(chunk.start, stop)
        context_lens = tuple(chunk.start + chunk.num_tokens for chunk in chunks)
        return Batch(
            token_ids_T=self._tensor(token_ids),
            positions_T=self._tensor(positions),
            query_lens=tuple(chunk.num_tokens for chunk in chunks),
            context_lens=context_lens,
            groups=tuple(self._group(chunks, group) for group in range(len(self._group_windows))),
            attention=self._attention,
        )

    def _group(self, chunks: Sequence[ScheduledChunk], group: int) -> GroupTables:
        tables = [chunk.block_tables[group] for chunk in chunks]
        width = max(map(len, tables))
        padded = [[*table, *(0,) * (width - len(table))] for table in tables]
        slots: list[int] = []
        for chunk, table in zip(chunks, tables, strict=True):
            slots += self._slots(chunk, table)
        window = self._group_windows[group]
        return GroupTables(
            window=window,
            block_tables_RB=self._tensor(padded),
            slots_T=self._tensor(slots),
        )

    def _slots(self, chunk: ScheduledChunk, table: Sequence[int]) -> list[int]:
        size = self._block_size
        stop = chunk.start + chunk.num_tokens
        return [table[p // size] * size + p % size for p in range(chunk.start, stop)]

    def _tensor(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)
