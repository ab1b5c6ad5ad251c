"""The state of one of a request's sequences, as the scheduler keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from inferno.engine.kv.block_manager import BlockManager, BlockTables
from inferno.engine.kv.offload import OffloadedTokens
from inferno.engine.sampling.constraints import Constraint, ConstraintFactory
from inferno.engine.step_plan import NewSequence, ScheduledChunk, SequenceId
from inferno.errors import InvalidRequest
from inferno.requests import FinishReason, ProposalCounts, Request, TokenEvent, TokenLogprobs
from inferno.sampling_params import RepetitionDetection

Rank = tuple[float, int, int]  # see Scheduler; number of arrival, index: smallest first


class Status(Enum):
    """The status of a sequence."""

    WAITING = auto()  # has not run yet
    RUNNING = auto()  # has a place and blocks
    PREEMPTED = auto()  # lost both; what was computed is in host memory, or computed again
    FINISHED = auto()


_SUCCESSORS = {
    Status.WAITING: {Status.RUNNING, Status.FINISHED},
    Status.RUNNING: {Status.PREEMPTED, Status.FINISHED},
    Status.PREEMPTED: {Status.RUNNING, Status.FINISHED},
    Status.FINISHED: set[Status](),
}


@dataclass(slots=True, eq=False)
class SequenceState:
    """The state of one sequence: its tokens, and how many are computed. Steps compute the rest.

    Three numbers describe it: len(token_ids) tokens are confirmed, num_computed_tokens of them are
    computed, and at most num_planned_tokens will be when the steps in flight have ended: rejected
    proposals are taken back.

    sequence_id         names the sequence in plans.
    min_length          tokens needed before a stop token can end the sequence.
    max_length          tokens allowed.
    stop_token_ids      tokens that end the sequence.
    num_pending_tokens  tokens that steps in flight will draw, if none of them is its last.
    has_proposals       a step in flight has proposals, so the number of its tokens isn't known yet.
    num_in_flight       chunks planned and not yet committed.
    is_simple           nothing but a token or the length can end the sequence.
    num_cached_tokens   prompt tokens that the prefix cache spared; None before the sequence first
                        runs.
    arrived             the time of arrival, by the scheduler's clock.
    queue_seconds       from arrival until the sequence got a place.
    served              when the sequence last got tokens of a step; before that, its arrival.
    lacked_since        since when the sequence waits for blocks and may be passed by others; None
                        if it doesn't.
    awaited             the sequence whose prompt begins alike, and how many of its blocks to wait
                        for: they are then found in the prefix cache.
    claimed             digests of the prompt's blocks that this sequence computes, for which others
                        may wait.
    due                 how much less than its fair share the sequence was given since it runs.
    is_stream           only the token of the last step is left to compute, not a prompt.
    prompt_logprobs     collected so far; None when not asked for, or handed over already.
    constraint          what the sequence may say next; None allows all.
    offloaded           computed tokens that host memory keeps during a preemption, and until the
                        next chunk, with which they are copied back; None if there are none.
    known_epoch         the executor knows the sequence if this is the epoch of plans; 0 never is.
    num_known_tokens    tokens, and num_known_blocks entries of each table, that the executor then
                        knows; it may have drawn tokens that aren't confirmed here yet.
    """

    request: Request
    sequence_index: int
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
    constraint: Constraint | None = None
    is_simple: bool = False
    num_cached_tokens: int | None = None
    queue_seconds: float = 0.0
    lacked_since: float | None = None
    awaited: tuple[SequenceState, int] | None = None
    offloaded: OffloadedTokens | None = None
    claimed: Sequence[bytes] = ()
    due: float = 0.0
    is_stream: bool = False
    num_computed_tokens: int = 0
    num_planned_tokens: int = 0
    num_pending_tokens: int = 0
    has_proposals: bool = False
    num_in_flight: int = 0
    known_epoch: int = 0
    num_known_tokens: int = 0
    num_known_blocks: int = 0
    status: Status = Status.WAITING

    @property
    def num_uncomputed_tokens(self) -> int:
        """Return the tokens that a step could compute; those that are pending count.

        The number is 0 while proposals are in flight, or where the pending token is the last one.
        """
        length = len(self.token_ids)
        if self.num_pending_tokens or self.has_proposals:
            length += self.num_pending_tokens
            if self.has_proposals or length >= self.max_length:
                return 0
        return length - self.num_planned_tokens

    @property
    def num_lasting_tokens(self) -> int:
        """Return how many tokens the steps in flight leave computed if no proposal stands."""
        if self.has_proposals:
            return min(self.num_planned_tokens, len(self.token_ids))
        return self.num_planned_tokens

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    def move_to(self, status: Status) -> None:
        """Change the status; a change that isn't in the table is our own mistake."""
        assert status in _SUCCESSORS[self.status], f"{self.status.name} -> {status.name}"
        self.status = status

    def start(self, num_cached_tokens: int, now: float) -> None:
        """Begin to run; tokens found in the prefix cache or in host memory count as computed."""
        self.move_to(Status.RUNNING)
        self.num_computed_tokens = self.num_planned_tokens = num_cached_tokens
        self.lacked_since = self.awaited = None
        self.due = 0.0
        self.is_stream = False
        if self.num_cached_tokens is None:
            self.queue_seconds = now - self.arrived
            self.num_cached_tokens = min(num_cached_tokens, self.num_prompt_tokens)
        if self.prompt_logprobs is not None and not num_cached_tokens:
            self.prompt_logprobs = []  # who computes everything again gathers them anew

    def add_prompt_logprobs(self, entries: Sequence[TokenLogprobs | None]) -> None:
        assert self.prompt_logprobs is not None, "they are handed over already"
        self.prompt_logprobs += entries

    def take_prompt_logprobs(self) -> tuple[TokenLogprobs | None, ...] | None:
        """Return all log-probabilities of the prompt, once; None on later calls."""
        entries = self.prompt_logprobs
        if entries is None or len(entries) < self.num_prompt_tokens:
            return None
        self.prompt_logprobs = None
        return tuple(entries)

    def extend(self, token_ids: Sequence[int]) -> tuple[int, FinishReason | None]:
        """Add new tokens up to one that ends the sequence; return how many, and why it ended."""
        detection = self.request.params.repetition_detection
        for num_taken, token_id in enumerate(token_ids, start=1):
            self.token_ids.append(token_id)
            length = len(self.token_ids)
            if length > self.min_length and token_id in self.stop_token_ids:
                return num_taken, FinishReason.STOP
            if length >= self.max_length:
                return num_taken, FinishReason.LENGTH
            if detection is None or length < self.min_length:
                continue
            if repeats_itself(self.token_ids, self.num_prompt_tokens, detection):
                return num_taken, FinishReason.REPETITION
        return len(token_ids), None

    def event(
        self,
        token_ids: tuple[int, ...],
        logprobs: tuple[TokenLogprobs, ...],
        reason: FinishReason | None,
        error: str | None,
        proposals: tuple[ProposalCounts, ...],
    ) -> TokenEvent:
        """Return the event that reports new tokens, with all that is reported only once."""
        return TokenEvent(
            request_id=self.request.request_id,
            sequence_index=self.sequence_index,
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_logprobs=self.take_prompt_logprobs(),
            num_cached_tokens=self.num_cached_tokens or 0,
            finish_reason=reason,
            stop_token_id=self._stop_token(token_ids, reason),
            error=error,
            queue_seconds=self.queue_seconds,
            proposals=proposals,
        )

    def _stop_token(self, token_ids: Sequence[int], reason: FinishReason | None) -> int | None:
        is_stop = reason is FinishReason.STOP and token_ids[-1] in self.stop_token_ids
        return token_ids[-1] if is_stop else None  # else a constraint's text was whole

    # Its part of a plan

    def introduce(self, epoch: int) -> NewSequence:
        """Describe the sequence for an executor, and note that it is known in this epoch."""
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

    def schedule(self, num_tokens: int, proposed: tuple[int, ...] = ()) -> ScheduledChunk:
        """Plan the next tokens, and return a chunk with all that the executor doesn't know yet.

        proposed    guesses that follow all tokens of the sequence; num_tokens doesn't count them.
        """
        token_ids, tables, start = self.token_ids, self.tables, self.num_planned_tokens
        length, num_blocks = len(token_ids), len(tables.groups[0])
        new_blocks: tuple[tuple[int, ...], ...] = ()
        if num_blocks > self.num_known_blocks:
            new_blocks = tuple(tuple(table[self.num_known_blocks :]) for table in tables.groups)
            self.num_known_blocks = num_blocks
        new_token_ids = tuple(token_ids[self.num_known_tokens :])
        self.num_known_tokens = max(self.num_known_tokens, length)
        expected = length + self.num_pending_tokens
        wants_prompt_logprobs = (
            self.prompt_logprobs is not None
            and start < self.num_prompt_tokens
            and len(self.prompt_logprobs) < self.num_prompt_tokens  # else a token was taken back
        )
        wants_token = start + num_tokens == expected < self.max_length
        self.num_in_flight += 1
        self.num_planned_tokens = start + num_tokens + len(proposed)
        if proposed:
            self.has_proposals = True
        elif wants_token:
            self.num_pending_tokens += 1
        return ScheduledChunk(
            self.sequence_id,
            start,
            num_tokens + len(proposed),
            new_token_ids,
            new_blocks,
            tables.num_left,
            wants_token,
            wants_prompt_logprobs,
            proposed,
        )

    def confirm(
        self, chunk: ScheduledChunk, token_ids: Sequence[int]
    ) -> tuple[int, FinishReason | None]:
        """Take in a chunk's result; return how many new tokens count, and why the sequence ended.

        Of the chunk's proposals all new tokens but the last stand; the others were computed in
        vain. Where a token was wanted and there is none, as it was taken back, the position that
        gives it is computed again.
        """
        num_taken, reason = self.extend(token_ids)
        if self.status is Status.RUNNING:  # else it was preempted meanwhile: its blocks are gone
            num_proposed = len(chunk.proposed_token_ids)
            computed = chunk.start + chunk.num_tokens
            if num_proposed or (chunk.wants_token and not token_ids):
                computed = min(computed - num_proposed + len(token_ids) - 1, len(self.token_ids))
                self.num_planned_tokens = computed
            self.num_computed_tokens = computed
        return num_taken, reason


