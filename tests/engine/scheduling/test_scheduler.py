"""Who computes when, what ends a sample, and who hears of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.scheduler import PASSING_SECONDS, Scheduler
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.scheduling.speculation import Proposer
from inferno.engine.step_plan import StepPlan, StepResult
from inferno.errors import InvalidRequest, NeverFits
from inferno.requests import FinishReason, Request, TokenEvent, TokenLogprobs
from tests.engine.simulation import (
    EOS,
    Clock,
    Device,
    StandIn,
    Windows,
    always,
    commit,
    fail,
    make_request,
    oracle,
    run_all,
)

OTHER = 7  # a token that ends nothing


def make_scheduler(
    *,
    num_blocks: int = 100,
    block_size: int = 4,
    windows: Windows = (None,),
    enable_prefix_cache: bool = True,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    max_model_len: int = 64,
    priority_aging: float = 0.0,
    proposer: Proposer | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Scheduler:
    blocks = BlockManager(num_blocks, block_size, windows, enable_prefix_cache)
    return Scheduler(
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        priority_aging=priority_aging,
        speculation=always(proposer),
        clock=clock,
    )


def shares(plan: StepPlan) -> list[tuple[str, int, int]]:
    """Who computes how many tokens from which position."""
    return [(chunk.request_id, chunk.start, chunk.num_tokens) for chunk in plan.chunks]


def answer(plan: StepPlan, *tokens: int) -> list[StepResult]:
    """The same tokens for every chunk that wants some."""
    return [StepResult(tokens if chunk.wants_token else ()) for chunk in plan.chunks]


def step(scheduler: Scheduler, *tokens: int) -> list[TokenEvent]:
    plan = scheduler.plan()
    return commit(scheduler, plan, answer(plan, *(tokens or (OTHER,))))


def endings(events: Sequence[TokenEvent]) -> list[tuple[str, FinishReason]]:
    return [(e.request_id, e.finish_reason) for e in events if e.finish_reason is not None]


# Closing the gap


def test_events_tell_how_long_their_sample_waited_for_a_place() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", range(4), max_tokens=1))
    scheduler.add(make_request("b", range(4), max_tokens=1))
    (first,) = step(scheduler)
    time.sleep(0.02)
    (second,) = step(scheduler)
    assert 0 <= first.queue_seconds < second.queue_seconds
    assert second.queue_seconds >= 0.02


def test_a_prompt_is_computed_in_chunks_of_the_budget_and_then_gives_a_token() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(10)))
    seen = []
    for _ in range(4):
        plan = scheduler.plan()
        seen.append((*shares(plan), plan.chunks[0].wants_token))
        commit(scheduler, plan, answer(plan, OTHER))
    assert seen == [
        (("a", 0, 4), False),
        (("a", 4, 4), False),
        (("a", 8, 2), True),
        (("a", 10, 1), True),
    ]


def test_decodes_and_a_chunk_of_a_prompt_share_a_step() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(make_request("a", range(3)))
    scheduler.add(make_request("b", range(2)))
    step(scheduler)
    scheduler.add(make_request("c", range(20)))
    assert shares(scheduler.plan()) == [("a", 3, 1), ("b", 2, 1), ("c", 0, 6)]


def test_several_tokens_at_once_are_all_computed_in_the_next_step() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3)))
    assert step(scheduler, 5, 6, 7)[0].token_ids == (5, 6, 7)
    assert shares(scheduler.plan()) == [("a", 3, 3)]


def test_a_plan_tells_all_of_a_new_sequence_and_then_what_has_changed() -> None:
    scheduler = make_scheduler(windows=(None, 4), block_size=2)
    request = make_request("a", range(1, 8), temperature=0.5)
    scheduler.add(request)
    plan = scheduler.plan()
    (new,), (chunk,) = plan.new, plan.chunks
    assert (new.token_ids, new.num_prompt_tokens) == ((1, 2, 3, 4, 5, 6, 7), 7)
    assert new.params == request.params
    assert [len(table) for table in new.block_tables] == [4, 4]
    assert (chunk.new_token_ids, chunk.new_blocks, chunk.num_left) == ((), (), (0, 0))
    commit(scheduler, plan, answer(plan, 9))
    plan = scheduler.plan()
    (chunk,) = plan.chunks
    assert not plan.new
    assert (chunk.new_token_ids, chunk.new_blocks, chunk.num_left) == ((9,), (), (0, 2))
    commit(scheduler, plan, answer(plan, 9))
    plan = scheduler.plan()
    (chunk,) = plan.chunks
    assert chunk.new_token_ids == (9,)
    assert [len(blocks) for blocks in chunk.new_blocks] == [1, 1]


def test_a_plan_tells_who_is_gone_once() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), n=2))
    scheduler.add(make_request("b", range(3)))
    step(scheduler)
    scheduler.add(make_request("c", range(3)))
    scheduler.abort("a", 1)
    scheduler.abort("c")  # which no plan has named yet
    assert scheduler.plan().gone == (("a", 1),)
    assert scheduler.plan().gone == ()


def test_who_is_gone_is_told_by_the_next_plan_that_computes() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), max_tokens=1))
    step(scheduler)
    assert scheduler.plan().gone == ()
    scheduler.add(make_request("a", range(5)))
    plan = scheduler.plan()
    assert plan.gone == (("a", 0),)
    assert [new.sequence_id for new in plan.new] == [("a", 0)]


def test_after_a_failure_plans_tell_all_anew() -> None:
    scheduler = make_scheduler(max_num_seqs=2, max_num_batched_tokens=6)
    for name in ("a", "b"):
        scheduler.add(make_request(name, range(3)))
    step(scheduler)
    scheduler.abort("b")
    scheduler.add(make_request("c", range(20), priority=-1))
    first = scheduler.plan()
    assert first.gone == (("b", 0),)
    commit(scheduler, first, answer(first, OTHER))
    scheduler.resend()
    second = scheduler.plan()
    assert second.epoch > first.epoch
    assert second.gone == ()
    assert [(new.sequence_id.request_id, len(new.token_ids)) for new in second.new] == [
        ("a", 5),
        ("c", 20),
    ]
    fail(scheduler, second, "the device failed")
    scheduler.add(make_request("a", range(3)))
    third = scheduler.plan()
    assert third.epoch > second.epoch
    assert third.gone == ()


def test_with_nothing_to_do_a_plan_is_empty() -> None:
    scheduler = make_scheduler()
    assert not scheduler.has_work
    plan = scheduler.plan()
    assert plan.chunks == ()
    assert commit(scheduler, plan, ()) == []


# Endings


def test_max_tokens_ends_with_length() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), max_tokens=2))
    assert endings(step(scheduler)) == []
    assert endings(step(scheduler)) == [("a", FinishReason.LENGTH)]
    assert not scheduler.has_work


def test_the_end_of_the_context_ends_with_length() -> None:
    scheduler = make_scheduler(max_model_len=5)
    scheduler.add(make_request("a", range(3), max_tokens=None))
    assert endings(step(scheduler)) == []
    assert endings(step(scheduler)) == [("a", FinishReason.LENGTH)]


def test_who_names_no_max_tokens_gets_what_the_pool_allows() -> None:
    scheduler = make_scheduler(num_blocks=2, block_size=4)
    scheduler.add(make_request("a", range(3), max_tokens=None))
    events = [event for _ in range(6) for event in step(scheduler)]
    assert [event.finish_reason for event in events] == [None] * 5 + [FinishReason.LENGTH]
    with pytest.raises(NeverFits, match="blocks"):
        scheduler.add(make_request("b", range(9), max_tokens=None))


@pytest.mark.parametrize(("ignore_eos", "stop_token_ids"), [(False, []), (True, [EOS])])
def test_a_stop_token_ends_with_stop_and_is_told(
    ignore_eos: bool, stop_token_ids: list[int]
) -> None:
    scheduler = make_scheduler()
    request = make_request("a", range(3), ignore_eos=ignore_eos, stop_token_ids=stop_token_ids)
    scheduler.add(request)
    (event,) = step(scheduler, EOS)
    assert event.token_ids == (EOS,)
    assert event.finish_reason is FinishReason.STOP
    assert event.stop_token_id == EOS


def test_ignore_eos_goes_on() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), ignore_eos=True))
    assert endings(step(scheduler, EOS)) == []


def test_a_stop_token_counts_once_min_tokens_came_before_it() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), min_tokens=2))
    assert endings(step(scheduler, EOS)) == []
    assert endings(step(scheduler, EOS)) == []
    assert endings(step(scheduler, EOS)) == [("a", FinishReason.STOP)]


def test_tokens_after_the_one_that_ends_a_sample_are_dropped() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), logprobs=0))
    plan = scheduler.plan()
    logprobs = tuple(TokenLogprobs(token, -1.0, ()) for token in (5, EOS, 6))
    (event,) = commit(scheduler, plan, [StepResult((5, EOS, 6), logprobs)])
    assert event.token_ids == (5, EOS)
    assert event.logprobs == logprobs[:2]
    assert event.finish_reason is FinishReason.STOP


def test_a_request_for_no_tokens_ends_when_its_prompt_is_computed() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4, max_model_len=6)
    scheduler.add(make_request("a", range(6), max_tokens=0))
    assert step(scheduler) == []
    plan = scheduler.plan()
    assert not plan.chunks[0].wants_token
    (event,) = commit(scheduler, plan, [StepResult()])
    assert event.token_ids == ()
    assert event.finish_reason is FinishReason.LENGTH


def test_a_failed_step_ends_its_requests_and_no_others() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(4), n=2))
    scheduler.add(make_request("b", range(4)))
    plan = scheduler.plan()
    events = fail(scheduler, plan, "the device is on fire")
    assert endings(events) == [("a", FinishReason.ERROR)] * 2
    assert {event.error for event in events} == {"the device is on fire"}
    assert shares(scheduler.plan()) == [("b", 0, 4)]


def test_nothing_of_a_failed_step_is_cached() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(20)))
    step(scheduler)
    fail(scheduler, scheduler.plan(), "the device is on fire")
    scheduler.add(make_request("b", range(20)))
    assert shares(scheduler.plan()) == [("b", 4, 4)]


def test_a_result_with_an_error_ends_that_sample_alone() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), n=2))
    plan = scheduler.plan()
    events = commit(
        scheduler, plan, [StepResult(error="no token is allowed"), StepResult((OTHER,))]
    )
    assert [(e.sequence_index, e.finish_reason, e.error) for e in events] == [
        (0, FinishReason.ERROR, "no token is allowed"),
        (1, None, None),
    ]


# Aborts


def test_an_abort_frees_everything_at_once_and_is_told_by_the_next_commit() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    scheduler.add(make_request("a", range(9), n=3))
    step(scheduler)
    scheduler.abort("a")
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)
    assert scheduler._blocks.pool.num_available == 100
    assert scheduler.has_work
    plan = scheduler.plan()
    assert plan.chunks == ()
    assert endings(commit(scheduler, plan, ())) == [("a", FinishReason.ABORTED)] * 3
    assert not scheduler.has_work


def test_one_sample_may_be_aborted_alone() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), n=2))
    step(scheduler)
    scheduler.abort("a", 0)
    plan = scheduler.plan()
    assert [chunk.sequence_index for chunk in plan.chunks] == [1]
    events = commit(scheduler, plan, answer(plan, OTHER))
    assert [(e.sequence_index, e.finish_reason) for e in events] == [
        (0, FinishReason.ABORTED),
        (1, None),
    ]


def test_an_abort_of_an_unknown_or_ended_request_is_ignored() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3), max_tokens=1))
    step(scheduler)
    scheduler.abort("a")
    scheduler.abort("b")
    assert not scheduler.has_work


def test_results_that_come_after_an_abort_are_dropped_even_if_the_id_is_used_again() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(9)))
    plan = scheduler.plan()
    scheduler.abort("a")
    scheduler.add(make_request("a", range(5, 8)))
    assert endings(commit(scheduler, plan, answer(plan, OTHER))) == [("a", FinishReason.ABORTED)]
    assert shares(scheduler.plan()) == [("a", 0, 3)]


# Refusals


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="prompt is empty") as caught:
        make_scheduler().add(make_request("a", ()))
    assert caught.value.param == "prompt"


def test_an_id_in_use_is_refused() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(3)))
    with pytest.raises(InvalidRequest, match="request_id 'a' is in use"):
        scheduler.add(make_request("a", range(3)))


def test_a_prompt_that_fills_the_context_is_refused_and_one_less_is_not() -> None:
    scheduler = make_scheduler(max_model_len=8)
    with pytest.raises(NeverFits, match="the prompt has 8 tokens"):
        scheduler.add(make_request("a", range(8)))
    scheduler.add(make_request("a", range(7)))
    assert endings(step(scheduler)) == [("a", FinishReason.LENGTH)]


@pytest.mark.parametrize("windows", [(None,), (None, None)])
def test_what_the_pool_can_just_hold_runs_and_one_token_more_is_refused(windows: Windows) -> None:
    scheduler = make_scheduler(num_blocks=3 * len(windows), windows=windows)
    scheduler.add(make_request("a", range(5), max_tokens=8, ignore_eos=True))
    run_all(scheduler, Device(4, windows))
    with pytest.raises(NeverFits, match=r"which has \d: give fewer max_tokens") as caught:
        scheduler.add(make_request("b", range(5), max_tokens=9))
    assert caught.value.param == "max_tokens"
    assert not scheduler.has_work


def test_a_prompt_that_does_not_fit_is_refused_without_max_tokens_too() -> None:
    scheduler = make_scheduler(num_blocks=3)
    with pytest.raises(NeverFits, match="30 tokens of prompt with max_tokens=1 need 8 blocks"):
        scheduler.add(make_request("a", range(30), max_tokens=None))


def test_a_window_makes_a_long_request_fit_a_small_pool() -> None:
    scheduler = make_scheduler(num_blocks=4, windows=(6,), max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(30), max_tokens=30, ignore_eos=True))
    ledger = run_all(scheduler, Device(4, (6,)))
    assert len(ledger.tokens["a", 0]) == 30


@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens", "max_model_len"])
def test_limits_below_one_are_refused(name: str) -> None:
    limits = {"max_num_seqs": 1, "max_num_batched_tokens": 1, "max_model_len": 1, name: 0}
    with pytest.raises(InvalidRequest, match=f"{name} must be at least 1"):
        Scheduler(BlockManager(4, 4), **limits)  # type: ignore[arg-type]


# Order


def test_equal_priorities_are_served_in_order_of_arrival() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8)
    for number, name in enumerate("abc"):
        scheduler.add(make_request(name, [number] * 6))
    assert shares(scheduler.plan()) == [("a", 0, 6), ("b", 0, 2)]


def test_a_short_prompt_is_computed_beside_long_ones_that_came_before_it() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=20, max_model_len=400)
    for number, name in enumerate("abc"):
        scheduler.add(make_request(name, [number] * 100))
    scheduler.add(make_request("short", [9] * 5))
    assert shares(scheduler.plan()) == [("a", 0, 15), ("short", 0, 5)]


def test_long_prompts_take_turns_with_whole_steps() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=20, max_model_len=400)
    for number, name in enumerate("abc"):
        scheduler.add(make_request(name, [number] * 100))
    seen = []
    for _ in range(6):
        plan = scheduler.plan()
        seen.append(shares(plan))
        commit(scheduler, plan, answer(plan))
    assert seen == [[(name, start, 20)] for start in (0, 20) for name in "abc"]


def test_a_stream_keeps_its_token_in_each_step_whatever_prompts_come() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4, max_model_len=400)
    scheduler.add(make_request("a", [1, 2], priority=-1))
    step(scheduler)
    for number in range(3):
        scheduler.add(make_request(str(number), [5 + number] * 30, priority=number))
    for position in range(2, 12):
        plan = scheduler.plan()
        assert ("a", position, 1) in shares(plan)
        assert sum(chunk.num_tokens for chunk in plan.chunks) == 4
        commit(scheduler, plan, answer(plan, OTHER))


def test_streams_that_a_step_cannot_hold_take_turns() -> None:
    clock = Clock()
    scheduler = make_scheduler(max_num_batched_tokens=2, clock=clock)
    for number, name in enumerate("abc"):
        scheduler.add(make_request(name, [number]))
    counts: Counter[str] = Counter()
    for _ in range(30):
        plan = scheduler.plan()
        counts.update(chunk.request_id for chunk in plan.chunks)
        commit(scheduler, plan, answer(plan, OTHER))
        clock.now += 1
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_prompt_waits_for_another_that_begins_like_it_and_finds_its_blocks() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8, max_model_len=200)
    scheduler.add(make_request("a", range(20), max_tokens=1))
    scheduler.add(make_request("b", [*range(14), 99, 98], max_tokens=1))
    scheduler.add(make_request("c", range(50, 53), max_tokens=1))
    seen = []
    for _ in range(3):
        plan = scheduler.plan()
        seen.append(shares(plan))
        commit(scheduler, plan, answer(plan, OTHER))
    assert seen == [
        [("a", 0, 5), ("c", 0, 3)],
        [("a", 5, 8)],
        [("a", 13, 4), ("b", 12, 4)],
    ]


def test_nobody_waits_for_the_beginning_of_a_lower_priority() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(make_request("a", range(20)))
    step(scheduler)
    scheduler.add(make_request("b", range(20), priority=1))
    assert shares(scheduler.plan()) == [("b", 8, 8)]


def test_a_higher_priority_goes_first_even_past_a_running_prompt() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(20)))
    step(scheduler)
    scheduler.add(make_request("b", range(50, 53), priority=1))
    assert shares(scheduler.plan()) == [("b", 0, 3), ("a", 4, 1)]


def test_who_does_not_fit_is_passed_by_smaller_ones_for_a_while() -> None:
    clock = Clock()
    scheduler = make_scheduler(num_blocks=7, clock=clock)
    scheduler.add(make_request("a", range(12), max_tokens=8, ignore_eos=True))
    scheduler.add(make_request("b", range(20, 36), max_tokens=8))
    scheduler.add(make_request("c", range(40, 42), max_tokens=1))
    assert shares(scheduler.plan()) == [("a", 0, 12), ("c", 0, 2)]
    clock.now = PASSING_SECONDS - 0.1
    scheduler.abort("c")
    scheduler.add(make_request("d", range(50, 52), max_tokens=1))
    assert ("d", 0, 2) in shares(scheduler.plan())
    clock.now = PASSING_SECONDS + 0.1
    scheduler.abort("d")
    scheduler.add(make_request("e", range(60, 62), max_tokens=1))
    assert shares(scheduler.plan()) == [("a", 13, 1)]
    assert scheduler.num_running == 1
    scheduler.abort("a")
    assert shares(scheduler.plan()) == [("b", 0, 16), ("e", 0, 2)]


def test_who_passes_is_not_driven_out_again_by_whom_it_passed() -> None:
    clock = Clock()
    scheduler = make_scheduler(num_blocks=7, clock=clock)
    scheduler.add(make_request("a", range(12), max_tokens=8, ignore_eos=True))
    scheduler.add(make_request("b", range(20, 36), max_tokens=8))
    scheduler.add(make_request("c", range(40, 42), max_tokens=9, ignore_eos=True))
    step(scheduler)
    scheduler.abort("a")
    plan = scheduler.plan()
    assert shares(plan) == [("b", 0, 16), ("c", 2, 1)]
    assert scheduler.num_preemptions == 0


def test_a_steady_stream_of_high_priorities_does_not_starve_the_rest() -> None:
    for aging, is_served in ((0.1, True), (0.0, False)):
        clock = Clock()
        scheduler = make_scheduler(max_num_seqs=1, priority_aging=aging, clock=clock)
        scheduler.add(make_request("low", range(4), max_tokens=1))
        ended = []
        for number in range(40):
            scheduler.add(make_request(f"high {number}", [9, 9, number], priority=2, max_tokens=1))
            ended += endings(step(scheduler))
            clock.now += 1
        assert (("low", FinishReason.LENGTH) in ended) is is_served
        assert ended[0] == ("high 0", FinishReason.LENGTH)


def test_a_prompt_under_way_gets_its_turn_among_higher_priorities_in_time() -> None:
    for aging, is_served in ((0.5, True), (0.0, False)):
        clock = Clock()
        scheduler = make_scheduler(
            max_num_batched_tokens=8, max_num_seqs=40, priority_aging=aging, clock=clock
        )
        scheduler.add(make_request("low", [1] * 12, max_tokens=1))
        step(scheduler)  # it is under way
        ended = []
        for number in range(10):
            scheduler.add(
                make_request(f"high {number}", [20 + number] * 8, priority=2, max_tokens=1)
            )
            clock.now += 1
            ended += endings(step(scheduler))
        assert (("low", FinishReason.LENGTH) in ended) is is_served


def test_age_protects_from_priorities_that_come_much_later() -> None:
    clock = Clock()
    scheduler = make_scheduler(max_num_seqs=1, priority_aging=0.1, clock=clock)
    scheduler.add(make_request("old", range(4)))
    step(scheduler)
    clock.now = 9.0
    scheduler.add(make_request("high", range(50, 54), priority=1))
    assert shares(scheduler.plan()) == [("high", 0, 4)]
    scheduler.abort("high")
    scheduler.plan()
    clock.now = 11.0
    scheduler.add(make_request("late", range(60, 64), priority=1))
    scheduler.plan()
    assert scheduler.num_preemptions == 1


def test_who_lacks_blocks_to_go_on_is_not_overtaken() -> None:
    scheduler = make_scheduler(num_blocks=10, block_size=1)
    scheduler.add(make_request("a", range(4), max_tokens=6))
    scheduler.add(make_request("b", range(20, 22), max_tokens=6))
    plan = scheduler.plan()
    commit(scheduler, plan, [StepResult((OTHER,)), StepResult((OTHER,) * 4)])
    scheduler.add(make_request("c", range(40, 41), max_tokens=1))
    assert shares(scheduler.plan()) == [("a", 4, 1)]
    assert scheduler.num_running == 2


def test_a_newcomer_leaves_a_block_for_the_growth_of_each_sample_above_it() -> None:
    scheduler = make_scheduler(num_blocks=6)
    scheduler.add(make_request("a", range(4), max_tokens=9))
    scheduler.add(make_request("b", range(20, 28), max_tokens=9))
    scheduler.add(make_request("c", range(40, 48), max_tokens=1))
    assert shares(scheduler.plan()) == [("a", 0, 4), ("b", 0, 8)]
    scheduler.abort("b")
    assert shares(scheduler.plan()) == [("a", 4, 1), ("c", 0, 8)]


def test_a_higher_priority_takes_the_place_of_the_lowest_ranked() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    scheduler.add(make_request("a", range(4)))
    scheduler.add(make_request("b", range(4)))
    step(scheduler)
    scheduler.add(make_request("c", range(50, 54), priority=1))
    assert shares(scheduler.plan()) == [("c", 0, 4), ("a", 4, 1)]
    assert (scheduler.num_preemptions, scheduler.num_running, scheduler.num_waiting) == (1, 2, 1)


def test_an_equal_or_lower_priority_takes_nobodys_place() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", range(4)))
    step(scheduler)
    scheduler.add(make_request("b", range(4)))
    scheduler.add(make_request("c", range(4), priority=-1))
    assert shares(scheduler.plan()) == [("a", 4, 1)]
    assert scheduler.num_preemptions == 0


def test_a_higher_priority_takes_blocks_of_the_lowest_ranked() -> None:
    scheduler = make_scheduler(num_blocks=8)
    scheduler.add(make_request("a", range(12)[:12], max_tokens=8))
    scheduler.add(make_request("b", range(20, 28), max_tokens=8))
    step(scheduler)
    scheduler.add(make_request("c", range(50, 62), priority=1, max_tokens=8))
    assert shares(scheduler.plan()) == [("c", 0, 12), ("a", 12, 1)]


def test_nobody_is_preempted_for_a_request_that_would_not_fit_all_the_same() -> None:
    scheduler = make_scheduler(num_blocks=8)
    scheduler.add(make_request("top", range(16), priority=2, max_tokens=8))
    scheduler.add(make_request("low", range(20, 28), max_tokens=8))
    step(scheduler)
    scheduler.add(make_request("mid", range(50, 70), priority=1, max_tokens=8))
    assert shares(scheduler.plan()) == [("top", 16, 1), ("low", 8, 1)]
    assert scheduler.num_preemptions == 0


def test_growth_preempts_the_lowest_ranked_which_resumes_from_the_cache() -> None:
    scheduler = make_scheduler(num_blocks=8, block_size=2, max_model_len=12)
    for name, first in (("a", 10), ("b", 20)):
        prompt = range(first, first + 5)
        scheduler.add(make_request(name, prompt, max_tokens=7, ignore_eos=True))
    plans = []
    while scheduler.has_work:
        plan = scheduler.plan()
        plans.append(shares(plan))
        commit(scheduler, plan, answer(plan, OTHER))
    assert scheduler.num_preemptions == 1
    assert plans[:5] == [
        [("a", 0, 5), ("b", 0, 5)],
        [("a", 5, 1), ("b", 5, 1)],
        [("a", 6, 1), ("b", 6, 1)],
        [("a", 7, 1), ("b", 7, 1)],
        [("a", 8, 1)],
    ]
    resumed = [plan for plan in plans[5:] if plan[0][0] == "b"]
    assert resumed[0] == [("b", 4, 5)]  # of its four full blocks "a" took two


def test_a_sample_moves_between_its_states_by_the_table_only() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", range(3)))
    (sample,) = scheduler._waiting
    seen = [sample.status]
    step(scheduler)
    seen.append(sample.status)
    scheduler.add(make_request("b", range(3), priority=1))
    step(scheduler)
    seen.append(sample.status)
    scheduler.abort("b")
    step(scheduler)
    scheduler.abort("a")
    seen.append(sample.status)
    assert seen == [Status.WAITING, Status.RUNNING, Status.PREEMPTED, Status.FINISHED]
    for status in Status:
        with pytest.raises(AssertionError, match="FINISHED -> "):
            sample.move_to(status)


# The prefix cache


def test_a_common_prefix_is_computed_once_and_told_as_cached() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(12), max_tokens=1))
    step(scheduler)
    scheduler.add(make_request("b", [*range(10), 99, 98], max_tokens=1))
    plan = scheduler.plan()
    assert shares(plan) == [("b", 8, 4)]
    (event,) = commit(scheduler, plan, answer(plan, OTHER))
    assert event.num_cached_tokens == 8


def test_without_the_prefix_cache_everything_is_computed() -> None:
    scheduler = make_scheduler(enable_prefix_cache=False)
    for name in "ab":
        scheduler.add(make_request(name, range(12), max_tokens=1))
        assert shares(scheduler.plan()) == [(name, 0, 12)]
        scheduler.abort(name)


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
def test_samples_wait_until_they_can_share_the_prompt_of_the_first(
    enable_prefix_cache: bool,
) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=6, enable_prefix_cache=enable_prefix_cache)
    scheduler.add(make_request("a", range(10), n=2))
    seen = []
    for _ in range(3):
        plan = scheduler.plan()
        seen.append([(c.sequence_index, c.start, c.num_tokens) for c in plan.chunks])
        commit(scheduler, plan, answer(plan, OTHER))
    assert seen == [[(0, 0, 6)], [(0, 6, 4)], [(0, 10, 1), (1, 8, 2)]]


def test_samples_share_full_blocks_of_the_prompt_only() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(10), n=2))
    plan = scheduler.plan()
    (first,) = plan.new
    commit(scheduler, plan, answer(plan, OTHER))
    (second,) = scheduler.plan().new
    assert first.block_tables[0][:2] == second.block_tables[0][:2]
    assert first.block_tables[0][2] != second.block_tables[0][2]


def test_samples_go_on_without_the_first_when_it_has_ended() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(make_request("a", range(20), n=2))
    plan = scheduler.plan()
    commit(scheduler, plan, [StepResult(error="no token is allowed")])
    (chunk,) = scheduler.plan().chunks
    assert (chunk.sequence_index, chunk.start) == (1, 0)


def test_prompt_logprobs_come_whole_with_the_first_token_and_read_no_cache() -> None:
    prompt = range(40, 49)
    scheduler = make_scheduler(max_num_batched_tokens=5)
    device = Device(4, (None,))
    scheduler.add(make_request("a", prompt, max_tokens=1))
    run_all(scheduler, device)
    scheduler.add(make_request("b", prompt, n=2, prompt_logprobs=0, max_tokens=2, ignore_eos=True))
    ledger = run_all(scheduler, device)
    first, second = ledger.first_events["b", 0], ledger.first_events["b", 1]
    assert first.prompt_logprobs is not None
    assert [entry and entry.token_id for entry in first.prompt_logprobs] == [None, *prompt[1:]]
    assert first.num_cached_tokens == 0
    assert second.prompt_logprobs is None
    assert second.num_cached_tokens == 8
    assert ledger.endings["b", 0].prompt_logprobs is None


def test_a_preempted_sample_gathers_its_prompt_logprobs_anew() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=5, max_num_seqs=1)
    device = Device(4, (None,))
    scheduler.add(make_request("a", range(40, 49), prompt_logprobs=0, max_tokens=1))
    plan = scheduler.plan()
    commit(scheduler, plan, device.run(plan))
    scheduler.add(make_request("b", range(3), priority=1, max_tokens=1))
    ledger = run_all(scheduler, device)
    assert scheduler.num_preemptions == 1
    entries = ledger.endings["a", 0].prompt_logprobs
    assert entries is not None
    assert [entry and entry.token_id for entry in entries] == [None, *range(41, 49)]


def test_a_request_may_ask_for_all_of_its_prompt_to_be_computed() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(12), max_tokens=1))
    step(scheduler)
    scheduler.add(make_request("b", range(12), reads_prefix_cache=False))
    assert shares(scheduler.plan()) == [("b", 0, 12)]


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", range(9), max_tokens=3))
    assert step(scheduler)[0].num_cached_tokens == 0
    scheduler.add(make_request("b", range(40, 43), priority=1, max_tokens=1))
    step(scheduler)
    plan = scheduler.plan()
    assert shares(plan) == [("a", 8, 2)]
    assert commit(scheduler, plan, answer(plan, OTHER))[0].num_cached_tokens == 0


# Steps in flight


def test_chunks_may_be_in_flight_together_and_so_may_a_token_still_to_be_drawn() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(7)))
    first, second, third = scheduler.plan(), scheduler.plan(), scheduler.plan()
    assert (shares(first), shares(second), shares(third)) == (
        [("a", 0, 4)],
        [("a", 4, 3)],
        [("a", 7, 1)],
    )
    assert third.chunks[0].new_token_ids == ()
    assert commit(scheduler, first, answer(first, OTHER)) == []
    assert commit(scheduler, second, answer(second, OTHER))[0].token_ids == (OTHER,)
    assert commit(scheduler, third, answer(third, OTHER))[0].token_ids == (OTHER,)


def test_a_step_in_flight_says_nothing_of_a_sequence_that_ended_before_it() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(1, 5)))
    first, second = scheduler.plan(), scheduler.plan()
    (event,) = commit(scheduler, first, answer(first, EOS))
    assert event.finish_reason is FinishReason.STOP
    assert commit(scheduler, second, answer(second, OTHER)) == []
    assert not scheduler.has_work
    assert scheduler.pool.num_available == scheduler.pool.num_blocks


def test_no_step_is_planned_for_a_token_beyond_the_last() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", range(1, 5), max_tokens=2, ignore_eos=True))
    plans = [scheduler.plan() for _ in range(3)]
    assert [shares(plan) for plan in plans] == [[("a", 0, 4)], [("a", 4, 1)], []]


class Repeater(StandIn):
    """Proposes what it is given."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        return [self.tokens[:room] for room in most]


