"""Random operations on the scheduler, with every invariant checked after each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.kv.offload import Offload
from inferno.engine.scheduling import steady
from inferno.engine.scheduling.scheduler import PASSING_SECONDS, Scheduler
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.scheduling.step_cost import StepWork
from inferno.engine.step_plan import ScheduledChunk, StepPlan, StepResult
from inferno.errors import NeverFits
from inferno.requests import FinishReason, Request
from tests.engine.simulation import (
    Clock,
    Device,
    Guesser,
    Ledger,
    always,
    check_invariants,
    check_known,
    chunks_of,
    commit,
    fail,
    make_request,
    oracle,
)

PREFIXES = ((1, 2, 3, 4, 1, 2, 3, 4, 2, 2, 2, 2), (1, 2, 3, 4, 3, 3, 3, 3, 3, 3, 3, 3))
WINDOWS = ((None,), (None, 3), (4,), (1, None), (None, 5, 2), (7, None, None))

MAX_MODEL_LEN = 36
LEAST_STREAMS = steady.LEAST_STREAMS


@dataclass
class InFlight:
    plan: StepPlan
    chunks: Sequence[ScheduledChunk]
    results: Sequence[StepResult]


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, steps, aborts and failures in any order; at the end everyone gets what is due."""

    @initialize(
        windows=st.sampled_from(WINDOWS),
        block_size=st.sampled_from((1, 2, 3, 4)),
        num_longest=st.sampled_from((0.8, 1.0, 1.2, 1.5)),
        max_num_seqs=st.sampled_from((1, 3, 6)),
        max_num_batched_tokens=st.integers(1, 16),
        enable_prefix_cache=st.booleans(),
        depth=st.sampled_from((1, 3)),
        sizes=st.sampled_from((None, (0, 2, 1), (3, 0), (1, 4, 5))),
        hits=st.sampled_from(((0,), (1, 0), (9,), (2, 0, 1, 3))),
        priority_aging=st.sampled_from((0.0, 0.05, 1.0)),
        step_target=st.sampled_from((0.0, None, 0.02)),
        num_host_blocks=st.sampled_from((0, 3, 12, 200, 200)),
        seconds_per_block=st.sampled_from((0.0, 0.0, 0.002)),
        least_streams=st.sampled_from((1, 2, 16)),
    )
    def start(
        self,
        windows: tuple[int | None, ...],
        block_size: int,
        num_longest: float,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_prefix_cache: bool,
        depth: int,
        sizes: tuple[int, ...] | None,
        hits: tuple[int, ...],
        priority_aging: float,
        step_target: float | None,
        num_host_blocks: int,
        seconds_per_block: float,
        least_streams: int,
    ) -> None:
        steady.LEAST_STREAMS = least_streams
        self.clock = Clock()
        self.aging = priority_aging
        self.is_timed = step_target != 0.0
        self.arrivals: dict[str, float] = {}
        self.passed_since: dict[SequenceState, float] = {}
        self.windows = windows
        self.depth = depth
        self.budget = max_num_batched_tokens
        num_blocks = 1 + int(num_longest * len(windows) * MAX_MODEL_LEN / block_size)
        self.blocks = BlockManager(num_blocks, block_size, windows, enable_prefix_cache)
        guesser = None
        if sizes is not None:
            guesser = Guesser(windows, _in_turn(sizes), _in_turn(hits))
        self.scheduler = Scheduler(
            self.blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=MAX_MODEL_LEN,
            priority_aging=priority_aging,
            step_target=step_target,
            speculation=always(guesser),
            offload=Offload(self.blocks, num_host_blocks, seconds_per_block),
            clock=self.clock,
        )
        self.device = Device(block_size, windows, enable_prefix_cache)
        self.ledger = Ledger()
        self.requests: dict[str, Request] = {}
        self.ended_early: set[str] = set()  # requests that were aborted, or whose step failed
        self.in_flight: deque[InFlight] = deque()

    @rule(
        prefix=st.sampled_from(PREFIXES),
        prefix_length=st.integers(1, 12),
        tail=st.lists(st.integers(1, 4), max_size=6),
        n=st.sampled_from((1, 1, 1, 2, 3)),
        priority=st.sampled_from((0, 0, 1, 2)),
        salt=st.sampled_from(("", "", "secret")),
        max_tokens=st.sampled_from((0, 1, 9, 20, 20, None)),
        min_tokens=st.integers(0, 2),
        ignore_eos=st.sampled_from((True, True, False)),
        prompt_logprobs=st.sampled_from((None, None, 0)),
        reads_prefix_cache=st.sampled_from((True, True, False)),
    )
    def add(
        self,
        prefix: tuple[int, ...],
        prefix_length: int,
        tail: list[int],
        n: int,
        priority: int,
        salt: str,
        max_tokens: int | None,
        min_tokens: int,
        ignore_eos: bool,
        prompt_logprobs: int | None,
        reads_prefix_cache: bool,
    ) -> None:
        request = make_request(
            f"request-{len(self.requests)}",
            [*prefix[:prefix_length], *tail],
            n=n,
            priority=priority,
            cache_salt=salt,
            max_tokens=max_tokens,
            min_tokens=min_tokens if max_tokens is None else min(min_tokens, max_tokens),
            ignore_eos=ignore_eos,
            prompt_logprobs=prompt_logprobs,
            reads_prefix_cache=reads_prefix_cache,
        )
        self.device.salts[request.request_id] = salt
        try:
            self.scheduler.add(request)
        except NeverFits:
            num_tokens = min(len(request.prompt_token_ids) + (max_tokens or 99), MAX_MODEL_LEN)
            num_blocks = -(-num_tokens // self.blocks.block_size) * len(self.windows)
            assert num_blocks > self.blocks.pool.num_blocks, "it would fit"
            return
        self.requests[request.request_id] = request
        self.arrivals[request.request_id] = self.clock()

    @rule(seconds=st.sampled_from((0.01, 1.0, 7.0, 30.0)))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @precondition(lambda self: not self.in_flight and self.scheduler.has_work)
    @rule(num_steps=st.integers(1, 6))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.plan()
            if self.in_flight:
                self.commit()
            self.everything_adds_up()

    @precondition(lambda self: len(self.in_flight) < self.depth)
    @rule()
    def plan(self) -> None:
        waiting = list(self.scheduler._waiting)
        ready = {sample for sample in waiting if self.scheduler._is_ready(sample)}
        streams = [
            sample
            for sample in self.scheduler._running
            if sample.is_stream and sample.num_uncomputed_tokens
        ]
        num_preemptions = self.scheduler.num_preemptions
        num_available = self.blocks.pool.num_available
        plan = self.scheduler.plan()
        chunks = chunks_of(self.scheduler, plan)
        self.check_plan(plan, chunks)
        self.check_passing(waiting, ready)
        if self.scheduler.num_preemptions == num_preemptions:
            # Windows of those who were served may have left blocks since.
            num_available = min(num_available, self.blocks.pool.num_available)
            self.check_nobody_is_left_out(plan, chunks, streams, num_available)
        seconds = sum(0.001 + 0.002 * c.num_tokens + 1e-4 * c.start for c in chunks)
        self.clock.now += seconds
        self.scheduler.costs.observe(plan.work, seconds)
        if chunks:
            self.in_flight.append(InFlight(plan, chunks, self.device.run(plan)))
        else:
            assert self.in_flight or not self.scheduler._requests, "runnable, but nothing runs"
            self.ledger.note(commit(self.scheduler, plan, []))

    def check_plan(self, plan: StepPlan, chunks: Sequence[ScheduledChunk]) -> None:
        samples = [(chunk.request_id, chunk.sequence_index) for chunk in chunks]
        assert len(samples) == len(set(samples)), "a sample is scheduled twice"
        assert not self.ledger.endings.keys() & set(samples), "a finished sample is scheduled"
        assert not self.ended_early & {request_id for request_id, _ in samples}
        assert all(chunk.num_tokens > 0 for chunk in chunks)
        assert sum(chunk.num_tokens for chunk in chunks) <= self.budget
        expected = StepWork(self.blocks.longest_window)
        for chunk in chunks:
            num_proposed = len(chunk.proposed_token_ids)
            expected.add(chunk.start, chunk.num_tokens - num_proposed, num_proposed)
        assert plan.work == expected
        if plan.copies.back:
            sources = {host for host, _ in plan.copies.back}
            for step in self.in_flight:  # nobody knows yet whether it ends well
                assert not sources & {host for _, host in step.plan.copies.out}

    def outranks(self, one: SequenceState, other: SequenceState) -> bool:
        """Whether priority and age, worked out anew, put one before the other for sure."""
        first, second = one.request, other.request
        lead = float(first.priority - second.priority)
        lead += self.aging * (self.arrivals[second.request_id] - self.arrivals[first.request_id])
        order = list(self.requests)
        came_first = order.index(first.request_id) < order.index(second.request_id)
        return lead > 1e-9 or (abs(lead) <= 1e-9 and came_first)

    def check_passing(self, waiting: list[SequenceState], ready: set[SequenceState]) -> None:
        """Who is passed by lower ranks is passed for a while only, unless it was not ready."""
        admitted = [sample for sample in waiting if sample.status is Status.RUNNING]
        for sample in waiting:
            if sample.status not in (Status.WAITING, Status.PREEMPTED):
                self.passed_since.pop(sample, None)
                continue
            is_passed = any(self.outranks(sample, other) for other in admitted)
            # No longer, if the first sample of its request was preempted in this very plan.
            is_ready = sample in ready and self.scheduler._is_ready(sample)
            if is_passed and is_ready and sample.awaited is None:
                since = self.passed_since.setdefault(sample, self.clock())
                assert self.clock() - since <= PASSING_SECONDS, "passed for ever"

    def check_nobody_is_left_out(
        self,
        plan: StepPlan,
        chunks: Sequence[ScheduledChunk],
        streams: list[SequenceState],
        num_available: int,
    ) -> None:
        """Streams get their tokens, and no token of the step is left over that a prompt could use.

        Who lacks blocks gets nothing.
        """
        served = {(chunk.request_id, chunk.sequence_index) for chunk in chunks}
        left = [
            sample
            for sample in self.scheduler._running
            if self.scheduler._lacks_tokens(sample)
            and (sample.request.request_id, sample.sequence_index) not in served
        ]
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        demand = sum(
            chunk.num_tokens
            for chunk in chunks
            if any(self.is_of(sample, chunk) for sample in streams)
        ) + sum(sample.num_uncomputed_tokens for sample in left if sample in streams)
        for sample in left:
            has_time = not self.is_timed or self.scheduler.costs.expect(plan.work) is None
            is_stream = sample in streams
            if (is_stream and demand <= self.budget) or (has_time and num_tokens < self.budget):
                num_all = sample.num_planned_tokens + min(sample.num_uncomputed_tokens, self.budget)
                num_new = self.blocks.num_new_blocks(sample.tables, num_all)
                assert num_new > num_available, "it could have been served"

    def is_of(self, sample: SequenceState, chunk: ScheduledChunk) -> bool:
        return (sample.request.request_id, sample.sequence_index) == (
            chunk.request_id,
            chunk.sequence_index,
        )

    @precondition(lambda self: self.in_flight)
    @rule()
    def commit(self) -> None:
        oldest = self.in_flight.popleft()
        self.ledger.note(commit(self.scheduler, oldest.plan, oldest.results))

    @precondition(lambda self: self.requests)
    @rule(kind=st.sampled_from(("abort", "error", "fail")), choice=st.integers(0, 100))
    def mishap(self, kind: str, choice: int) -> None:
        if kind == "abort":
            self.abort(f"request-{choice % (len(self.requests) + 1)}")  # the last is unknown
        elif self.in_flight:
            oldest = self.in_flight.popleft()
            if kind == "error":
                self.commit_with_an_error(oldest, choice % len(oldest.results))
            else:
                self.fail(oldest)

    def abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)
        self.ended_early |= {request_id} & self.requests.keys()

    def commit_with_an_error(self, step: InFlight, index: int) -> None:
        results = list(step.results)
        results[index] = StepResult(error="no token is allowed")
        self.spoil([step.chunks[index]])
        self.ledger.note(commit(self.scheduler, step.plan, results))

    def fail(self, step: InFlight) -> None:
        self.spoil(step.chunks)
        self.device.host.clear()
        # A sequence that an earlier step ended has nothing to lose, nor have those beside it.
        going = [
            chunk
            for chunk in step.chunks
            if (chunk.request_id, chunk.sequence_index) not in self.ledger.endings
        ]
        self.ledger.note(fail(self.scheduler, step.plan, "the device failed"))
        self.ended_early |= {chunk.request_id for chunk in going}

    def spoil(self, chunks: Sequence[ScheduledChunk]) -> None:
        if not self.in_flight:  # else a later step may have written to the same slots
            for chunk in chunks:
                self.device.spoil(chunk)

    @invariant()
    def everything_adds_up(self) -> None:
        check_invariants(self.scheduler, self.device)
        check_known(self.scheduler, self.device)

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            steady.LEAST_STREAMS = LEAST_STREAMS

    def finish(self) -> None:
        while self.in_flight:
            self.commit()
        for _ in range(2000):
            if not self.scheduler.has_work:
                break
            self.step(1)
        assert not self.scheduler.has_work, "some request never ends"
        assert self.blocks.pool.num_available == self.blocks.pool.num_blocks
        assert self.scheduler.offload.num_used == 0
        for request in self.requests.values():
            for index in range(request.params.n):
                self.check_outcome(request, index)

    def check_outcome(self, request: Request, index: int) -> None:
        sample = (request.request_id, index)
        tokens, reason = oracle(request, index, self.windows, MAX_MODEL_LEN)
        ending = self.ledger.endings[sample]
        if ending.finish_reason in (FinishReason.ABORTED, FinishReason.ERROR):
            num_tokens = len(self.ledger.tokens[sample])
            assert self.ledger.tokens[sample] == tokens[:num_tokens]
            return
        if request.params.max_tokens is None:
            tokens, reason = self.as_far_as_the_pool_goes(request, tokens, reason)
        assert (self.ledger.tokens[sample], ending.finish_reason) == (tokens, reason)
        assert ending.stop_token_id == (tokens[-1] if reason is FinishReason.STOP else None)
        if index == 0 and request.params.prompt_logprobs is not None:
            entries = self.ledger.first_events.get(sample, ending).prompt_logprobs
            assert entries is not None
            found = [entry and entry.token_id for entry in entries]
            assert found == [None, *request.prompt_token_ids[1:]]

    def as_far_as_the_pool_goes(
        self, request: Request, tokens: list[int], reason: FinishReason
    ) -> tuple[list[int], FinishReason]:
        """The output up to the last token whose predecessors all fit into the empty pool."""
        for num_tokens in range(1, len(tokens)):
            num_computed = len(request.prompt_token_ids) + num_tokens
            if self.blocks.num_peak_blocks(num_computed, self.budget) > self.blocks.pool.num_blocks:
                return tokens[:num_tokens], FinishReason.LENGTH
        return tokens, reason


def _in_turn(numbers: Sequence[int]) -> Callable[[], int]:
    return cycle(numbers).__next__


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, database=None
)