def new_sequences(
    request: Request,
    *,
    order: tuple[float, int],
    arrived: float,
    max_length: int,
    blocks: BlockManager,
    constrain: ConstraintFactory | None,
) -> list[SequenceState]:
    """Return the sequences of a request that has just arrived; nothing else knows of them yet.

    order       their rank but for the last part.

    Raises InvalidRequest where a constraint can't be built.
    """
    params = request.params
    num_left = max_length - len(request.prompt_token_ids)
    root = blocks.new_root(request.cache_salt)
    is_free = params.structured is None  # a document that is complete can't go on
    eos_token_ids = frozenset[int]() if params.ignore_eos and is_free else request.eos_token_ids
    min_tokens = params.min_tokens if is_free else 0  # else bans alone put an end off
    wants_prompt_logprobs = params.prompt_logprobs is not None
    sequences = []
    for index in range(params.n):
        constraint = None
        if constrain is not None:
            constraint = _constraint(constrain, request, index, num_left)
        sequences.append(
            SequenceState(
                request=request,
                sequence_index=index,
                sequence_id=SequenceId(request.request_id, index),
                rank=(*order, index),
                arrived=arrived,
                served=arrived,
                min_length=len(request.prompt_token_ids) + min_tokens,
                max_length=max_length,
                stop_token_ids=eos_token_ids.union(params.stop_token_ids),
                tables=blocks.new_tables(root),
                token_ids=list(request.prompt_token_ids),
                prompt_logprobs=[] if index == 0 and wants_prompt_logprobs else None,
                constraint=constraint,
                is_simple=constraint is None and params.repetition_detection is None,
            )
        )
    return sequences


