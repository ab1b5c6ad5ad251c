"""Plan the usual step in few instructions: each running sequence computes the token it has drawn.

A server with hundreds of streams makes such steps nearly always, and a fast device does them in
milliseconds. The functions here do exactly what the scheduler's rule would do, or nothing. Where
such steps follow one another without a change, they are planned for all streams at once, in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat

import numpy as np
import numpy.typing as npt

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.kv.offload import Offload
from inferno.engine.scheduling.planned_steps import PlannedStep
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.scheduling.step_cost import StepWork
from inferno.engine.step_plan import (
    DrawnTokens,
    LaterChunks,
    NextTokens,
    ScheduledChunk,
    StepPlan,
    StepResult,
    TableChange,
)
from inferno.requests import TokenEvent

_new_event = partial(tuple.__new__, TokenEvent)
# Fewer streams than these are planned one by one: it takes as long.
LEAST_STREAMS = 16


def streams(
    running: Sequence[SequenceState],
    epoch: int,
    blocks: BlockManager,
    speculation: Speculation,
    most: int,
) -> list[SequenceState]:
    """Return the running sequences that lack one token; none unless the others lack nothing.

    A step isn't a usual one either where blocks are short, where a sequence is new to the executor,
    where tokens may be proposed, or where more than `most` would be computed.
    """
    if not speculation.is_asleep:
        return []
    found: list[SequenceState] = []
    num_new = 0
    for sequence in running:
        if not sequence.is_stream or sequence.has_proposals or sequence.known_epoch != epoch:
            return []
        length = len(sequence.token_ids)
        planned = sequence.num_planned_tokens
        if pending := sequence.num_pending_tokens:
            length += pending
            if length >= sequence.max_length:
                continue  # its last token is in flight
        if length - planned != 1:
            if length == planned:
                continue
            return []
        if length > len(sequence.tables.groups[0]) * blocks.block_size:
            num_new += 1
        found.append(sequence)
    if not found or len(found) > most:
        return []
    num_groups = len(found[0].tables.groups)
    if num_new * num_groups > blocks.pool.num_available:
        return []
    speculation.is_awake()  # which counts the steps that it sleeps
    return found


def schedule(
    sequences: Sequence[SequenceState], blocks: BlockManager, work: StepWork, now: float
) -> list[ScheduledChunk]:
    """Plan one token of each of these sequences, by rank, as `SequenceState.schedule` does."""
    chunks = []
    is_windowed, block_size = blocks.has_windows, blocks.block_size
    for sequence in sequences:
        token_ids, tables, start = sequence.token_ids, sequence.tables, sequence.num_planned_tokens
        if is_windowed:
            blocks.slide(tables, start)
        new_blocks: tuple[tuple[int, ...], ...] = ()
        groups = tables.groups
        num_blocks = len(groups[0])
        if start >= num_blocks * block_size:
            blocks.allocate(tables, start + 1)
            num_blocks = len(groups[0])
        if num_blocks > sequence.num_known_blocks:
            new_blocks = tuple(tuple(table[sequence.num_known_blocks :]) for table in groups)
            sequence.num_known_blocks = num_blocks
        new_token_ids = tuple(token_ids[sequence.num_known_tokens :])
        sequence.num_known_tokens = max(sequence.num_known_tokens, len(token_ids))
        sequence.num_planned_tokens = start + 1
        wants_token = start + 1 < sequence.max_length
        sequence.num_in_flight += 1
        sequence.num_pending_tokens += wants_token
        sequence.served = now
        chunks.append(
            ScheduledChunk(
                sequence.sequence_id,
                start,
                1,
                new_token_ids,
                new_blocks,
                tables.num_left,
                wants_token,
                False,
            )
        )
    _count(work, np.array([chunk.start for chunk in chunks]))
    return chunks


def _count(work: StepWork, start_R: npt.NDArray[np.int64]) -> None:
    """Count a chunk of one token at each of these positions."""
    window, num = work.window, len(start_R)
    num_keys = num_pairs = int(start_R.sum()) + num
    if window is not None:  # a chunk reads the key that has just left its token's window too
        num_keys = int(np.minimum(start_R, window).sum()) + num
        num_pairs = int(np.minimum(start_R + 1, window).sum())
    work.num_rows += num
    work.num_tokens += num
    work.num_keys += num_keys
    work.num_pairs += num_pairs


def take_in(
    parts: Iterable[tuple[SequenceState, ScheduledChunk, StepResult]],
    blocks: BlockManager,
    speculation: Speculation,
    events: list[TokenEvent],
    otherwise: Callable[[SequenceState, ScheduledChunk, StepResult], None],
) -> None:
    """Take in results that are one more token of a stream but not its end, and add their events.

    Other results, except of sequences that have ended, go to `otherwise`, in their turn.
    """
    told = speculation.told
    block_size = blocks.block_size
    running, finished = Status.RUNNING, Status.FINISHED
    for sequence, chunk, result in parts:
        token_ids = result.token_ids
        if (
            len(token_ids) != 1
            or not sequence.is_simple
            or sequence.status is not running
            or sequence.claimed
            or sequence.prompt_logprobs is not None
            or chunk.proposed_token_ids
            or result.error is not None
            or token_ids[0] in sequence.stop_token_ids
            or len(sequence.token_ids) + 1 >= sequence.max_length
        ):
            if sequence.status is not finished:
                otherwise(sequence, chunk, result)
            continue
        known = sequence.token_ids
        known.append(token_ids[0])
        computed = sequence.num_computed_tokens = chunk.start + chunk.num_tokens
        tables = sequence.tables
        if computed // block_size != tables.num_committed:
            blocks.commit(tables, known, computed)
        request_id, sequence_index = sequence.sequence_id
        proposals = told.get(sequence, ()) if told else ()
        events.append(
            TokenEvent(
                request_id,
                sequence_index,
                token_ids,
                result.logprobs,
                None,
                sequence.num_cached_tokens or 0,
                None,
                None,
                None,
                sequence.queue_seconds,
                proposals,
            )
        )


class SteadyStreams:
    """The streams that steps compute one after the other without a change.

    After one such step the next ones are planned in few words, and their results taken in like
    that, until something else happens to one of the streams; then `drop` is to be called.
    """

    def __init__(self, blocks: BlockManager, offload: Offload) -> None:
        self._blocks = blocks
        self._offload = offload
        # Of the last step, if it had nothing but streams and was planned one by one.
        self._noted: tuple[list[SequenceState], Sequence[ScheduledChunk]] | None = None
        self._streams: _Streams | None = None

    def drop(self) -> None:
        """Forget all: the streams are others now, or one has had more than a token."""
        self._noted = self._streams = None

    def note(
        self, sequences: list[SequenceState], chunks: Sequence[ScheduledChunk], num_running: int
    ) -> None:
        """Note a step of nothing but streams that was planned one by one."""
        is_worth_it = LEAST_STREAMS <= len(sequences) == num_running
        self._noted, self._streams = (sequences, chunks) if is_worth_it else None, None

    def plan(
        self, epoch: int, work: StepWork, now: float, speculation: Speculation
    ) -> PlannedStep | None:
        """Plan the next token of all streams; None where it must be planned one by one."""
        if not speculation.is_asleep:
            return None
        if self._noted is not None and _are_plain(self._noted[0]):
            self._streams = _Streams(*self._noted)
        self._noted = None
        if (streams := self._streams) is None:
            return None
        changes = streams.advance(self._blocks, work, now)
        if changes is None:
            self._streams = None
            return None
        speculation.is_awake()  # which counts the steps that it sleeps
        sequences = streams.sequences
        copies = self._offload.copies()  # of what new blocks held before
        plan = StepPlan(epoch, (), (), (), work, copies, NextTokens(len(sequences), changes))
        return PlannedStep(plan, sequences, LaterChunks(streams.chunks, streams.num_steps))

    def take_in(
        self,
        step: PlannedStep,
        results: Sequence[StepResult],
        events: list[TokenEvent],
        speculation: Speculation,
    ) -> bool:
        """Retire a step that `plan` planned and take in its results; or do nothing: False."""
        streams, chunks = self._streams, step.chunks
        if streams is None or streams.sequences is not step.sequences or speculation.told:
            return False
        if not isinstance(chunks, LaterChunks) or not isinstance(results, DrawnTokens):
            return False
        if not streams.stop_token_ids.isdisjoint(results.token_ids):
            return False
        streams.take_in(chunks.num_tokens, results.token_ids, self._blocks, events)
        return True


class _Streams:
    """Streams of which steps compute a token each, and what such a step changes.

    chunks      of the step from which on they were the same, and num_steps: how many steps have
                been planned since.
    stop_token_ids  of any of them.
    """

    def __init__(self, sequences: list[SequenceState], chunks: Sequence[ScheduledChunk]) -> None:
        self.sequences = sequences
        self.chunks = chunks
        self.num_steps = 0
        self.stop_token_ids = frozenset().union(*[each.stop_token_ids for each in sequences])
        self._first_R = np.array([chunk.start for chunk in chunks])
        # Step n gives the token at first + n + 1, which must not be the last of its stream.
        self._most_steps = min(
            each.max_length - 3 - chunk.start for each, chunk in zip(sequences, chunks, strict=True)
        )
        self._request_ids = [each.sequence_id.request_id for each in sequences]
        self._indices = [each.sequence_index for each in sequences]
        self._num_cached = [each.num_cached_tokens or 0 for each in sequences]
        self._queue_seconds = [each.queue_seconds for each in sequences]

    def advance(
        self, blocks: BlockManager, work: StepWork, now: float
    ) -> tuple[TableChange, ...] | None:
        """Plan one more token of each stream, as `schedule` does; None, and nothing, if it can't.

        It can't where a stream will end, or blocks are short.
        """
        if self.num_steps >= self._most_steps:
            return None
        size, sequences = blocks.block_size, self.sequences
        start_R = self._first_R + (self.num_steps + 1)
        starts = start_R.tolist()
        places = blocks.changes_at(start_R)
        num_new = sum(starts[i] >= len(sequences[i].tables.groups[0]) * size for i in places)
        if num_new * len(sequences[0].tables.groups) > blocks.pool.num_available:
            return None
        self.num_steps += 1
        changes = [self._change(i, starts[i], blocks) for i in places]
        for sequence, start in zip(sequences, starts, strict=True):
            sequence.num_known_tokens = start
            sequence.num_planned_tokens = start + 1
            sequence.num_in_flight += 1
            sequence.num_pending_tokens += 1
            sequence.served = now
        _count(work, start_R)
        return tuple(changes)

    def _change(self, place: int, start: int, blocks: BlockManager) -> TableChange:
        """Let a table reach a position, and its windows leave what they don't see from there."""
        sequence = self.sequences[place]
        tables, known = sequence.tables, sequence.num_known_blocks
        blocks.slide(tables, start)
        blocks.allocate(tables, start + 1)
        sequence.num_known_blocks = len(tables.groups[0])
        is_longer = sequence.num_known_blocks > known
        new_blocks = tuple(tuple(table[known:]) for table in tables.groups) if is_longer else ()
        return TableChange(place, new_blocks, tables.num_left)

    def take_in(
        self,
        num_steps: int,
        token_ids: list[int],
        blocks: BlockManager,
        events: list[TokenEvent],
    ) -> None:
        """Retire a step, by its number, and take in its tokens, of which none ends a stream."""
        end_R = self._first_R + num_steps + 1
        for sequence, token_id, end in zip(self.sequences, token_ids, end_R.tolist(), strict=True):
            sequence.num_in_flight -= 1
            sequence.num_pending_tokens -= 1
            sequence.token_ids.append(token_id)
            sequence.num_computed_tokens = end
        for i in np.flatnonzero(end_R % blocks.block_size == 0).tolist():
            sequence = self.sequences[i]
            blocks.commit(sequence.tables, sequence.token_ids, sequence.num_computed_tokens)
        never, nothing = repeat(None), repeat(())
        fields = zip(
            *(self._request_ids, self._indices, zip(token_ids), nothing, never, self._num_cached),
            *(never, never, never, self._queue_seconds, nothing),
            strict=False,
        )
        events += map(_new_event, fields)  # a call of TokenEvent takes four times as long


def _are_plain(sequences: Iterable[SequenceState]) -> bool:
    """Return whether nothing but a token can come of a step of streams, or their end."""
    return all(
        each.is_simple and not each.claimed and each.prompt_logprobs is None for each in sequences
    )