def test_proposals_that_stand_are_tokens_and_others_leave_nothing() -> None:
    scheduler = make_scheduler(proposer=Repeater(5, 6, 7))
    scheduler.add(make_request("a", range(1, 5), ignore_eos=True))
    step(scheduler)
    plan = scheduler.plan()
    assert shares(plan) == [("a", 4, 4)]
    assert plan.chunks[0].proposed_token_ids == (5, 6, 7)
    assert shares(scheduler.plan()) == [], "nobody knows what comes next"
    (event,) = commit(scheduler, plan, [StepResult((5, 9))])
    assert event.token_ids == (5, 9)
    plan = scheduler.plan()
    assert shares(plan) == [("a", 6, 4)]
    assert plan.chunks[0].new_token_ids == (5, 9)


def test_proposals_take_only_what_a_step_and_the_pool_have_left() -> None:
    scheduler = make_scheduler(
        num_blocks=6, block_size=1, max_num_batched_tokens=5, proposer=Repeater(*[5] * 9)
    )
    scheduler.add(make_request("a", range(1, 3), max_tokens=4, ignore_eos=True))
    scheduler.add(make_request("b", range(1, 2), max_tokens=3, ignore_eos=True))
    step(scheduler)
    assert shares(scheduler.plan()) == [("a", 2, 2), ("b", 1, 1)]


