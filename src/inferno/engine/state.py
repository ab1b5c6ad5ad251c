"""The state of one sample of a request, as the scheduler keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from inferno.engine.blocks import BlockTables
from inferno.engine.step_plan import NewSequence, ScheduledChunk, SequenceId
from inferno.requests import FinishReason, Request, TokenLogprobs

Rank = tuple[float, int, int]  # see Scheduler; number of arrival, sample index: smallest first


class Status(Enum):
    """The status of a sample."""

    WAITING = auto()  # has not run yet
    RUNNING = auto()  # has a slot and blocks
    PREEMPTED = auto()  # lost both, and computes its tokens again when it gets new ones
    FINISHED = auto()


_SUCCESSORS = {
    Status.WAITING: {Status.RUNNING, Status.FINISHED},
    Status.RUNNING: {Status.PREEMPTED, Status.FINISHED},
    Status.PREEMPTED: {Status.RUNNING, Status.FINISHED},
    Status.FINISHED: set[Status](),
}


@dataclass(slots=True, eq=False)
class SampleState:
    """One sample: the tokens it has, and how many of them are computed. A step closes the gap.

    sequence_id         names it in plans.
    min_length          tokens it must have before a stop token can end it.
    max_length          tokens it may have.
    stop_token_ids      tokens that end it.
    num_computed_tokens counts those of steps in flight too.
    num_in_flight       chunks planned and not yet committed.
    num_cached_tokens   prompt tokens that the prefix cache spared; None before it first runs.
    arrived             when, by the scheduler's clock.
    queue_seconds       from its arrival until it got a place.
    served              when it last got tokens of a step; its arrival, before it has.
    lacked_since        since when it waits for blocks and may be passed; None if it doesn't.
    awaited             whose prompt begins alike, and how many blocks of it: it waits until those
                        are computed, and finds them in the prefix cache.
    promised            digests of the prompt's blocks while it is under way; see `awaited`.
    due                 what it was given less than its part of the steps since it runs.
    is_stream           its gap is what the last step gave, not a prompt.
    prompt_logprobs     gathered so far; None when not asked for, or handed over.
    known_epoch         the executor knows it if this is the epoch of plans; 0 never is.
    num_known_tokens    of its tokens, and num_known_blocks of each table's entries, the executor
                        knows then.
    """

    request: Request
    sample_index: int
    sequence_id: SequenceId
    rank: Rank
    min_length: int
    max_length: int
    stop_token_ids: frozenset[int]
    tables: BlockTables
    token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs | None] | None
    arrived: float
    served: float
    num_cached_tokens: int | None = None
    queue_seconds: float = 0.0
    lacked_since: float | None = None
    awaited: tuple[SampleState, int] | None = None
    promised: Sequence[bytes] = ()
    due: float = 0.0
    is_stream: bool = False
    num_computed_tokens: int = 0
    num_in_flight: int = 0
    known_epoch: int = 0
    num_known_tokens: int = 0
    num_known_blocks: int = 0
    status: Status = Status.WAITING

    @property
    def gap(self) -> int:
        """Tokens it has that are not computed."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    def move_to(self, status: Status) -> None:
        """Change the status; a move that the table doesn't have is our own mistake."""
        assert status in _SUCCESSORS[self.status], f"{self.status.name} -> {status.name}"
        self.status = status

    def start(self, num_cached_tokens: int, now: float) -> None:
        """Run, from here on, with the tokens of a cached prefix computed."""
        self.move_to(Status.RUNNING)
        self.num_computed_tokens = num_cached_tokens
        self.lacked_since = self.awaited = None
        self.due = 0.0
        self.is_stream = False
        if self.num_cached_tokens is None:
            self.queue_seconds = now - self.arrived
            self.num_cached_tokens = min(num_cached_tokens, self.num_prompt_tokens)
        if self.prompt_logprobs is not None:
            self.prompt_logprobs = []  # a preempted sample gathers them anew

    def add_prompt_logprobs(self, entries: Sequence[TokenLogprobs | None]) -> None:
        assert self.prompt_logprobs is not None, "they are handed over already"
        self.prompt_logprobs += entries

    def take_prompt_logprobs(self) -> tuple[TokenLogprobs | None, ...] | None:
        """All of them, once."""
        entries = self.prompt_logprobs
        if entries is None or len(entries) < self.num_prompt_tokens:
            return None
        self.prompt_logprobs = None
        return tuple(entries)

    def extend(self, token_ids: Sequence[int]) -> tuple[int, FinishReason | None]:
        """Take new tokens up to the first that ends the sample: how many it took, why it ended."""
        for num_taken, token_id in enumerate(token_ids, start=1):
            self.token_ids.append(token_id)
            length = len(self.token_ids)
            if length > self.min_length and token_id in self.stop_token_ids:
                return num_taken, FinishReason.STOP
            if length >= self.max_length:
                return num_taken, FinishReason.LENGTH
        return len(token_ids), None

    # What plans say of it

    def introduce(self, epoch: int) -> NewSequence:
        """Say all that an executor needs to know of it, and note that it does in this epoch."""
        tables = self.tables.groups
        self.known_epoch = epoch
        self.num_known_tokens = len(self.token_ids)
        self.num_known_blocks = len(tables[0])
        return NewSequence(
            sequence_id=self.sequence_id,
            params=self.request.params,
            eos_token_ids=self.request.eos_token_ids,
            bad_words_ids=self.request.bad_words_ids,
            num_prompt_tokens=self.num_prompt_tokens,
            token_ids=tuple(self.token_ids),
            block_tables=tuple(map(tuple, tables)),
        )

    def schedule(self, num_tokens: int) -> ScheduledChunk:
        """Say that its next tokens are to be computed, and what the executor doesn't know yet."""
        token_ids, tables, start = self.token_ids, self.tables, self.num_computed_tokens
        length, num_blocks = len(token_ids), len(tables.groups[0])
        new_blocks: tuple[tuple[int, ...], ...] = ()
        if num_blocks > self.num_known_blocks:
            new_blocks = tuple(tuple(table[self.num_known_blocks :]) for table in tables.groups)
            self.num_known_blocks = num_blocks
        new_token_ids = tuple(token_ids[self.num_known_tokens :])
        self.num_known_tokens = length
        return ScheduledChunk(
            self.sequence_id,
            start,
            num_tokens,
            new_token_ids,
            new_blocks,
            tables.num_left,
            start + num_tokens == length < self.max_length,  # wants_token
            self.prompt_logprobs is not None,  # wants_prompt_logprobs
        )
