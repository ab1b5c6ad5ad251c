"""Who computes in the next step, and for how many tokens; and what becomes of the results.

One rule makes every schedule: a sample has tokens, of which so many are computed, and each step
closes part of that gap. Prefill, a chunk of it, decode and recomputing after a preemption differ
in the size of the gap only.

Order is strict. Samples rank by priority, then arrival, then sample index; a step serves them by
rank until its token budget is spent. Who lacks blocks, or one of the max_num_seqs places, gets them
from the lowest-ranked running samples, if it outranks them and that suffices. Otherwise it waits,
and nobody below it is admitted before it. So the highest-ranked sample progresses in every step,
and with equal priorities nobody overtakes anybody.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from inferno.engine.blocks import BlockManager, Prefix
from inferno.engine.limits import Limits
from inferno.engine.plan import ScheduledChunk, StepPlan, StepResult
from inferno.engine.state import SampleState, Status
from inferno.errors import InvalidRequest
from inferno.requests import FinishReason, Request, TokenEvent, TokenLogprobs

_RANK = attrgetter("rank")


class Scheduler:
    """Owns the state of every request, from `add` to its last event.

    The numbers are explained in Limits.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
    ) -> None:
        self._blocks = blocks
        self.pool = blocks.pool
        self._limits = Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
        )
        self._requests: dict[str, list[SampleState]] = {}
        self._running: list[SampleState] = []  # by rank
        self._waiting: list[SampleState] = []  # by rank; the preempted too
        self._in_flight: deque[tuple[StepPlan, list[SampleState]]] = deque()
        self._events: list[TokenEvent] = []
        self._num_added = 0
        self.num_preemptions = 0

    @property
    def has_work(self) -> bool:
        """Whether anything is left to plan, to commit or to tell."""
        return bool(self._requests or self._in_flight or self._events)

    @property
    def num_running(self) -> int:
        """Samples that have a place and blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Samples that have neither, or not any more."""
        return len(self._waiting)

    # Requests come and go

    def add(self, request: Request) -> None:
        """Queue a request; its token ids are 32-bit, unsigned.

        Raises InvalidRequest for an empty prompt or an id in use, NeverFits for a request that the
        context or the block pool could not hold even alone.
        """
        if request.request_id in self._requests:
            raise InvalidRequest(
                f"request_id {request.request_id!r} is in use: choose another, or wait for its end",
                param="request_id",
            )
        self._limits.check(request, self._blocks)
        params = request.params
        root = self._blocks.new_root(request.cache_salt)
        eos_token_ids = frozenset[int]() if params.ignore_eos else request.eos_token_ids
        stop_token_ids = eos_token_ids.union(params.stop_token_ids)
        wants_prompt_logprobs = params.prompt_logprobs is not None
        samples = [
            SampleState(
                request=request,
                sample_index=index,
                rank=(-request.priority, self._num_added, index),
                min_length=len(request.prompt_token_ids) + params.min_tokens,
                max_length=self._limits.max_length(request, self._blocks),
                stop_token_ids=stop_token_ids,
                tables=self._blocks.new_tables(root),
                token_ids=list(request.prompt_token_ids),
                prompt_logprobs=[] if index == 0 and wants_prompt_logprobs else None,
            )
            for index in range(params.n)
        ]
        self._num_added += 1
        self._requests[request.request_id] = samples
        for sample in samples:
            insort(self._waiting, sample, key=_RANK)

    def abort(self, request_id: str, sample_index: int | None = None) -> None:
        """End a request or one of its samples at once, if it is there; the next commit tells."""
        self._end(request_id, FinishReason.ABORTED, sample_index=sample_index)

    # A step

    def plan(self) -> StepPlan:
        """Share out the next step's tokens, and count them as computed."""
        chunks: list[ScheduledChunk] = []
        samples: list[SampleState] = []
        budget = self._limits.max_num_batched_tokens
        for sample in self._turns():
            num_tokens = min(sample.gap, budget)
            if num_tokens and self._allocate(sample, num_tokens):
                chunks.append(_chunk(sample, num_tokens))
                samples.append(sample)
                sample.num_computed_tokens += num_tokens
                sample.num_in_flight += 1
                budget -= num_tokens
            if not budget:
                break
        plan = StepPlan(tuple(chunks))
        if chunks:
            self._in_flight.append((plan, samples))
        return plan

    def commit(self, plan: StepPlan, results: Sequence[StepResult]) -> list[TokenEvent]:
        """Take in what came of the oldest plan in flight: a result per chunk, in order."""
        for sample, chunk, result in zip(self._land(plan), plan.chunks, results, strict=True):
            if sample.status is not Status.FINISHED:
                self._settle(sample, chunk, result)
        return self._take_events()

    def fail(self, plan: StepPlan, message: str) -> list[TokenEvent]:
        """End every request of the oldest plan in flight: its step failed, its blocks are void."""
        for sample in self._land(plan):
            self._end(sample.request.request_id, FinishReason.ERROR, error=message)
        return self._take_events()

    def _land(self, plan: StepPlan) -> list[SampleState]:
        """The samples of a plan's chunks, in flight no more."""
        if not plan.chunks:
            return []
        landed, samples = self._in_flight.popleft()
        assert landed is plan, "plans are settled in the order in which they were made"
        for sample in samples:
            sample.num_in_flight -= 1
        return samples

    # Who computes

    def _turns(self) -> Iterator[SampleState]:
        """The running samples by rank, and among them the waiting ones that can be admitted."""
        turn = 0
        is_admitting = bool(self._waiting)
        while True:
            if is_admitting and self._is_waiting_ahead_of(turn):
                is_admitting = self._admit(self._waiting[0])
            if turn == len(self._running):
                return
            sample = self._running[turn]
            yield sample
            is_admitting = is_admitting and sample.gap == 0  # who is short is not overtaken
            turn += 1

    def _is_waiting_ahead_of(self, turn: int) -> bool:
        if not self._waiting:
            return False
        return turn == len(self._running) or self._waiting[0].rank < self._running[turn].rank

    def _admit(self, sample: SampleState) -> bool:
        """Let the first waiting sample run, if there is a place, and room for all its tokens.

        Room for its first chunk would do, but those who squeeze in drive each other out again.
        """
        if not self._is_ready(sample) or not (self._has_place() or self._outranked_by(sample)):
            return False
        prefix = self._find_prefix(sample)
        if not self._make_room(sample, partial(self._num_needed, sample, prefix)):
            return False
        if not self._has_place():
            self._preempt_last()
        del self._waiting[0]
        insort(self._running, sample, key=_RANK)
        self._blocks.share(sample.tables, prefix)
        sample.start(prefix.num_tokens)
        return True

    def _is_ready(self, sample: SampleState) -> bool:
        """Whether nothing of it is in flight, and the prompt it shares has been computed.

        Of a request's samples the first one computes the prompt, the others find it in the cache.
        """
        first = self._requests[sample.request.request_id][0]
        if sample.num_in_flight:
            return False
        if sample is first or first.status is Status.FINISHED:
            return True
        num_shared = self._blocks.num_full_blocks(first.num_prompt_tokens - 1)
        return first.tables.num_committed >= num_shared

    def _has_place(self) -> bool:
        return len(self._running) < self._limits.max_num_seqs

    def _find_prefix(self, sample: SampleState) -> Prefix:
        computes_all = sample.prompt_logprobs is not None or not sample.request.reads_prefix_cache
        limit = 0 if computes_all else len(sample.token_ids) - 1
        return self._blocks.find_prefix(sample.tables, sample.token_ids, limit)

    def _num_needed(self, sample: SampleState, prefix: Prefix) -> int:
        """Blocks to compute all its tokens, besides those in use that it shares.

        And one per table of those who outrank it: or they would soon drive it out.
        """
        num_tokens = len(sample.token_ids)
        num_blocks = self._blocks.num_peak_blocks(num_tokens, self._limits.max_num_batched_tokens)
        num_above = len(self._running) - len(self._outranked_by(sample))
        num_spare = num_above * len(sample.tables.groups)
        return num_blocks - self._blocks.num_in_use(prefix) + num_spare

    def _allocate(self, sample: SampleState, num_tokens: int) -> bool:
        """Get the blocks for its next tokens, if that can be done."""
        num_computed = sample.num_computed_tokens
        self._blocks.slide(sample.tables, num_computed)
        num_new = self._blocks.num_new_blocks(sample.tables, num_computed + num_tokens)
        if num_new:
            if not self._make_room(sample, lambda: num_new):
                return False
            self._blocks.allocate(sample.tables, num_computed + num_tokens)
        return True

    def _make_room(self, sample: SampleState, num_needed: Callable[[], int]) -> bool:
        """Have that many blocks available, if need be at the cost of those it outranks."""
        while (num_missing := num_needed() - self._blocks.pool.num_available) > 0:
            victims = self._outranked_by(sample)
            if num_missing > sum(victim.tables.num_held for victim in victims):
                return False
            self._preempt_last()
        return True

    def _outranked_by(self, sample: SampleState) -> list[SampleState]:
        """The running samples that it may preempt."""
        return self._running[bisect_right(self._running, sample.rank, key=_RANK) :]

    def _preempt_last(self) -> None:
        """Take place and blocks from the lowest-ranked running sample."""
        victim = self._running.pop()
        victim.move_to(Status.PREEMPTED)
        victim.num_computed_tokens = 0
        self._blocks.release(victim.tables)
        insort(self._waiting, victim, key=_RANK)
        self.num_preemptions += 1

    # What comes of it

    def _settle(self, sample: SampleState, chunk: ScheduledChunk, result: StepResult) -> None:
        if result.error is not None:
            self._tell(sample, reason=FinishReason.ERROR, error=result.error)
            return
        num_computed = chunk.start + chunk.num_tokens
        if sample.status is Status.RUNNING:  # else it was preempted meanwhile: its blocks are gone
            self._blocks.commit(sample.tables, sample.token_ids, num_computed)
        if chunk.wants_prompt_logprobs:
            sample.add_prompt_logprobs(result.prompt_logprobs)
        assert bool(result.token_ids) == chunk.wants_token, "tokens come where they are wanted"
        if chunk.wants_token:
            num_taken, reason = sample.extend(result.token_ids)
            self._tell(sample, result.token_ids[:num_taken], result.logprobs[:num_taken], reason)
        elif num_computed == sample.max_length:  # no token was asked for
            self._tell(sample, reason=FinishReason.LENGTH)

    def _end(
        self,
        request_id: str,
        reason: FinishReason,
        *,
        sample_index: int | None = None,
        error: str | None = None,
    ) -> None:
        """End the samples of a request that go on still; or the one that is named."""
        for sample in self._requests.get(request_id, ()):
            is_meant = sample_index is None or sample.sample_index == sample_index
            if is_meant and sample.status is not Status.FINISHED:
                self._tell(sample, reason=reason, error=error)

    def _tell(
        self,
        sample: SampleState,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
        reason: FinishReason | None = None,
        error: str | None = None,
    ) -> None:
        """Note an event; one with a reason is the sample's last."""
        event = TokenEvent(
            request_id=sample.request.request_id,
            sample_index=sample.sample_index,
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_logprobs=sample.take_prompt_logprobs(),
            num_cached_tokens=sample.num_cached_tokens or 0,
            finish_reason=reason,
            stop_token_id=token_ids[-1] if reason is FinishReason.STOP else None,
            error=error,
            queue_seconds=sample.queue_seconds,
        )
        self._events.append(event)
        if reason is not None:
            self._finish(sample)

    def _finish(self, sample: SampleState) -> None:
        queue = self._running if sample.status is Status.RUNNING else self._waiting
        del queue[bisect_left(queue, sample.rank, key=_RANK)]
        self._blocks.release(sample.tables)
        sample.move_to(Status.FINISHED)
        request_id = sample.request.request_id
        if all(each.status is Status.FINISHED for each in self._requests[request_id]):
            del self._requests[request_id]

    def _take_events(self) -> list[TokenEvent]:
        events, self._events = self._events, []
        return events


def _chunk(sample: SampleState, num_tokens: int) -> ScheduledChunk:
    start, length = sample.num_computed_tokens, len(sample.token_ids)
    return ScheduledChunk(
        request=sample.request,
        sample_index=sample.sample_index,
        token_ids=sample.token_ids,
        start=start,
        num_tokens=num_tokens,
        block_tables=sample.tables.groups,
        wants_token=start + num_tokens == length < sample.max_length,
        wants_prompt_logprobs=sample.prompt_logprobs is not None,
    )
