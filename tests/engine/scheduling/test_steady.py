"""Steps that go on without a change are planned in few words, and change nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling import steady
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.step_plan import StepPlan, StepResult
from inferno.requests import FinishReason, Request, TokenEvent
from tests.engine.simulation import (
    Clock,
    Device,
    Ledger,
    Windows,
    check_invariants,
    check_known,
    chunks_of,
    commit,
    fail,
    make_request,
    oracle,
)

NUM_STREAMS = steady.LEAST_STREAMS + 4
MAX_MODEL_LEN = 60


@dataclass
class Run:
    """A scheduler and its device; what the device was given, and what came of it.

    states  after each step: of each running sequence where its blocks are, and what is counted.
    """

    depth: int
    windows: Windows = (None,)
    num_blocks: int = 1000
    requests: list[Request] = field(default_factory=list)
    planned: list[list[tuple[str, int, int]]] = field(default_factory=list)
    events: list[TokenEvent] = field(default_factory=list)
    states: list[list[Any]] = field(default_factory=list)
    num_going_on: int = 0

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.scheduler = Scheduler(
            BlockManager(self.num_blocks, 4, self.windows),
            max_num_seqs=NUM_STREAMS,
            max_num_batched_tokens=256,
            max_model_len=MAX_MODEL_LEN,
            step_target=0.0,
            clock=self.clock,
        )
        self.device = Device(4, self.windows)
        self.ledger = Ledger()
        self.in_flight: deque[tuple[StepPlan, Sequence[StepResult]]] = deque()

    def add(self, num: int, length: int = 3, **params: object) -> None:
        for _ in range(num):
            index = len(self.requests)
            shared = [1, 2, 3, 4] if index % 8 == 0 else []  # whoever shares blocks waits for them
            prompt = [*shared, 1 + index % 4, *(1 + (index >> i) % 4 for i in range(length))]
            usual: dict[str, Any] = {"ignore_eos": True, "max_tokens": 40}
            request = make_request(f"request {index}", prompt, **usual | params)
            self.requests.append(request)
            self.scheduler.add(request)

    def step(self, failing: int | None = None) -> None:
        """Make a step, in which the chunk at one place may fail."""
        self.clock.now += 0.01
        plan = self.scheduler.plan()
        chunks = chunks_of(self.scheduler, plan)
        self.planned.append([(each.request_id, each.start, each.num_tokens) for each in chunks])
        self.num_going_on += plan.next is not None
        if chunks:
            results = self.device.run(plan)
            if failing is not None:
                results = list(results)
                results[failing] = StepResult(error="the chunk failed")
            self.in_flight.append((plan, results))
        while len(self.in_flight) > (self.depth if chunks else 0):
            self.commit()
        check_invariants(self.scheduler, self.device)
        check_known(self.scheduler, self.device)
        self.states.append([self.state(each) for each in self.scheduler._running])

    def state(self, sequence: SequenceState) -> tuple[Any, ...]:
        tables = sequence.tables
        return (
            *(sequence.sequence_id, tuple(map(tuple, tables.groups)), tables.num_left),
            *(tables.num_committed, sequence.num_computed_tokens, sequence.num_planned_tokens),
            *(sequence.num_pending_tokens, sequence.num_in_flight, sequence.served),
        )

    def commit(self) -> None:
        events = commit(self.scheduler, *self.in_flight.popleft())
        self.ledger.note(events)
        self.events += [event._replace(logprobs=()) for event in events]  # DrawnTokens has none

    def finish(self) -> None:
        while self.scheduler.has_work:
            self.step()

    def check_outcomes(self) -> None:
        """Every stream that wasn't ended has what it would have alone."""
        for request in self.requests:
            found = self.ledger.tokens[request.request_id, 0]
            ending = self.ledger.endings[request.request_id, 0]
            tokens, reason = oracle(request, 0, self.windows, MAX_MODEL_LEN)
            if ending.finish_reason in (FinishReason.ABORTED, FinishReason.ERROR):
                tokens, reason = tokens[: len(found)], ending.finish_reason
            assert (found, ending.finish_reason) == (tokens, reason)