def test_blocks_that_proposals_left_behind_go_to_others() -> None:
    repeater = Repeater(5, 5, 5)
    scheduler = make_scheduler(num_blocks=9, block_size=1, proposer=repeater)
    scheduler.add(make_request("a", range(1, 3), max_tokens=8, ignore_eos=True))
    step(scheduler)
    plan = scheduler.plan()
    assert shares(plan) == [("a", 2, 4)]
    commit(scheduler, plan, [StepResult((9,))])
    assert scheduler.pool.num_available == 3
    repeater.tokens = ()
    scheduler.add(make_request("b", range(11, 15), max_tokens=1))
    plan = scheduler.plan()
    assert shares(plan) == [("a", 3, 1), ("b", 0, 4)]
    assert plan.gone == (("a", 0),), "what the executor knows of its table is no longer true"
    assert plan.new[0].block_tables == (tuple(scheduler._running[0].tables.groups[0]),)


def test_a_token_in_flight_survives_a_preemption() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", range(9)))
    first = scheduler.plan()
    scheduler.add(make_request("b", range(40, 43), priority=1, max_tokens=1))
    second = scheduler.plan()
    assert shares(second) == [("b", 0, 3)]
    assert commit(scheduler, first, answer(first, 5))[0].token_ids == (5,)
    commit(scheduler, second, answer(second, 6))
    assert shares(scheduler.plan()) == [("a", 0, 10)]


