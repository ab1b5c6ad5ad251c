"""Plan the usual step in few instructions: each running sequence computes the token it has drawn.

A server with hundreds of streams makes such steps nearly always, and a fast device does them in
milliseconds. The functions here do exactly what the scheduler's rule would do, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.scheduling.step_cost import StepWork
from inferno.engine.step_plan import ScheduledChunk, StepResult
from inferno.requests import TokenEvent


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
    window = work.window
    num_keys = 0
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
        sequence.num_known_tokens = len(token_ids)
        num_planned = sequence.num_planned_tokens = start + 1
        wants_token = num_planned < sequence.max_length
        sequence.num_in_flight += 1
        sequence.num_pending_tokens += wants_token
        sequence.served = now
        num_keys += num_planned if window is None or start < window else window + 1
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
    num = len(sequences)
    work.num_rows += num
    work.num_tokens += num
    work.num_keys += num_keys
    # A token sees the keys that its chunk reads, but for the one that has just left the window.
    work.num_pairs += (
        num_keys
        if window is None
        else sum([min(each.num_planned_tokens, window) for each in sequences])
    )
    return chunks


def retire(sequences: list[SequenceState], chunks: Sequence[ScheduledChunk]) -> list[SequenceState]:
    """Note that chunks are in flight no more, whatever their results; return their sequences."""
    for sequence, chunk in zip(sequences, chunks, strict=True):
        sequence.num_in_flight -= 1
        if chunk.proposed_token_ids:
            sequence.has_proposals = False
        elif chunk.wants_token:
            sequence.num_pending_tokens -= 1
    return sequences


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
