"""Plans are plain data: an executor that has nothing but their bytes gives the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.engine.local import executor_of
from tests.engine.simulation import Device, Windows, commit, make_request
from tests.engine.wire import WiredExecutor, encode, over_the_wire
from tests.tiny import save_tiny

VOCAB_SIZE = 96


@pytest.mark.parametrize(("windows", "num_blocks"), [((None,), 15), ((None, 5), 22), ((4,), 8)])
def test_a_plan_never_changes_after_it_was_made(windows: Windows, num_blocks: int) -> None:
    blocks = BlockManager(num_blocks, 4, windows)
    scheduler = Scheduler(blocks, max_num_seqs=5, max_num_batched_tokens=16, max_model_len=56)
    device = Device(4, windows)
    made = []
    for number in range(600):
        if number < 12:  # each takes the blocks of those before it
            prompt = range(1 + 3 * number)
            params: dict[str, Any] = {"max_tokens": 20, "n": 2, "ignore_eos": True}
            scheduler.add(make_request(str(number), prompt, priority=number, **params))
        plan = scheduler.plan()
        made.append((plan, encode(plan)))
        assert over_the_wire(plan) == plan
        commit(scheduler, plan, device.run(plan))
    assert not scheduler.has_work
    assert scheduler.num_preemptions
    assert all(encode(plan) == written for plan, written in made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a model lies, one of whose layers sees a window only."""
    folder = tmp_path_factory.mktemp("model")
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    }
    save_tiny(folder, "qwen3", head_dim=16, **windows)
    return folder


def build(folder: Path) -> Engine:
    """Build an engine of few blocks and places, so that samples are preempted and come back."""
    return build_engine(
        EngineOptions(
            model=folder,
            threads=1,
            block_size=2,
            num_blocks=40,
            max_num_seqs=5,
            max_num_batched_tokens=8,
            max_model_len=40,
            # Which schedule it is should not depend on the time that steps take.
            step_target_ms=0,
            speculative="off",
        )
    )


def build_wired(folder: Path) -> Engine:
    engine = build(folder)
    engine._executor = WiredExecutor(engine._executor)
    return engine


def request(name: str, length: int, *, priority: int = 0, **params: Any) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple((i * 7 + length) % VOCAB_SIZE for i in range(length)),
        params=SamplingParams(**{"max_tokens": 20, "seed": 5, "ignore_eos": True, **params}),
        priority=priority,
        eos_token_ids=frozenset({3, 5}),
        bad_words_ids=((4,), (7, 8), (9, 10, 11)),
    )


def requests() -> list[Request]:
    """Some that need all that a plan may tell, others that take the blocks of those."""
    penalties: dict[str, Any] = {
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.2,
    }
    return [
        request("greedy", 5, temperature=0.0),
        request("twice", 9, n=2, top_p=0.9, top_k=20, min_p=0.01, logprobs=2),
        request("scored", 12, prompt_logprobs=1),
        request("biased", 3, logit_bias={7: 2.0, 8: -1.0}, min_tokens=9, ignore_eos=False),
        request("limited", 4, allowed_token_ids=list(range(0, 96, 2)), **penalties),
        request("punished", 7, n=3, **penalties),
        request("first", 6, priority=3, temperature=1.5, stop_token_ids=[1, 2, 3]),
    ]


def run(engine: Engine) -> list[TokenEvent]:
    """Add requests while others run, and abort two; return all events but for times."""
    events: list[TokenEvent] = []
    waiting = requests()
    for number in range(400):
        if number % 2 == 0 and waiting:
            engine.add_request(waiting.pop(0))
        if number == 12:
            engine.abort("greedy")
        if number == 20:
            engine.abort("punished", 1)
        events += engine.step()
    assert not engine.has_work
    assert engine.occupancy.num_preemptions
    return [event._replace(queue_seconds=0.0) for event in events]


def test_an_executor_that_has_only_the_bytes_of_plans_gives_the_same_bits(folder: Path) -> None:
    expected = run(build(folder))
    assert run(build_wired(folder)) == expected
    reasons = {event.finish_reason for event in expected} - {None}
    assert reasons >= {FinishReason.LENGTH, FinishReason.ABORTED}
    assert FinishReason.ERROR not in reasons


def test_an_executor_forgets_who_is_gone_with_the_next_plan(folder: Path) -> None:
    engine = build(folder)
    run(engine)
    executor = executor_of(engine)
    engine.add_request(request("last", 5, repetition_penalty=1.2))
    engine.step()
    assert executor._sequences.ids == (("last", 0),)
    assert list(executor._sampler._processors._occurrences) == [("last", 0)]


def test_an_engine_may_let_go_of_memory_at_any_time(folder: Path) -> None:
    engine, expected = build(folder), run(build(folder))
    release, step = engine.release_memory, engine.step

    def released_step() -> list[TokenEvent]:
        release()
        assert not executor_of(engine)._sequences.ids
        assert not executor_of(engine)._sampler._processors._occurrences
        return step()

    engine.step = released_step  # type: ignore[method-assign]
    assert run(engine) == expected


@pytest.mark.parametrize("place", ["forward", "follow", "gone"])
def test_requests_go_on_after_the_step_of_others_failed(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who gets the id of one that failed has nothing of it."""
    names = "abcdefg"
    expected = {name: tokens_of(build(folder), name) for name in names}
    engine = build_wired(folder)
    executor = executor_of(engine)
    owner: Any = executor._runner if place == "forward" else executor._sequences
    for name in names:  # more than there are places
        engine.add_request(one_of(name))
    events = engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, lambda *_: 1 / 0)
        events += engine.step()
    failed = {each.request_id for each in events if each.finish_reason is FinishReason.ERROR}
    assert failed
    assert failed < set(names)
    for name in failed:
        engine.add_request(one_of(name))
    events = [event for event in events if event.request_id not in failed]
    while engine.has_work:
        events += engine.step()
    for name in names:
        told = [each for event in events if event.request_id == name for each in event.token_ids]
        assert told == expected[name]


def one_of(name: str) -> Request:
    return request(name, 1 + ord(name) % 5, repetition_penalty=1.5, frequency_penalty=0.3)


def tokens_of(engine: Engine, name: str) -> list[int]:
    engine.add_request(one_of(name))
    tokens: list[int] = []
    while engine.has_work:
        tokens += [each for event in engine.step() for each in event.token_ids]
    return tokens
