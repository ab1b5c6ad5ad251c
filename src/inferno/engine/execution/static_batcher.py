"""Turn a plan into a batch in memory that stays where it is, for devices that compute on their own.

All that a step reads is written side by side into one buffer of the host and copied to the device
at once, before the step. Steps that a captured graph may run are padded to one of a few sizes, with
requests that have no tokens, and with tokens in scratch block 0.

A step that continues the last one, each sequence with its next token, is recognised: the block
tables are still on the device, and only what has changed is computed and sent, for all sequences at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.execution.batcher import Int64s
from inferno.engine.execution.known_sequences import KnownSequence
from inferno.engine.step_plan import NextTokens, ScheduledChunk
from inferno.ops import AttentionKind, Batch, GroupTables
from inferno.plan.choices import SMALL_STEP

Floats = npt.NDArray[np.float64]

# The numbers of tokens that steps are padded to: at most a third is in vain of a small step, which
# reads weights anyway, and a quarter of a large one.
PADDED_SIZES = (
    *(1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64),
    *(80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512),
)
# Tables reach so many tokens, or four times as many, and so on: kernels may look at all of a table,
# and each width has graphs of its own.
_LEAST_REACH = 1024


@dataclass(frozen=True, slots=True)
class _Layout:
    """The places of a step's numbers in the buffer, by its sizes; the tables come last.

    num_rows        of logits, at most.
    longest_query   see Batch; None where the step isn't padded.
    changes         where changed entries of tables begin: their places, then their values.
    """

    num_tokens: int
    num_requests: int
    num_rows: int
    num_groups: int
    width: int
    longest_query: int | None

    @property
    def positions(self) -> int:
        return self.num_tokens

    @property
    def slots(self) -> int:
        return 2 * self.num_tokens

    @property
    def query_starts(self) -> int:
        return (2 + self.num_groups) * self.num_tokens

    @property
    def context_lens(self) -> int:
        return self.query_starts + self.num_requests + 1

    @property
    def rows(self) -> int:
        return self.context_lens + self.num_requests

    @property
    def numbers(self) -> int:
        return self.rows + self.num_rows

    @property
    def changes(self) -> int:
        return self.numbers + self.num_rows

    @property
    def tables(self) -> int:
        return self.changes + 2 * self.most_changes

    @property
    def most_changes(self) -> int:
        """Return how many entries a step with a token for each request may change."""
        return 2 * self.num_groups * self.num_requests  # a new block, and one that a window left

    @property
    def end(self) -> int:
        return self.tables + self.num_groups * self.num_requests * self.width


@dataclass(frozen=True, slots=True)
class DrawInputs:
    """The device's memory of what the draw of a step reads.

    rows_N      the rows of hidden states that are sampled; None: the first N.
    uniform_N   the random number of each row, float64.
    """

    rows_N: Tensor | None
    uniform_N: Tensor


@dataclass(frozen=True, slots=True)
class _Places:
    """The device's memory of a step's numbers, as ops read it."""

    token_ids_T: Tensor
    positions_T: Tensor
    query_starts_R: Tensor
    context_lens_R: Tensor
    rows_N: Tensor
    uniform_N: Tensor
    groups: tuple[GroupTables, ...]


@dataclass(slots=True, eq=False)
class _Table:
    """A sequence's tables as an array [groups, capacity], as far as they have been read."""

    entries: Int64s
    num_blocks: int = 0
    num_left: tuple[int, ...] = ()

    def read(self, sequence: KnownSequence) -> None:
        """Read what is new in a sequence's tables."""
        tables = sequence.block_tables
        length = len(tables[0])
        if length < self.num_blocks:
            self.num_blocks = 0
        if length > self.entries.shape[1]:
            grown = np.zeros((len(tables), 2 * length), np.int64)
            grown[:, : self.num_blocks] = self.entries[:, : self.num_blocks]
            self.entries = grown
        if length > self.num_blocks:
            for group, table in enumerate(tables):
                self.entries[group, self.num_blocks : length] = table[self.num_blocks :]
            self.num_blocks = length
        if sequence.num_left != self.num_left:
            for group, left in enumerate(sequence.num_left):
                self.entries[group, :left] = 0
            self.num_left = sequence.num_left