def test_a_preempted_sample_waits_for_its_chunk_in_flight() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", range(3)))
    first = scheduler.plan()
    scheduler.add(make_request("b", range(40, 43), priority=1, max_tokens=1))
    scheduler.plan()
    scheduler.abort("b")
    assert shares(scheduler.plan()) == []
    commit(scheduler, first, answer(first, 5))
    assert shares(scheduler.plan()) == [("a", 0, 4)]


def test_plans_are_settled_in_their_order() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(7)))
    scheduler.plan()
    second = scheduler.plan()
    with pytest.raises(AssertionError, match="in the order"):
        commit(scheduler, second, answer(second, OTHER))


def test_a_token_that_nobody_wanted_is_our_own_mistake() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", range(7)))
    plan = scheduler.plan()
    with pytest.raises(AssertionError, match="where they are wanted"):
        commit(scheduler, plan, [StepResult((5,))])


# Whole runs


def crowd(seed: int, num_requests: int) -> list[Request]:
    """Requests with common prefixes, several samples, priorities and lengths."""
    rng = random.Random(seed)
    prefixes = [[rng.randrange(1, 5) for _ in range(20)] for _ in range(3)]
    return [
        make_request(
            f"request-{index}",
            [
                *rng.choice(prefixes)[: rng.randrange(20)],
                *(rng.randrange(1, 5) for _ in range(rng.randrange(1, 8))),
            ],
            n=rng.choice((1, 1, 2, 3)),
            priority=rng.choice((0, 0, 0, 1)),
            max_tokens=rng.randrange(1, 25),
            ignore_eos=rng.random() < 0.7,
        )
        for index in range(num_requests)
    ]