def repeats_itself(token_ids: Sequence[int], start: int, detection: RepetitionDetection) -> bool:
    """Return whether the tokens from `start` on end with a pattern that repeats often enough."""
    length = len(token_ids) - start
    longest = min(detection.max_pattern_size, length // detection.min_count)
    for size in range(detection.min_pattern_size, longest + 1):
        # The pattern recurs if each token but those of its first time is the one a size before.
        num_equal = size * (detection.min_count - 1)
        if all(token_ids[-i] == token_ids[-i - size] for i in range(1, num_equal + 1)):
            return True
    return False


def _constraint(
    constrain: ConstraintFactory, request: Request, index: int, num_tokens: int
) -> Constraint | None:
    """Build a sequence's constraint; refuse a budget of tokens in which no whole output fits."""
    try:
        constraint = constrain(request, index)
        if constraint is not None and num_tokens > 0 and not constraint.fits(num_tokens):
            raise InvalidRequest(
                f"max_tokens and the context leave {num_tokens:,} tokens, and the shortest answer "
                f"of this shape has {constraint.num_to_end:,}: ask for at least as many",
                param="max_tokens",
            )
        return constraint
    except InvalidRequest:
        raise
    except Exception as problem:  # whatever a grammar's library raises is this request's alone
        raise InvalidRequest(f"the constraint can't be built: {problem!r}") from problem
