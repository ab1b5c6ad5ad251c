"""Random operations on the scheduler, with every invariant checked after each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from inferno.engine.blocks import BlockManager
from inferno.engine.plan import ScheduledChunk, StepPlan, StepResult
from inferno.engine.scheduler import Scheduler
from inferno.errors import NeverFits
from inferno.requests import FinishReason, Request
from tests.engine.simulation import Device, Ledger, check_invariants, make_request, oracle

PREFIXES = ((1, 2, 3, 4, 1, 2, 3, 4, 2, 2, 2, 2), (1, 2, 3, 4, 3, 3, 3, 3, 3, 3, 3, 3))
WINDOWS = ((None,), (None, 3), (4,), (1, None), (None, 5, 2), (7, None, None))

MAX_MODEL_LEN = 36


@dataclass
class InFlight:
    plan: StepPlan
    results: list[StepResult]


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
        draft_sizes=st.sampled_from(((0,), (0, 2, 1), (3, 0))),
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
        draft_sizes: tuple[int, ...],
    ) -> None:
        self.windows = windows
        self.depth = depth
        self.budget = max_num_batched_tokens
        num_blocks = 1 + int(num_longest * len(windows) * MAX_MODEL_LEN / block_size)
        self.blocks = BlockManager(num_blocks, block_size, windows, enable_prefix_cache)
        self.scheduler = Scheduler(
            self.blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=MAX_MODEL_LEN,
        )
        sizes = deque(draft_sizes)
        self.device = Device(block_size, windows, enable_prefix_cache, lambda: _next_of(sizes))
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
        try:
            self.scheduler.add(request)
        except NeverFits:
            num_tokens = min(len(request.prompt_token_ids) + (max_tokens or 99), MAX_MODEL_LEN)
            num_blocks = -(-num_tokens // self.blocks.block_size) * len(self.windows)
            assert num_blocks > self.blocks.pool.num_blocks, "it would fit"
            return
        self.requests[request.request_id] = request

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
        plan = self.scheduler.plan()
        self.check_plan(plan)
        if plan.chunks:
            self.in_flight.append(InFlight(plan, self.device.run(plan)))
        else:
            assert self.in_flight or not self.scheduler._requests, "runnable, but nothing runs"
            self.ledger.note(self.scheduler.commit(plan, []))

    def check_plan(self, plan: StepPlan) -> None:
        samples = [(chunk.request_id, chunk.sample_index) for chunk in plan.chunks]
        assert len(samples) == len(set(samples)), "a sample is scheduled twice"
        assert not self.ledger.endings.keys() & set(samples), "a finished sample is scheduled"
        assert not self.ended_early & {request_id for request_id, _ in samples}
        assert all(chunk.num_tokens > 0 for chunk in plan.chunks)
        assert sum(chunk.num_tokens for chunk in plan.chunks) <= self.budget

    @precondition(lambda self: self.in_flight)
    @rule()
    def commit(self) -> None:
        oldest = self.in_flight.popleft()
        self.ledger.note(self.scheduler.commit(oldest.plan, oldest.results))

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
                self.fail(oldest.plan)

    def abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)
        self.ended_early |= {request_id} & self.requests.keys()

    def commit_with_an_error(self, step: InFlight, index: int) -> None:
        step.results[index] = StepResult(error="no token is allowed")
        self.spoil([step.plan.chunks[index]])
        self.ledger.note(self.scheduler.commit(step.plan, step.results))

    def fail(self, plan: StepPlan) -> None:
        self.spoil(plan.chunks)
        self.ledger.note(self.scheduler.fail(plan, "the device failed"))
        self.ended_early |= {chunk.request_id for chunk in plan.chunks}

    def spoil(self, chunks: Sequence[ScheduledChunk]) -> None:
        if not self.in_flight:  # else a later step may have written to the same slots
            for chunk in chunks:
                self.device.spoil(chunk)

    @invariant()
    def everything_adds_up(self) -> None:
        check_invariants(self.scheduler, self.device)

    def teardown(self) -> None:
        while self.in_flight:
            self.commit()
        for _ in range(2000):
            if not self.scheduler.has_work:
                break
            self.step(1)
        assert not self.scheduler.has_work, "some request never ends"
        assert self.blocks.pool.num_available == self.blocks.pool.num_blocks
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


def _next_of(sizes: deque[int]) -> int:
    sizes.rotate(1)
    return sizes[0]


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, database=None
)
