"""Who is asked for how many proposals, with a clock and steps that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.sampling.constraints import MAX_ROLLBACK, Mask
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.scheduling.step_cost import StepWork
from inferno.engine.step_plan import StepPlan, StepResult
from inferno.requests import Request, SamplingParams
from tests.engine.simulation import Clock, StandIn, chunks_of

FIXED, TOKEN = 1.0, 0.02  # seconds of a step, and of each of its tokens


class Oracle(StandIn):
    """Proposes 1s, which are right; or 2s, which are wrong."""

    def __init__(self, clock: Clock, *, is_right: bool, pass_seconds: float = 0.0) -> None:
        self.clock = clock
        self.token_id = 1 if is_right else 2
        self.takes_passes = pass_seconds > 0
        self.pass_seconds = pass_seconds
        self.asked: list[int] = []
        self.forgotten: list[SequenceState] = []

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        self.clock.now += self.pass_seconds * max(most)
        self.asked += most
        return [[self.token_id] * min(room, 100) for room in most]

    def forget(self, sequence: SequenceState) -> None:
        self.forgotten.append(sequence)


class Run:
    """Requests whose model says 1, for ever; steps take the time of their tokens."""

    def __init__(self, speculation: Speculation, clock: Clock) -> None:
        self.clock = clock
        self.speculation = speculation
        self.scheduler = Scheduler(
            BlockManager(4000, 16, (None,)),
            max_num_seqs=64,
            max_num_batched_tokens=512,
            max_model_len=8000,
            speculation=speculation,
            clock=clock,
        )
        for num_tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 500):
            work = StepWork()
            work.add(0, 1, num_tokens - 1)
            for _ in range(20):
                self.scheduler.costs.observe(work, FIXED + TOKEN * num_tokens)

    def add(self, number: int, num_tokens: int = 4000) -> None:
        for index in range(number):
            params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
            self.scheduler.add(Request(request_id=str(index), prompt_token_ids=(5,), params=params))

    def step(self) -> StepPlan:
        plan = self.scheduler.plan()
        chunks = chunks_of(self.scheduler, plan)
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        seconds = FIXED + TOKEN * num_tokens
        self.clock.now += seconds
        self.scheduler.costs.observe(plan.work, seconds)
        results = []
        for chunk in chunks:
            stood = 0
            while chunk.proposed_token_ids[stood : stood + 1] == (1,):
                stood += 1
            results.append(StepResult((1,) * (stood + 1)))
        self.scheduler.commit(plan, results)
        self.scheduler.take_events()
        return plan

    def steps(self, number: int) -> tuple[int, float]:
        """Return how many tokens steps gave, and the seconds that they took."""
        before, began = self._length(), self.clock.now
        for _ in range(number):
            self.step()
        return self._length() - before, self.clock.now - began

    def _length(self) -> int:
        return sum(len(each.token_ids) for each in self.scheduler._running)


def test_who_is_right_proposes_as_much_as_a_step_may_have() -> None:
    clock = Clock()
    run = Run(Speculation([Oracle(clock, is_right=True)], clock=clock), clock)
    run.add(1)
    run.steps(10)
    num_tokens, _ = run.steps(10)
    assert num_tokens >= 10 * 40


@pytest.mark.parametrize("number", [1, 8, 32])
@pytest.mark.parametrize("pass_seconds", [0.0, 0.3])
def test_who_is_wrong_costs_hardly_anything(number: int, pass_seconds: float) -> None:
    clock = Clock()
    oracle = Oracle(clock, is_right=False, pass_seconds=pass_seconds)
    run = Run(Speculation([oracle], clock=clock), clock)
    run.add(number)
    num_tokens, seconds = run.steps(500)
    assert seconds / num_tokens <= 1.02 * (FIXED + TOKEN * number) / number
    assert len(oracle.asked) > 3, "it is tried again"


def test_passes_that_cost_more_than_they_give_are_not_made() -> None:
    clock = Clock()
    dear = Oracle(clock, is_right=True, pass_seconds=3 * FIXED)
    run = Run(Speculation([dear], clock=clock), clock)
    run.add(1)
    num_tokens, seconds = run.steps(2000)
    assert seconds / num_tokens <= 1.03 * (FIXED + TOKEN)


def test_cheap_passes_of_a_model_that_is_right_pay() -> None:
    clock = Clock()
    cheap = Oracle(clock, is_right=True, pass_seconds=0.1 * FIXED)
    run = Run(Speculation([cheap], clock=clock), clock)
    run.add(4)
    run.steps(20)
    num_tokens, seconds = run.steps(20)
    assert num_tokens / seconds > 2 * 4 / (FIXED + 4 * TOKEN)


def test_who_is_asked_later_gets_what_earlier_ones_leave() -> None:
    clock = Clock()

    class Nothing(Oracle):
        name = "nothing"

        def propose(
            self, sequences: Sequence[SequenceState], most: Sequence[int]
        ) -> Sequence[Sequence[int]]:
            return [()] * len(sequences)

    second = Oracle(clock, is_right=True)
    run = Run(
        Speculation([Nothing(clock, is_right=True), second], num_tokens=3, clock=clock), clock
    )
    run.add(2)
    run.steps(5)
    assert second.asked
    assert {each.name for each in run.speculation.counts} == {"test"}


def test_an_error_of_a_proposer_costs_its_proposals_only() -> None:
    clock = Clock()

    class Broken(Oracle):
        name = "broken"

        def propose(
            self, sequences: Sequence[SequenceState], most: Sequence[int]
        ) -> Sequence[Sequence[int]]:
            raise RuntimeError("planted")

    broken, good = Broken(clock, is_right=True), Oracle(clock, is_right=True)
    run = Run(Speculation([broken, good], num_tokens=3, clock=clock), clock)
    run.add(1)
    run.steps(3)
    assert run.steps(5)[0] == 5 * 4


def test_proposers_hear_of_the_end_of_sequences_however_they_end() -> None:
    clock = Clock()
    oracle = Oracle(clock, is_right=True)
    run = Run(Speculation([oracle], clock=clock), clock)
    run.add(3, num_tokens=30)
    run.steps(2)
    run.scheduler.abort("0")
    run.steps(40)
    assert len(oracle.forgotten) == 3
    assert not run.speculation._known


def test_off_proposes_nothing() -> None:
    clock = Clock()
    oracle = Oracle(clock, is_right=True)
    run = Run(Speculation([oracle], is_on=False, clock=clock), clock)
    run.add(1)
    run.steps(5)
    assert not oracle.asked


@pytest.mark.parametrize("num_batched", [5, 9, 20])
def test_trials_and_choices_together_fit_into_a_step(num_batched: int) -> None:
    clock = Clock()

    class Half(Oracle):
        """A proposer that is right about some of the sequences."""

        def propose(
            self, sequences: Sequence[SequenceState], most: Sequence[int]
        ) -> Sequence[Sequence[int]]:
            return [
                [1 if int(each.request.request_id) % 2 else 2] * min(room, 100)
                for each, room in zip(sequences, most, strict=True)
            ]

    run = Run(Speculation([Half(clock, is_right=True)], clock=clock), clock)
    run.scheduler._limits = replace(run.scheduler._limits, max_num_batched_tokens=num_batched)
    run.add(4)
    for _ in range(200):
        plan = run.step()
        assert sum(chunk.num_tokens for chunk in plan.chunks) <= num_batched


def test_passes_of_a_model_are_charged_to_it_alone() -> None:
    clock = Clock()

    class Model(Oracle):
        name = "model"

    lookup = Oracle(clock, is_right=False)
    model = Model(clock, is_right=False, pass_seconds=2 * FIXED)
    run = Run(Speculation([lookup, model], clock=clock), clock)
    lookup.propose = lambda sequences, most: [()] * len(sequences)  # type: ignore[method-assign]
    run.add(1)
    run.steps(30)
    accounts = run.speculation._accounts
    assert accounts["model"].balance < 0 <= accounts["test"].balance


class Anything:
    """Allows every token, and notes how many were taken back at a time."""

    is_complete = True
    num_to_end = 0

    def __init__(self) -> None:
        self.most_taken_back = 0

    def mask_into(self, mask: Mask) -> None:
        mask[:] = -1

    def forced(self, most: int) -> Sequence[int]:
        return ()

    def accept(self, token_ids: Sequence[int]) -> None:
        """Allow them."""

    def rollback(self, num_tokens: int) -> None:
        self.most_taken_back = max(self.most_taken_back, num_tokens)

    def fits(self, num_tokens: int) -> bool:
        return True

    def next_to_end(self) -> int:
        return -1


def test_no_more_is_proposed_than_a_constraint_can_take_back_with_the_token_after_it() -> None:
    class All(Oracle):
        def propose(
            self, sequences: Sequence[SequenceState], most: Sequence[int]
        ) -> Sequence[Sequence[int]]:
            return [[1] * room for room in most]

    clock, constraint = Clock(), Anything()
    proposer = All(clock, is_right=True)
    scheduler = Run(Speculation([proposer], num_tokens=1000, clock=clock), clock).scheduler
    params = SamplingParams(max_tokens=2000, ignore_eos=True)
    request = Request(request_id="a", prompt_token_ids=(5,), params=params)
    scheduler.add(request, lambda _request, _index: constraint)
    for _ in range(3):
        plan = scheduler.plan()
        steering = scheduler.step_steering()
        steering.masks(32)
        [chunk] = plan.chunks
        results = [StepResult((1,) * (1 + len(chunk.proposed_token_ids)))]
        assert not steering.masks_to_redraw(results, 32)
        scheduler.commit(plan, results)
    assert constraint.most_taken_back == MAX_ROLLBACK
