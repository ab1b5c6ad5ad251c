"""Turn a plan into device tensors: what a forward pass reads goes to the device here.

Small steps, and full ones where they are recorded, are written into the same memory each time. So a
recorded forward pass finds every batch where the batch lay that it was recorded with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inferno.engine.step_plan import ScheduledChunk
from inferno.ops import AttentionKind, Batch, GroupTables
from inferno.plan.choices import SMALL_STEP

Int64s = npt.NDArray[np.int64]


class PlacedSequence(Protocol):
    """A sequence's tokens without those that are proposed, and where its keys and values lie."""

    @property
    def token_ids(self) -> Sequence[int]: ...

    @property
    def block_tables(self) -> Sequence[Sequence[int]]: ...


class Batcher:
    """The builder of each step's batch for one device.

    full_step   a step of so many tokens is recorded too: it is what long prompts are cut into. Then
                max_num_seqs is how many requests it may have.
    """

    def __init__(
        self,
        *,
        block_size: int,
        group_windows: tuple[int | None, ...],
        max_model_len: int,
        device: torch.device,
        attention: AttentionKind,
        full_step: int = 0,
        max_num_seqs: int = 0,
    ) -> None:
        self._block_size = block_size
        self._group_windows = group_windows
        self._device = device
        self._attention = attention
        self._full_step = full_step
        self._max_num_seqs = max_num_seqs
        width = -(-max_model_len // block_size)
        self._fixed = _Memory(
            max(SMALL_STEP, full_step), max(SMALL_STEP, max_num_seqs), len(group_windows), width
        )

    def build(
        self,
        chunks: Sequence[ScheduledChunk],
        sequences: Sequence[PlacedSequence],
        wanted_rows: Sequence[int],
    ) -> Batch:
        """Return the step's tokens, positions, lengths and block tables as tensors.

        sequences    what is known of each chunk's sequence, in the chunks' order.
        wanted_rows  the rows whose hidden states are asked for; steps in fixed places compute the
                     states of all rows.
        """
        rows = None
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        is_fixed = num_tokens <= SMALL_STEP or num_tokens == self._full_step
        if is_fixed:
            memory = self._fixed
            num_requests = num_tokens if num_tokens <= SMALL_STEP else self._max_num_seqs
        else:
            width = max(len(table) for each in sequences for table in each.block_tables)
            num_requests = len(chunks)
            if len(wanted_rows) < num_tokens:
                rows = self._tensor(np.array(wanted_rows, np.int64))
            memory = _Memory(num_tokens, num_requests, len(self._group_windows), width)
        query_lens, context_lens = self._write(chunks, sequences, memory, num_requests)
        return Batch(
            token_ids_T=self._tensor(memory.token_ids[:num_tokens]),
            positions_T=self._tensor(memory.positions[:num_tokens]),
            query_lens=query_lens,
            context_lens=context_lens,
            query_starts_R=self._tensor(memory.query_starts[: num_requests + 1]),
            context_lens_R=self._tensor(memory.context_lens[:num_requests]),
            groups=tuple(
                GroupTables(
                    window=window,
                    block_tables_RB=self._tensor(memory.tables[group, :num_requests]),
                    slots_T=self._tensor(memory.slots[group, :num_tokens]),
                )
                for group, window in enumerate(self._group_windows)
            ),
            attention=self._attention,
            rows_N=rows,
            is_fixed=is_fixed and self._device.type == "cpu",  # elsewhere it was copied
        )

    def _write(
        self,
        chunks: Sequence[ScheduledChunk],
        sequences: Sequence[PlacedSequence],
        memory: _Memory,
        num_requests: int,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Query and context lengths; everything else goes to `memory`."""
        token_ids: list[int] = []  # numpy takes one long list sooner than many short ones
        positions: list[int] = []
        slots: list[list[int]] = [[] for _ in self._group_windows]
        for request, (chunk, sequence) in enumerate(zip(chunks, sequences, strict=True)):
            stop = chunk.start + chunk.num_tokens
            token_ids += sequence.token_ids[chunk.start : stop - len(chunk.proposed_token_ids)]
            token_ids += chunk.proposed_token_ids
            positions += range(chunk.start, stop)
            for group, table in enumerate(sequence.block_tables):
                memory.tables[group, request, : len(table)] = table
                slots[group] += self._slots(table, chunk.start, stop)
        row = len(token_ids)
        memory.token_ids[:row] = token_ids
        memory.positions[:row] = positions
        memory.slots[:, :row] = slots
        query_lens = tuple(chunk.num_tokens for chunk in chunks)
        context_lens = tuple(chunk.start + chunk.num_tokens for chunk in chunks)
        num_absent = num_requests - len(chunks)
        memory.query_starts[: num_requests + 1] = [0, *accumulate(query_lens), *(row,) * num_absent]
        memory.context_lens[:num_requests] = context_lens + (0,) * num_absent
        return query_lens, context_lens

    def _slots(self, table: Sequence[int], start: int, stop: int) -> list[int]:
        size = self._block_size
        return [table[p // size] * size + p % size for p in range(start, stop)]

    def _tensor(self, values: Int64s) -> Tensor:
        return torch.from_numpy(values).to(self._device)


class _Memory:
    """Room for the numbers of a step; pages that no table reaches cost nothing."""

    def __init__(
        self, num_tokens: int, num_requests: int, num_groups: int, table_width: int
    ) -> None:
        self.token_ids = np.zeros(num_tokens, np.int64)
        self.positions = np.zeros(num_tokens, np.int64)
        self.query_starts = np.zeros(num_requests + 1, np.int64)
        self.context_lens = np.zeros(num_requests, np.int64)
        self.slots = np.zeros((num_groups, num_tokens), np.int64)
        self.tables = np.zeros((num_groups, num_requests, table_width), np.int64)