PRESSURES = [
    {"num_blocks": 14},
    {"num_blocks": 14, "max_num_batched_tokens": 5, "max_num_seqs": 3},
    {"num_blocks": 14, "enable_prefix_cache": False},
    {"num_blocks": 30, "windows": (None, 5)},
    {"num_blocks": 12, "windows": (6,), "max_num_batched_tokens": 3},
    {"num_blocks": 60, "block_size": 1, "windows": (3, None), "max_num_batched_tokens": 1},
    {"num_blocks": 1000},
]


@pytest.mark.parametrize("pressure", PRESSURES, ids=str)
def test_any_schedule_gives_what_each_request_gives_alone(pressure: dict[str, object]) -> None:
    requests = crowd(seed=1, num_requests=64)
    scheduler = make_scheduler(**{"max_model_len": 56, **pressure})  # type: ignore[arg-type]
    blocks = scheduler._blocks
    windows = blocks._windows
    for request in requests:
        scheduler.add(request)
    ledger = run_all(scheduler, Device(blocks.block_size, windows, blocks._enable_prefix_cache))
    assert blocks.pool.num_available == blocks.pool.num_blocks
    for request in requests:
        for index in range(request.params.n):
            found = (
                ledger.tokens[request.request_id, index],
                ledger.endings[request.request_id, index].finish_reason,
            )
            assert found == oracle(request, index, windows, 56)


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
def test_a_preempted_sample_comes_back_only_after_one_above_it_has_ended(
    enable_prefix_cache: bool,
) -> None:
    scheduler = make_scheduler(
        num_blocks=14, max_model_len=56, enable_prefix_cache=enable_prefix_cache
    )
    for request in crowd(seed=3, num_requests=40):
        scheduler.add(request)
    samples = list(scheduler._waiting)
    device = Device(4, (None,), enable_prefix_cache)
    num_ended_above: dict[SequenceState, int] = {}  # when it was preempted
    while scheduler.has_work:
        plan = scheduler.plan()
        for sample in samples:
            above = [other for other in samples if other.rank < sample.rank]
            num_ended = sum(other.status is Status.FINISHED for other in above)
            if sample.status is Status.PREEMPTED:
                num_ended_above.setdefault(sample, num_ended)
            elif sample.status is Status.RUNNING:
                assert num_ended_above.pop(sample, -1) < num_ended
        commit(scheduler, plan, device.run(plan))
    assert scheduler.num_preemptions > 10


def test_the_same_requests_give_the_same_schedule() -> None:
    def trace() -> list[StepPlan]:
        scheduler = make_scheduler(num_blocks=14, max_num_batched_tokens=9)
        device = Device(4, (None,))
        for request in crowd(seed=2, num_requests=20):
            scheduler.add(request)
        plans: list[StepPlan] = []
        while scheduler.has_work:
            plan = scheduler.plan()
            plans.append(plan)
            commit(scheduler, plan, device.run(plan))
        return plans

    assert trace() == trace()