CASES = [(depth, windows) for depth in (0, 1, 3) for windows in ((None,), (None, 6), (3, 9))]


@pytest.mark.parametrize(("depth", "windows"), CASES)
def test_the_steps_are_those_that_are_planned_one_by_one(
    monkeypatch: pytest.MonkeyPatch, depth: int, windows: Windows
) -> None:
    def run() -> Run:
        found = Run(depth, windows)
        found.add(NUM_STREAMS - 1)
        found.add(1, max_tokens=12)  # ends in between
        for _ in range(30):
            found.step()
        found.add(1)
        found.finish()
        return found

    found = run()
    assert found.num_going_on > 15
    found.check_outcomes()
    monkeypatch.setattr(steady, "LEAST_STREAMS", NUM_STREAMS + 1)
    one_by_one = run()
    assert one_by_one.num_going_on == 0
    assert found.planned == one_by_one.planned
    assert found.states == one_by_one.states
    assert found.events == one_by_one.events
    if windows == (None,):  # others have left the shared blocks
        assert any(event.num_cached_tokens for event in found.events)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
def test_what_happens_to_one_stream_in_between_changes_no_other(depth: int) -> None:
    found = Run(depth)
    found.add(NUM_STREAMS)
    for _ in range(20):
        found.step()
    before = found.num_going_on
    assert before >= 3
    found.scheduler.abort("request 5")
    for _ in range(8):
        found.step()
    assert found.num_going_on > before
    found.step(failing=2)
    found.finish()
    found.check_outcomes()
    reasons = [ending.finish_reason for ending in found.ledger.endings.values()]
    assert reasons.count(FinishReason.ABORTED) == reasons.count(FinishReason.ERROR) == 1
    assert reasons.count(FinishReason.LENGTH) == NUM_STREAMS - 2


def test_a_stop_token_ends_its_stream_in_the_midst() -> None:
    found = Run(1)
    found.add(NUM_STREAMS - 1)
    tokens, _ = oracle(found.requests[0], 0, found.windows, MAX_MODEL_LEN)
    stop = tokens[-1]
    found.add(1, stop_token_ids=[stop], min_tokens=15)
    found.finish()
    found.check_outcomes()
    ending = found.ledger.endings[found.requests[-1].request_id, 0]
    assert (ending.finish_reason, ending.stop_token_id) == (FinishReason.STOP, stop)
    assert len(found.ledger.tokens[found.requests[-1].request_id, 0]) > 15
    assert found.num_going_on > 15


def test_who_is_to_be_asked_for_proposals_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposer that wakes now and then has those steps planned one by one."""
    found = Run(0)
    found.scheduler.speculation = Speculation()  # as an engine of many has others
    found.add(NUM_STREAMS)
    going_on = []
    for step in range(20):
        is_awake = step in (6, 7, 12)
        monkeypatch.setattr(Speculation, "is_asleep", not is_awake)
        before = found.num_going_on
        found.step()
        going_on.append(found.num_going_on > before)
    assert not any(going_on[step] for step in (6, 7, 12))
    assert going_on[5]
    assert going_on[11]
    assert all(going_on[15:])
    found.finish()
    found.check_outcomes()


def test_a_step_that_fails_ends_its_streams_and_no_later_one_goes_on_from_it() -> None:
    found = Run(0)
    found.add(NUM_STREAMS)
    for _ in range(6):
        found.step()
    plan = found.scheduler.plan()
    assert plan.next is not None
    found.ledger.note(fail(found.scheduler, plan, "the device failed"))
    found.add(NUM_STREAMS)
    found.finish()
    found.check_outcomes()
    reasons = [ending.finish_reason for ending in found.ledger.endings.values()]
    assert reasons.count(FinishReason.ERROR) == reasons.count(FinishReason.LENGTH) == NUM_STREAMS


def test_where_blocks_are_short_steps_are_planned_one_by_one() -> None:
    found = Run(1, num_blocks=NUM_STREAMS * 5)
    found.add(NUM_STREAMS)
    found.finish()
    assert found.scheduler.num_preemptions
    assert found.num_going_on
    found.check_outcomes()