@dataclass(slots=True, eq=False)
class _Last:
    """The last step, if each of its sequences had one token: what the next may go on from.

    position_R              of each sequence's token.
    num_blocks, num_left    of each sequence, as the device's tables have them.
    blocks_GR               the block in which each sequence's last token lies, in each group.
    """

    layout: _Layout
    sequences: list[KnownSequence]
    query_lens: tuple[int, ...]
    position_R: Int64s
    wants: list[bool]
    rows: Sequence[int]
    num_blocks: list[int]
    num_left: list[tuple[int, ...]]
    blocks_GR: Int64s


class StaticBatcher:
    """The builder of each step's batch for one device that computes on its own.

    max_tokens, max_num_seqs    of a step.
    drawn_N     where the device puts the tokens that it draws; see Batch.
    """

    def __init__(
        self,
        *,
        block_size: int,
        group_windows: tuple[int | None, ...],
        max_model_len: int,
        device: torch.device,
        attention: AttentionKind,
        max_tokens: int,
        max_num_seqs: int,
        drawn_N: Tensor,
    ) -> None:
        self._block_size = block_size
        self._group_windows = group_windows
        self._attention = attention
        self._most_blocks = -(-max_model_len // block_size)
        # Steps of one token a sequence are padded as far as the sizes go, others as on the CPU.
        self._most_padded = max(SMALL_STEP, padded_size(max_num_seqs))
        requests = max(max_num_seqs, self._most_padded)
        tokens = max(max_tokens, requests)
        groups = len(group_windows)
        largest = _Layout(tokens, requests, tokens, groups, self._most_blocks, None)
        self._upload = ops.new_upload(largest.end, device)
        self._drawn_N = drawn_N
        self._places: dict[_Layout, _Places] = {}
        self._tables: dict[KnownSequence, _Table] = {}
        self._last: _Last | None = None
        self._least_reach = _LEAST_REACH
        self._draw_inputs: DrawInputs | None = None

    @property
    def draw_inputs(self) -> DrawInputs:
        """Return what the draw reads of the step that was built last."""
        assert self._draw_inputs is not None, "a batch is built before it is sampled"
        return self._draw_inputs

    def widen_tables(self, num_tokens: int) -> None:
        """Have the block tables of padded steps reach at least so many tokens from now on."""
        self._least_reach = max(_LEAST_REACH, num_tokens)

    def continues(
        self,
        chunks: Sequence[ScheduledChunk],
        sequences: Sequence[KnownSequence],
        next_tokens: NextTokens | None = None,
    ) -> bool:
        """Return whether a step is the last one, each sequence with its next token.

        next_tokens     what the plan says, if it goes on like the last one.
        """
        last = self._last
        if last is None:
            return False
        if next_tokens is not None:
            width, places = last.layout.width, [change.place for change in next_tokens.changes]
            return last.sequences is sequences and all(
                len(sequences[i].block_tables[0]) <= width for i in places
            )
        if (
            last.sequences != sequences
            or [chunk.start - 1 for chunk in chunks] != last.position_R.tolist()
            or [chunk.wants_token for chunk in chunks] != last.wants
            or max([chunk.num_tokens for chunk in chunks]) != 1
        ):
            return False
        lengths = [len(sequence.block_tables[0]) for sequence in sequences]
        num_new = sum(lengths) - sum(last.num_blocks)
        return max(lengths) <= last.layout.width and 0 <= num_new <= len(lengths)

    # A step that goes on like the last one

    def go_on(
        self,
        sequences: list[KnownSequence],
        numbers: Floats | None = None,
        next_tokens: NextTokens | None = None,
        *,
        is_drawn: bool = False,
    ) -> Batch:
        """Return the batch of a step that continues the last one; see `build` and `continues`.

        is_drawn    whether each sequence's token is a row of the draw that nobody has read yet, in
                    the order of the sequences.
        """
        last, self._last = self._last, None  # none, if this fails midway
        assert last is not None, "it was asked whether the step continues"
        layout, num, size = last.layout, len(sequences), self._block_size
        host_N = self._upload.begin().numpy()
        position_R = last.position_R + 1
        for i in np.flatnonzero(position_R % size == 0).tolist():
            for group, table in enumerate(sequences[i].block_tables):
                last.blocks_GR[group, i] = table[position_R[i] // size]
        host_N[: layout.changes] = 0
        host_N[:num] = -1 - np.arange(num) if is_drawn else _token_ids(sequences, position_R)
        host_N[layout.positions : layout.positions + num] = position_R
        slots_GT = host_N[layout.slots : layout.query_starts].reshape(-1, layout.num_tokens)
        slots_GT[:, :num] = last.blocks_GR * size + position_R % size
        self._write_rows(host_N, layout, range(num), position_R + 1, last.rows, numbers)
        changes = self._changes(
            last,
            sequences,
            range(num) if next_tokens is None else [each.place for each in next_tokens.changes],
        )
        end = layout.changes + len(changes)
        host_N[layout.changes : end] = changes
        self._upload.send(end)
        if changes:
            device_N, middle = self._upload.device_N, layout.changes + len(changes) // 2
            device_N[layout.tables :].scatter_(
                0, device_N[layout.changes : middle], device_N[middle:end]
            )
        last.position_R, last.sequences = position_R, sequences
        self._last = last
        context_lens = tuple((position_R + 1).tolist())
        return self._batch(layout, last.query_lens, context_lens, last.rows)

    def _changes(
        self, last: _Last, sequences: Sequence[KnownSequence], changed: Iterable[int]
    ) -> list[int]:
        """Note what has changed in some tables; return entries' places, then their values."""
        places: list[int] = []
        values: list[int] = []
        layout = last.layout
        for i in changed:
            sequence = sequences[i]
            before, length = last.num_blocks[i], len(sequence.block_tables[0])
            if length != before:
                last.num_blocks[i] = length
                for group, table in enumerate(sequence.block_tables):
                    first = (group * layout.num_requests + i) * layout.width
                    places += range(first + before, first + length)
                    values += table[before:]
            if sequence.num_left != last.num_left[i]:
                pairs = zip(last.num_left[i], sequence.num_left, strict=True)
                for group, (old, new) in enumerate(pairs):
                    first = (group * layout.num_requests + i) * layout.width
                    places += range(first + old, first + new)
                    values += [0] * (new - old)
                last.num_left[i] = sequence.num_left
        return places + values

    # Any other step

    def build(
        self,
        chunks: Sequence[ScheduledChunk],
        sequences: list[KnownSequence],
        wanted_rows: Sequence[int],
        numbers: Floats | None = None,
    ) -> Batch:
        """Return the step's batch as tensors of the device, to which its numbers are being copied.

        sequences    what is known of each chunk's sequence, in the chunks' order.
        wanted_rows  the rows whose hidden states are asked for; padded steps compute the states of
                     all rows.
        numbers      the random number of each wanted row; None if the device draws none of them.

        A token that is still to be drawn is filled in on the device, from the last draw.
        """
        self._last = None
        num = len(chunks)
        query_lens = tuple([chunk.num_tokens for chunk in chunks])
        context_lens = tuple([chunk.start + chunk.num_tokens for chunk in chunks])
        starts = [chunk.start for chunk in chunks]
        num_tokens = sum(query_lens)
        layout = self._layout(num_tokens, query_lens, len(wanted_rows), sequences)
        host_N = self._upload.begin().numpy()
        host_N[: layout.end] = 0
        token_ids: list[int] = []
        for chunk, sequence in zip(chunks, sequences, strict=True):
            token_ids += _chunk_ids(chunk, sequence)
        lens_R = np.array(query_lens)
        ends_R = np.cumsum(lens_R)
        position_T = np.arange(num_tokens) + np.repeat(starts - (ends_R - lens_R), lens_R)
        host_N[:num_tokens] = token_ids
        host_N[layout.positions : layout.positions + num_tokens] = position_T
        tables_GRW = self._write_tables(host_N, layout, sequences)
        places_T = position_T // self._block_size
        blocks_GT = tables_GRW[:, np.repeat(np.arange(num), lens_R), places_T]
        slots_GT = host_N[layout.slots : layout.query_starts].reshape(-1, layout.num_tokens)
        slots_GT[:, :num_tokens] = blocks_GT * self._block_size + position_T % self._block_size
        first_rows = (ends_R - lens_R).tolist()
        self._write_rows(host_N, layout, first_rows, context_lens, wanted_rows, numbers)
        host_N[layout.query_starts + num : layout.context_lens] = num_tokens
        self._upload.send(layout.end)
        if max(query_lens) == 1:
            self._last = _Last(
                layout,
                sequences,
                query_lens,
                position_T,
                [chunk.wants_token for chunk in chunks],
                wanted_rows,
                [len(sequence.block_tables[0]) for sequence in sequences],
                [sequence.num_left for sequence in sequences],
                blocks_GT,
            )
        return self._batch(layout, query_lens, context_lens, wanted_rows)

    def _layout(
        self,
        num_tokens: int,
        query_lens: Sequence[int],
        num_rows: int,
        sequences: Sequence[KnownSequence],
    ) -> _Layout:
        """Return the layout of a step: of a padded size, if graphs may run it."""
        longest = max(len(table) for each in sequences for table in each.block_tables)
        groups = len(self._group_windows)
        is_decoding = num_tokens == len(query_lens)
        if num_tokens <= (self._most_padded if is_decoding else SMALL_STEP):
            size = padded_size(num_tokens)
            longest_query = 1 if is_decoding else size
            return _Layout(size, size, size, groups, self._width(longest), longest_query)
        return _Layout(num_tokens, len(query_lens), num_rows, groups, longest, None)

    def _width(self, num_blocks: int) -> int:
        width = -(-_LEAST_REACH // self._block_size)
        needed = max(num_blocks, min(self._most_blocks, -(-self._least_reach // self._block_size)))
        while width < needed:
            width *= 4
        return min(width, self._most_blocks)

    def _write_tables(
        self, host_N: Int64s, layout: _Layout, sequences: Sequence[KnownSequence]
    ) -> Int64s:
        """Write the tables of a step; return them, [groups, requests, width]."""
        shape = (layout.num_groups, layout.num_requests, layout.width)
        tables_GRW = host_N[layout.tables : layout.end].reshape(shape)
        known, self._tables = self._tables, {}
        for i, sequence in enumerate(sequences):
            table = known.get(sequence)
            if table is None:
                table = _Table(np.zeros((layout.num_groups, 0), np.int64))
            table.read(sequence)
            self._tables[sequence] = table
            num_blocks = table.num_blocks
            tables_GRW[:, i, :num_blocks] = table.entries[:, :num_blocks]
        return tables_GRW

    def _write_rows(
        self,
        host_N: Int64s,
        layout: _Layout,
        first_rows: Sequence[int],
        context_lens: Sequence[int] | Int64s,
        wanted_rows: Sequence[int],
        numbers: Floats | None,
    ) -> None:
        """Write what is known of each request, and of each row of logits."""
        num, num_rows = len(first_rows), len(wanted_rows)
        host_N[layout.query_starts : layout.query_starts + num] = first_rows
        host_N[layout.query_starts + num : layout.context_lens] = num
        host_N[layout.context_lens : layout.context_lens + num] = context_lens
        host_N[layout.rows : layout.rows + num_rows] = wanted_rows
        if numbers is not None:
            host_N[layout.numbers : layout.numbers + num_rows] = numbers.view(np.int64)

    # The device's side

    def _batch(
        self,
        layout: _Layout,
        query_lens: tuple[int, ...],
        context_lens: tuple[int, ...],
        wanted_rows: Sequence[int],
    ) -> Batch:
        places = self._places.get(layout)
        if places is None:
            places = self._place(layout)
            if layout.longest_query is not None:  # the others are of too many sizes to be kept
                self._places[layout] = places
        num_rows = len(wanted_rows)
        is_prefix = num_rows == 0 or wanted_rows[-1] == num_rows - 1  # they ascend
        is_padded = layout.longest_query is not None
        has_all = num_rows == layout.num_tokens
        self._draw_inputs = DrawInputs(
            None if is_prefix or not is_padded else places.rows_N[:num_rows],
            places.uniform_N[:num_rows],
        )
        return Batch(
            token_ids_T=places.token_ids_T,
            positions_T=places.positions_T,
            query_lens=query_lens,
            context_lens=context_lens,
            query_starts_R=places.query_starts_R,
            context_lens_R=places.context_lens_R,
            groups=places.groups,
            attention=self._attention,
            rows_N=None if is_padded or has_all else places.rows_N,
            is_fixed=is_padded,
            longest_query=layout.longest_query,
            drawn_N=self._drawn_N,
        )

    def _place(self, layout: _Layout) -> _Places:
        """Return where the device finds what lies in the buffer so."""
        memory_N, groups = self._upload.device_N, layout.num_groups
        tables_GRW = memory_N[layout.tables : layout.end].view(groups, layout.num_requests, -1)
        slots_GT = memory_N[layout.slots : layout.query_starts].view(groups, -1)
        return _Places(
            token_ids_T=memory_N[: layout.positions],
            positions_T=memory_N[layout.positions : layout.slots],
            query_starts_R=memory_N[layout.query_starts : layout.context_lens],
            context_lens_R=memory_N[layout.context_lens : layout.rows],
            rows_N=memory_N[layout.rows : layout.numbers],
            uniform_N=memory_N[layout.numbers : layout.changes].view(torch.float64),
            groups=tuple(
                GroupTables(window, tables_GRW[group], slots_GT[group])
                for group, window in enumerate(self._group_windows)
            ),
        )


def table_reaches(max_model_len: int) -> list[int]:
    """Return the numbers of tokens that padded steps' block tables may reach, ascending."""
    reaches = []
    reach = _LEAST_REACH
    while reach < max_model_len:
        reaches.append(reach)
        reach *= 4
    return [*reaches, max_model_len]


def padded_size(num_tokens: int) -> int:
    """Return the size that so many tokens are padded to; the largest size if they are more."""
    return next((size for size in PADDED_SIZES if size >= num_tokens), PADDED_SIZES[-1])


def _token_ids(sequences: Sequence[KnownSequence], position_R: Int64s) -> list[int]:
    """Return the token of each sequence at a position, or where it will be drawn."""
    return [
        each.token_ids[start] if start < len(each.token_ids) else -1 - each.pending_row
        for each, start in zip(sequences, position_R.tolist(), strict=True)
    ]


def _chunk_ids(chunk: ScheduledChunk, sequence: KnownSequence) -> list[int]:
    """Return the tokens of a chunk; the one that is still to be drawn by where it will be."""
    stop = chunk.start + chunk.num_tokens - len(chunk.proposed_token_ids)
    token_ids = list(sequence.token_ids[chunk.start : stop])
    if len(token_ids) < stop - chunk.start:
        token_ids.append(-1 - sequence.pending_row)
    return [*token_ids, *chunk.proposed_token_ids]
