"""A sequence whose constraint takes long sits out; others go on, and it says what it would have."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inferno.engine.engine import Engine
from inferno.engine.sampling.constraints import Constraint, Mask
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.step_plan import StepResult
from inferno.grammar.turns import NotQuick, asker, away, quickly
from inferno.requests import FinishReason, Request, SamplingParams
from tests.engine import test_steps_ahead
from tests.engine.proposers import test_draft_model, test_early_layers
from tests.engine.test_fake_device import KINDS, on_a_device, requests_of
from tests.engine.test_steps_ahead import (
    END,
    VOCAB_SIZE,
    Key,
    KnownAnswers,
    Outcome,
    RandomGuesses,
    Shifting,
    allowed_after,
    build,
    note,
    run,
    same,
)
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    }
    save_tiny(folder, "qwen3", head_dim=16, vocab_size=VOCAB_SIZE, **windows)
    return folder


class Steered(Shifting):
    """Has tokens banned now and then, as if no end fitted, and is sure of a token now and then."""

    def __init__(self, request: Request, index: int) -> None:
        super().__init__(request, index)
        self.num_before = len(self.history)

    def fits(self, num_tokens: int) -> bool:
        is_first = len(self.history) == self.num_before
        return is_first or random.Random(f"fits {self.history}").random() < 0.6

    def next_to_end(self) -> int:
        return max(allowed_after(self.history))


class Slow(Steered):
    """Needs a while for every second answer, whichever it is."""

    def mask_into(self, mask: Mask) -> None:
        self.take_a_while("mask")
        super().mask_into(mask)

    def accept(self, token_ids: Sequence[int]) -> None:
        self.take_a_while("accept")
        super().accept(token_ids)

    def fits(self, num_tokens: int) -> bool:
        self.take_a_while("fits")
        return super().fits(num_tokens)

    def next_to_end(self) -> int:
        self.take_a_while("next")
        return super().next_to_end()

    def forced(self, most: int) -> Sequence[int]:
        self.take_a_while("forced")
        return super().forced(most)

    def take_a_while(self, name: str) -> None:
        if random.Random(f"{name} {self.history}").random() < 0.5:
            with away():
                pass


def engine_of(folder: Path, kind: Callable[[Request, int], Constraint], **options: Any) -> Engine:
    engine = build(folder, **options)
    engine._scheduler._constrain = kind
    return engine


@cache
def expected_of(folder: Path, seed: int) -> dict[Key, Outcome]:
    return run(engine_of(folder, Steered), seed)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("guesses", ["off", "none", "random", "known"])
@pytest.mark.parametrize("seed", range(3))
def test_who_sits_out_says_the_same(folder: Path, seed: int, guesses: str, depth: int) -> None:
    expected = expected_of(folder, seed)
    proposers: dict[str, Any] = {"random": RandomGuesses(), "known": KnownAnswers(expected)}
    engine = engine_of(folder, Slow, depth=depth, proposer=proposers.get(guesses))
    if guesses == "off":
        engine._scheduler.speculation = Speculation(is_on=False)
    num_late = count_late(engine)
    same(run(engine, seed), expected)
    assert engine._scheduler.num_preemptions
    assert num_late() > 20
    assert engine._scheduler.steering.is_idle


class Asked(Slow):
    """Notes whether anybody waits for a mask however long it takes."""

    num_asked = num_waited = 0

    def mask_into(self, mask: Mask) -> None:
        Asked.num_asked += 1
        Asked.num_waited += asker() is None
        super().mask_into(mask)


@pytest.mark.parametrize("kind", ["draft", "early"])
@pytest.mark.parametrize("seed", range(2))
def test_models_that_propose_wait_for_no_constraint(
    folder: Path, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asked, "num_asked", 0)
    monkeypatch.setattr(Asked, "num_waited", 0)
    expected = expected_of(folder, seed)
    if kind == "draft":
        engine, _ = test_draft_model.with_draft(folder, folder, spoil=0.1)
    else:
        engine = test_early_layers.build(folder, 1)
    engine._scheduler._constrain = Asked
    num_late = count_late(engine)
    same(run(engine, seed), expected)
    assert num_late() > 20
    [counts] = [each for each in engine._scheduler.speculation.counts if each.name != "grammar"]
    assert counts.num_stood
    assert Asked.num_asked > 100
    assert not Asked.num_waited


@pytest.mark.parametrize("kinds", list(KINDS))
@pytest.mark.parametrize("is_on", [False, True])
def test_who_sits_out_on_a_device_says_the_same(
    folder: Path, kinds: str, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_steps_ahead, "requests", requests_of(KINDS[kinds]))
    expected = run(engine_of(folder, Steered), 0)
    engine, _ = on_a_device(folder, monkeypatch)
    engine._scheduler._constrain = Slow
    engine._scheduler.speculation = Speculation(is_on=is_on)
    num_late = count_late(engine)
    same(run(engine, 0), expected)
    assert num_late() > 20


def test_tokens_are_banned_where_nobody_sits_out(folder: Path) -> None:
    """So the tests compare outputs that were steered."""
    free, steered = run(engine_of(folder, Shifting), 0), expected_of(folder, 0)
    assert any(free[key].tokens != steered[key].tokens for key in free)


class Gate(Steered):
    """Has its first end looked for until a test opens the gate."""

    gate: threading.Event

    def fits(self, num_tokens: int) -> bool:
        with away():
            self.gate.wait()
        return super().fits(num_tokens)


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def gated(gate: threading.Event) -> Callable[[Request, int], Constraint | None]:
    """Return what constrains the requests whose names begin with "slow"."""

    def constrain(request: Request, index: int) -> Constraint | None:
        if not request.request_id.startswith("slow"):
            return None
        constraint = Gate(request, index)
        constraint.gate = gate
        return constraint

    return constrain


def request(request_id: str, **params: Any) -> Request:
    given = {"max_tokens": 10, "seed": 3, "ignore_eos": True, **params}
    return Request(
        request_id=request_id,
        prompt_token_ids=(1, 2, 3, 4, 5),
        params=SamplingParams(**given),
        eos_token_ids=frozenset({END}),
    )


def admit(engine: Engine, gate: threading.Event, *requests: Request) -> None:
    gate.set()  # whether an answer fits at all is asked at admission, which waits
    engine._scheduler._constrain = gated(gate)
    for each in requests:
        engine.add_request(each)
    gate.clear()


@pytest.mark.parametrize("depth", [0, 1])
def test_others_get_their_tokens_while_one_sits_out(
    folder: Path, gate: threading.Event, depth: int
) -> None:
    slow = request("slow", logprobs=1, prompt_logprobs=1)
    alone = build(folder)
    admit(alone, gate, slow)
    gate.set()
    expected = drain(alone, {})
    engine = build(folder, depth=depth)
    admit(engine, gate, slow, request("other"))
    found: dict[Key, Outcome] = {}
    for _ in range(11 + 3 * depth):  # the prompt, with which the first token comes, and the rest
        note(engine.step(), found)
    assert found.pop(("other", 0)).ending == (FinishReason.LENGTH, None)
    assert not found
    for _ in range(3):  # there is nothing to do but to wait
        assert not engine.step()
    assert engine.has_work
    gate.set()
    assert drain(engine, found) == expected


def test_a_prompt_of_one_token_has_its_logprobs_once(folder: Path, gate: threading.Event) -> None:
    one = Request(
        request_id="slow",
        prompt_token_ids=(1,),
        params=SamplingParams(max_tokens=2, seed=3, prompt_logprobs=1),
    )
    engine = build(folder)
    admit(engine, gate, one)
    for _ in range(3):
        assert not engine.step()
    gate.set()
    assert drain(engine, {})["slow", 0].prompt_logprobs == (None,)


@pytest.mark.parametrize("opens", [False, True])
def test_who_sits_out_can_be_aborted(folder: Path, gate: threading.Event, opens: bool) -> None:
    engine = build(folder)
    admit(engine, gate, request("slow"), request("other"))
    found: dict[Key, Outcome] = {}
    for _ in range(3):
        note(engine.step(), found)
    if opens:
        gate.set()
    engine.abort("slow")
    drain(engine, found)
    assert found["slow", 0].ending == (FinishReason.ABORTED, None)
    assert len(found["other", 0].tokens) == 10
    gate.set()
    wait_for_asides()
    pool = engine._scheduler.pool
    assert pool.num_available == pool.num_blocks


def test_who_sits_out_can_be_preempted(folder: Path, gate: threading.Event) -> None:
    alone = build(folder)
    admit(alone, gate, request("slow"))
    gate.set()
    expected = drain(alone, {})
    engine = build(folder, num_blocks=8)
    admit(engine, gate, request("slow"))
    found: dict[Key, Outcome] = {}
    for _ in range(2):
        assert not engine.step()
    [sequence] = engine._scheduler._running
    engine._scheduler._preempt(sequence)
    for _ in range(3):
        assert not engine.step()
    gate.set()
    drain(engine, found)
    assert found == expected


def test_a_failing_step_and_a_close_end_what_is_worked_out(
    folder: Path, gate: threading.Event
) -> None:
    engine = build(folder)
    admit(engine, gate, request("slow 1"), request("slow 2"))
    engine.step()
    assert asides()
    engine._break = "planted"
    found: dict[Key, Outcome] = {}
    note(engine.step(), found)
    assert {each.ending[0] for each in found.values() if each.ending} == {FinishReason.ERROR}
    admit(engine, gate, request("slow 3"))
    engine.step()
    engine.close()
    gate.set()
    wait_for_asides()


def test_an_interrupt_in_the_midst_leaves_nothing_that_is_worked_out(
    folder: Path, gate: threading.Event
) -> None:
    engine = build(folder)
    admit(engine, gate, request("slow"))
    engine.step()
    steering = engine._scheduler.steering
    steering._known.clear()  # as if `forget` had come no further
    engine.close()
    assert steering.is_idle
    gate.set()
    wait_for_asides()


class Broken(Steered):
    """Fails after a while."""

    def fits(self, num_tokens: int) -> bool:
        if len(self.history) > 6:
            with away():
                pass
            raise ValueError("planted")
        return True


def test_what_fails_after_a_while_ends_one_sequence(folder: Path) -> None:
    engine = build(folder)
    engine._scheduler._constrain = lambda each, index: (
        Broken(each, index) if each.request_id == "broken" else None
    )
    engine.add_request(request("broken"))
    engine.add_request(request("other"))
    found = drain(engine, {})
    assert found["broken", 0].ending == (FinishReason.ERROR, None)
    assert found["other", 0].ending == (FinishReason.LENGTH, None)


def count_late(engine: Engine) -> Callable[[], int]:
    """Return what tells how many tokens were taken back since now."""
    late: list[int] = []
    take_in = engine._scheduler.commit

    def commit(plan: Any, results: Sequence[StepResult]) -> None:
        late.extend(
            chunk.wants_token and not result.token_ids
            for chunk, result in zip(plan.chunks, results, strict=True)
        )
        take_in(plan, results)

    engine._scheduler.commit = commit  # type: ignore[method-assign]
    return lambda: sum(late)


def drain(engine: Engine, outcomes: dict[Key, Outcome]) -> dict[Key, Outcome]:
    """Run an engine until nothing is left; return what became of its requests."""
    while engine.has_work:
        note(engine.step(), outcomes)
    return outcomes


def asides() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "inferno-aside"]


def wait_for_asides() -> None:
    for each in asides():
        each.join(30)
    assert not asides()


def test_quickly_is_over_with_its_block() -> None:
    with pytest.raises(NotQuick), quickly(), away():
        pass
    with away():
        pass
