"""Decide who computes in the next step, and how many tokens; take in the results.

One rule makes every schedule: a sample has tokens, of which so many are computed, and each step
closes part of that gap. Prefill, a chunk of it, decode and recomputing after a preemption differ
in the size of the gap only.

Places and blocks go by rank: by priority and age, then arrival, then sample index. A level of
priority is worth 1 / priority_aging seconds of age, so a steady stream of high priorities holds
nobody up for ever; ranks never change, so whoever outranks a sample once does so always. Who is to
get a place needs blocks for all its tokens, besides those that prompts under way still need. Who
lacks blocks is passed by others for PASSING_SECONDS, and by nobody after that. Places and blocks
are taken from lower priorities that are outranked too; a running sample that grows takes blocks
from whomever it outranks. So the first in rank progresses, and all that outrank it end one day.

A step's tokens go first to the streams, the samples that only lack what the last step gave them:
each gets its token. The rest goes to prompts, a level of priority after the other; who was given
nothing for 1 / priority_aging seconds counts as one level higher until it is. On a level they share
as `shares.py` tells, which also says how long a step may take. A prompt that begins like another
one under way waits for that one's blocks, and finds them in the prefix cache.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from operator import attrgetter

from inferno.engine.blocks import BlockManager, Prefix
from inferno.engine.limits import Limits
from inferno.engine.shares import StepBound, StepRoom, share_out
from inferno.engine.state import SampleState, Status
from inferno.engine.step_cost import StepCostModel, StepWork
from inferno.engine.step_plan import (
    NewSequence,
    ScheduledChunk,
    SequenceId,
    StepPlan,
    StepResult,
)
from inferno.errors import InvalidRequest
from inferno.requests import FinishReason, Request, TokenEvent, TokenLogprobs

# How long a waiting sample that lacks blocks may be passed by others.
PASSING_SECONDS = 10.0
# How many such samples a step looks at: each look takes a search of the prefix cache.
_MOST_LACKING = 4

_RANK = attrgetter("rank")


class Scheduler:
    """Owns the state of every request, from `add` to its last event.

    max_num_seqs and its like are explained in Limits.

    priority_aging  levels of priority that a second of waiting is worth; 0 keeps priorities strict.
    step_target     seconds that a step should take at most where a stream waits for it; None is
                    "auto", and 0 lets steps be as long as their tokens make them. See StepBound.
    clock           seconds, from any beginning.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        priority_aging: float = 0.0,
        step_target: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._blocks = blocks
        self.pool = blocks.pool
        self._limits = Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
        )
        self.costs = StepCostModel()
        self._bound = StepBound(self.costs, step_target, max_num_batched_tokens)
        self._is_timed = False  # whether what is due to prompts is counted in seconds
        self._aging = priority_aging
        self._clock = clock
        self._requests: dict[str, list[SampleState]] = {}
        self._running: list[SampleState] = []  # by rank
        self._waiting: list[SampleState] = []  # by rank; the preempted too
        self._computing: dict[bytes, SampleState] = {}  # blocks of prompts under way, by digest
        self._in_flight: deque[tuple[StepPlan, list[SampleState]]] = deque()
        self._epoch = 1  # see StepPlan
        self._gone: list[SequenceId] = []  # known to the executor, and to be forgotten
        self._events: list[TokenEvent] = []
        self._told: list[TokenEvent] = []  # what was taken last, until the next plan
        self._num_added = 0
        self.num_preemptions = 0

    @property
    def has_work(self) -> bool:
        """Return whether anything is left to plan, to commit or to tell."""
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
        now = self._clock()
        samples = [
            SampleState(
                request=request,
                sample_index=index,
                sequence_id=SequenceId(request.request_id, index),
                rank=(self._aging * now - request.priority, self._num_added, index),
                arrived=now,
                served=now,
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
        self._told = []
        now = self._clock()
        if self._waiting:
            self._admit_waiting(now)
        shares = self._share_out(now)
        new: list[NewSequence] = []
        chunks: list[ScheduledChunk] = []
        samples: list[SampleState] = []
        work = StepWork(self._blocks.longest_window)

        def compute(sample: SampleState, num_tokens: int) -> None:
            if sample.known_epoch != self._epoch:
                new.append(sample.introduce(self._epoch))
            chunks.append(sample.schedule(num_tokens))
            samples.append(sample)
            work.add(sample.num_computed_tokens, num_tokens)
            sample.num_computed_tokens += num_tokens
            sample.num_in_flight += 1
            sample.served = now

        # Blocks go by rank, so that nobody loses them who has a chunk already.
        for sample in [each for each in self._running if each in shares]:
            num_tokens = shares[sample]
            if sample.status is Status.RUNNING and self._allocate(sample, num_tokens):
                compute(sample, num_tokens)
        if shares and not chunks:  # they all lack blocks: the first in rank can have them
            first = next(sample for sample in self._running if sample.gap)
            num_tokens = min(first.gap, self._limits.max_num_batched_tokens)
            if self._allocate(first, num_tokens):
                compute(first, num_tokens)
        if not chunks:
            return StepPlan(self._epoch, (), (), (), work)
        plan = StepPlan(self._epoch, tuple(self._gone), tuple(new), tuple(chunks), work)
        self._gone.clear()
        self._in_flight.append((plan, samples))
        return plan

    def commit(self, plan: StepPlan, results: Sequence[StepResult]) -> list[TokenEvent]:
        """Take in what came of the oldest plan in flight: a result per chunk, in order."""
        for sample, chunk, result in zip(self._land(plan), plan.chunks, results, strict=True):
            if sample.status is not Status.FINISHED:
                self._settle(sample, chunk, result)
        return self.take_events()

    def fail(self, plan: StepPlan, message: str) -> list[TokenEvent]:
        """End every request of the oldest plan in flight: its step failed, its blocks are void."""
        for sample in self._land(plan):
            self._end(sample.request.request_id, FinishReason.ERROR, error=message)
        self.resend()
        return self.take_events()

    def fail_all(self, message: str) -> None:
        """End every request and forget all blocks: an exception left us in the midst of something.

        So nothing is trusted here but which requests there are, and what was said of them.
        """
        self._in_flight.clear()
        self._running.clear()
        self._waiting.clear()
        self._computing.clear()
        self._blocks.reset()
        self.resend()
        has_ended = {
            (event.request_id, event.sample_index)
            for event in self._events
            if event.finish_reason is not None
        }
        for request_id, samples in self._requests.items():
            for index, sample in enumerate(samples):
                if sample.status is not Status.FINISHED and (request_id, index) not in has_ended:
                    has_ended.add((request_id, index))
                    self._events.append(
                        TokenEvent(
                            request_id, index, finish_reason=FinishReason.ERROR, error=message
                        )
                    )
        self._requests.clear()

    def resend(self) -> None:
        """Have the next plans tell all, for it isn't sure what the executor has made of the last.

        They do so too where it has lost what it knew.
        """
        self._gone.clear()
        self._epoch += 1

    def take_events(self) -> list[TokenEvent]:
        """Return what has happened since the last call."""
        self._told = self._events
        self._events = []
        return self._told

    def untell(self) -> None:
        """Take back the events that were taken last: they didn't reach who asked."""
        if self._told is not self._events:
            self._events = self._told + self._events
        self._told = []

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

    def _share_out(self, now: float) -> dict[SampleState, int]:
        """Tokens of the next step: first of the streams, then of the prompts under way."""
        num_tokens = self._limits.max_num_batched_tokens
        shares: dict[SampleState, int] = {}
        short = [sample for sample in self._running if sample.gap]
        for sample in _in_turn([each for each in short if each.is_stream], num_tokens):
            shares[sample] = min(sample.gap, num_tokens)
            num_tokens -= shares[sample]
            if not num_tokens:
                return shares
        if len(shares) < len(short):
            prompts = [each for each in short if not each.is_stream]
            work = StepWork(self._blocks.longest_window)
            for sample, share in shares.items():
                work.add(sample.num_computed_tokens, share)
            room = StepRoom(self.costs, work, num_tokens, self._bound.seconds(work))
            if room.is_timed != self._is_timed:
                self._is_timed = room.is_timed
                for sample in prompts:
                    sample.due = 0.0  # it was counted in something else
            self._share_among(prompts, room, shares, now)
        return shares

    def _share_among(
        self,
        prompts: Sequence[SampleState],
        room: StepRoom,
        shares: dict[SampleState, int],
        now: float,
    ) -> None:
        """Let each level of priority take what it can use of the room that those above it left."""

        def level(sample: SampleState) -> int:
            return sample.request.priority + int(self._aging * (now - sample.served))

        is_first = True
        for _, members in groupby(sorted(prompts, key=level, reverse=True), level):
            given = share_out(list(members), room, self._blocks.block_size, is_first=is_first)
            shares |= given
            is_first = is_first and not given
            if not room.num_tokens or (given and not room.size):
                return

    # Who gets a place, and blocks

    def _admit_waiting(self, now: float) -> None:
        """Let waiting samples run, by rank, as far as places and blocks go."""
        num_lacking = index = 0
        while index < len(self._waiting):
            sample = self._waiting[index]
            if not self._has_place() and not self._lower_priorities(sample):
                return
            if not self._is_ready(sample):
                index += 1  # it lacks nothing that others could take from it
                continue
            prefix = self._find_prefix(sample)
            sample.awaited = self._find_awaited(sample, prefix)
            if sample.awaited is not None:
                index += 1
            elif self._make_room(sample, prefix):
                self._admit(index, prefix, now)  # the next one stands at this index then
            else:
                index += 1
                num_lacking += 1
                if sample.lacked_since is None:
                    sample.lacked_since = now
                is_passed = now - sample.lacked_since < PASSING_SECONDS
                if not is_passed or num_lacking == _MOST_LACKING:
                    return

    def _admit(self, index: int, prefix: Prefix, now: float) -> None:
        """Give a waiting sample its place, and the blocks of a cached prefix."""
        sample = self._waiting.pop(index)
        insort(self._running, sample, key=_RANK)
        self._blocks.share(sample.tables, prefix)
        sample.start(prefix.num_tokens, now)
        sample.promised = self._blocks.full_digests(sample.tables, sample.token_ids)
        for digest in sample.promised:
            self._computing.setdefault(digest, sample)

    def _is_ready(self, sample: SampleState) -> bool:
        """Return whether none of its chunks is in flight, and the prompt it shares is computed.

        Of a request's samples the first one computes the prompt, the others find it in the cache.
        """
        first = self._requests[sample.request.request_id][0]
        if sample.num_in_flight:
            return False
        if sample.awaited is not None:
            other, num_blocks = sample.awaited
            if other.promised and other.tables.num_committed < num_blocks:
                return False
        if sample is first or first.status is Status.FINISHED:
            return True
        num_shared = self._blocks.num_full_blocks(first.num_prompt_tokens - 1)
        return first.tables.num_committed >= num_shared

    def _find_awaited(self, sample: SampleState, prefix: Prefix) -> tuple[SampleState, int] | None:
        """Find who is about to compute blocks that would make its prefix longer, and how many."""
        num_cached = self._blocks.num_full_blocks(prefix.num_tokens)
        most = self._blocks.num_full_blocks(self._most_cached(sample))
        if num_cached == most:
            return None
        digests = self._blocks.full_digests(sample.tables, sample.token_ids, num_cached + 1)
        other = self._computing.get(digests[-1]) if digests else None
        if other is None or other.rank > sample.rank or other.tables.num_committed > num_cached:
            return None
        if other.request.priority < sample.request.priority:
            return None  # its turn may be far off
        digests = self._blocks.full_digests(sample.tables, sample.token_ids, most)
        pairs = zip(digests, other.promised, strict=False)
        return other, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _has_place(self) -> bool:
        return len(self._running) < self._limits.max_num_seqs

    def _find_prefix(self, sample: SampleState) -> Prefix:
        most = self._most_cached(sample)
        return self._blocks.find_prefix(sample.tables, sample.token_ids, most)

    def _most_cached(self, sample: SampleState) -> int:
        """Tokens that it may find in the prefix cache."""
        computes_all = sample.prompt_logprobs is not None or not sample.request.reads_prefix_cache
        return 0 if computes_all else len(sample.token_ids) - 1

    def _make_room(self, sample: SampleState, prefix: Prefix) -> bool:
        """Have a place, and blocks for all tokens, available for a waiting sample.

        If need be, and if it suffices, at the cost of lower priorities.
        """
        victims = self._lower_priorities(sample)
        num_held = sum(victim.tables.num_held for victim in victims)
        others = [other for other in self._running if other not in victims]
        num_needed = self._num_needed(sample, prefix, others)
        is_full = len(others) == self._limits.max_num_seqs
        if is_full or num_needed > self.pool.num_available + num_held:
            return False
        while not self._fits(sample, prefix):
            if not victims:
                return False  # what they held is shared with others
            self._preempt(victims.pop())
        return True

    def _fits(self, sample: SampleState, prefix: Prefix) -> bool:
        num_needed = self._num_needed(sample, prefix, self._running)
        return self._has_place() and num_needed <= self.pool.num_available

    def _num_needed(
        self, sample: SampleState, prefix: Prefix, running: Sequence[SampleState]
    ) -> int:
        """Blocks to compute all its tokens, besides those in use that it shares.

        And those that others have tokens for already, and one per table of each, to grow: or they
        would soon drive it out.
        """
        num_own = self._num_peak_blocks(sample) - self._blocks.num_in_use(prefix)
        num_promised = sum(
            max(0, self._num_peak_blocks(other) - other.tables.num_held) for other in running
        )
        return num_own + num_promised + len(running) * len(sample.tables.groups)

    def _num_peak_blocks(self, sample: SampleState) -> int:
        most = self._limits.max_num_batched_tokens
        return self._blocks.num_peak_blocks(len(sample.token_ids), most)

    def _lower_priorities(self, sample: SampleState) -> list[SampleState]:
        """The running samples whose places and blocks a waiting one may take, by rank."""
        priority = sample.request.priority
        return [other for other in self._outranked_by(sample) if other.request.priority < priority]

    def _allocate(self, sample: SampleState, num_tokens: int) -> bool:
        """Get the blocks for its next tokens, if need be from those that it outranks."""
        num_computed = sample.num_computed_tokens
        self._blocks.slide(sample.tables, num_computed)
        num_new = self._blocks.num_new_blocks(sample.tables, num_computed + num_tokens)
        while (num_missing := num_new - self.pool.num_available) > 0:
            victims = self._outranked_by(sample)
            if num_missing > sum(victim.tables.num_held for victim in victims):
                return False
            self._preempt(victims[-1])
        if num_new:
            self._blocks.allocate(sample.tables, num_computed + num_tokens)
        return True

    def _outranked_by(self, sample: SampleState) -> list[SampleState]:
        """The running samples behind it, by rank."""
        return self._running[bisect_right(self._running, sample.rank, key=_RANK) :]

    def _preempt(self, victim: SampleState) -> None:
        """Take a running sample's place and blocks."""
        del self._running[bisect_left(self._running, victim.rank, key=_RANK)]
        victim.move_to(Status.PREEMPTED)
        victim.num_computed_tokens = 0
        self._forget(victim)
        self._blocks.release(victim.tables)
        self._keep_promise(victim)
        insort(self._waiting, victim, key=_RANK)
        self.num_preemptions += 1

    def _forget(self, sample: SampleState) -> None:
        """Let the executor forget a sample, if it knows it."""
        if sample.known_epoch == self._epoch:
            self._gone.append(sample.sequence_id)
        sample.known_epoch = 0

    def _keep_promise(self, sample: SampleState) -> None:
        """Forget which blocks it was about to compute: it has computed them, or never will."""
        for digest in sample.promised:
            if self._computing.get(digest) is sample:
                del self._computing[digest]
        sample.promised = ()

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
            if sample.status is Status.RUNNING and not sample.is_stream:
                sample.is_stream = True
                self._keep_promise(sample)
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
        self._forget(sample)
        self._blocks.release(sample.tables)
        self._keep_promise(sample)
        sample.move_to(Status.FINISHED)
        request_id = sample.request.request_id
        if all(each.status is Status.FINISHED for each in self._requests[request_id]):
            del self._requests[request_id]


def _in_turn(streams: list[SampleState], num_tokens: int) -> list[SampleState]:
    """Streams by rank; where a step can't hold them all, those first that waited longest."""
    if sum(sample.gap for sample in streams) <= num_tokens:
        return streams
    return sorted(streams, key=lambda sample: (-sample.request.priority, sample.served))
