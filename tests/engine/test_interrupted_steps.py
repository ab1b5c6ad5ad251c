"""Whatever is raised at whatever line of a step, the engine stays consistent and goes on."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import inferno.engine
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.local import LocalStep
from inferno.engine.step_plan import StepPlan
from inferno.errors import EngineError
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.engine.local import executor_of
from tests.tiny import save_tiny

VOCAB_SIZE = 96
FOLDER = Path(inferno.engine.__file__).parent
KINDS: tuple[type[BaseException], ...] = (
    KeyboardInterrupt,
    MemoryError,
    SystemExit,
    GeneratorExit,
    ZeroDivisionError,
)
Line = tuple[str, int]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Few blocks and places, so that samples are preempted; windows, so that blocks are left."""
    folder = tmp_path_factory.mktemp("model")
    save_tiny(
        folder,
        *("qwen3",),
        head_dim=16,
        use_sliding_window=True,
        sliding_window=6,
        max_window_layers=1,
    )
    options = EngineOptions(
        model=folder,
        threads=1,
        block_size=2,
        num_blocks=34,
        max_num_seqs=5,
        max_num_batched_tokens=8,
        max_model_len=40,
    )
    return build_engine(options)


def request(name: str, length: int, *, priority: int = 0, **params: Any) -> Request:
    asked: dict[str, Any] = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, **params}
    return Request(
        request_id=name,
        prompt_token_ids=tuple((i * 7 + length) % VOCAB_SIZE for i in range(length)),
        params=SamplingParams(**asked),
        priority=priority,
    )


def requests(name: str) -> list[Request]:
    """Some of all kinds: every branch of a step is taken while they run."""
    return [
        request(f"{name} greedy", 5),
        request(f"{name} twice", 9, n=2, seed=4, temperature=0.9, top_p=0.9, logprobs=2),
        request(f"{name} scored", 12, prompt_logprobs=1, max_tokens=0),
        request(f"{name} shaped", 3, logit_bias={7: 2.0}, min_tokens=2, repetition_penalty=1.2),
        request(f"{name} stopped", 4, stop_token_ids=list(range(0, 96, 3)), max_tokens=12),
        request(f"{name} first", 6, priority=3, max_tokens=9),
    ]


@cache
def engine_file(path: str) -> str:
    """The name of a file of the engine; empty for any other. Every line that runs asks for it."""
    return Path(path).name if Path(path).is_relative_to(FOLDER) else ""


class Interruption:
    """Raises at one line of the engine's files, the n-th time that it is reached."""

    def __init__(
        self, line: Line | None = None, turn: int = 1, kind: type[BaseException] = Exception
    ) -> None:
        self.seen: Counter[Line] = Counter()
        self.was_raised = False
        self._line, self._turn, self._kind = line, turn, kind

    def enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self.trace if engine_file(frame.f_code.co_filename) else None

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "line":
            line = engine_file(frame.f_code.co_filename), frame.f_lineno
            self.seen[line] += 1
            if line == self._line and self.seen[line] == self._turn and not self.was_raised:
                self.was_raised = True
                raise self._kind("planted")
        return self.trace


@contextmanager
def traced(interruption: Interruption) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(interruption.enter)
    try:
        yield
    finally:
        sys.settrace(before)


def run(engine: Engine, name: str, interruption: Interruption) -> list[TokenEvent]:
    """All events of `requests`, of which one is aborted on the way; nothing is raised for ever."""
    events: list[TokenEvent] = []

    def attempt(call: Callable[[], Any]) -> Any:
        try:
            with traced(interruption):
                return call()
        except BaseException as problem:
            if not interruption.was_raised or "planted" not in str(problem):
                raise
            return None

    added = [each for each in requests(name) if try_to_add(engine, each, attempt)]
    for number in itertools.count():
        assert number < 500, "it never ends"
        if not engine.has_work:
            break
        if number == 3:
            attempt(lambda: engine.abort(f"{name} greedy"))
        events += attempt(engine.step) or ()
    ended = [(e.request_id, e.sequence_index) for e in events if e.finish_reason is not None]
    expected = [(each.request_id, index) for each in added for index in range(each.params.n)]
    assert set(ended) >= set(expected), "each that was added is told its end"
    assert len(ended) == len(set(ended)), "and once"
    pool = engine._scheduler.pool
    assert pool.num_available == pool.num_blocks, "all blocks are given back"
    return events


def try_to_add(engine: Engine, one: Request, attempt: Callable[..., Any]) -> bool:
    def add() -> bool:
        engine.add_request(one)
        return True

    return attempt(add) is True


def tokens(events: list[TokenEvent], name: str) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for event in events:
        sample = event.request_id.removeprefix(name), event.sequence_index
        found.setdefault(sample, []).extend(event.token_ids)
    del found[" greedy", 0]  # how far it came before it was aborted is left to the schedule
    return found


def lines_of(engine: Engine) -> Counter[Line]:
    watched = Interruption()
    run(engine, "watched", watched)
    return watched.seen


@pytest.mark.parametrize(
    "stride", [25, pytest.param(10, marks=pytest.mark.slow)], ids=["some", "more"]
)
def test_every_line_of_a_step_may_raise(engine: Engine, stride: int) -> None:
    expected = tokens(run(engine, "a", Interruption()), "a")
    seen = lines_of(engine)
    files = {file for file, _ in seen}
    assert files >= {
        *("engine.py", "scheduler.py", "sequence.py", "block_manager.py"),
        *("local.py", "known_sequences.py", "sampler.py"),
    }
    assert len(seen) > 300
    for number, (line, times) in enumerate(sorted(seen.items())[::stride]):
        kind = KINDS[number % len(KINDS)]
        turn = 1 + number % times if number % 2 else 1
        events = run(engine, "b", Interruption(line, turn, kind))
        told = [event for event in events if event.finish_reason is FinishReason.ERROR]
        assert all("a step of the engine failed" in (event.error or "") for event in told), line
        if number % 10 == 0:
            assert tokens(run(engine, "c", Interruption()), "c") == expected, line


def finish(engine: Engine) -> list[TokenEvent]:
    events: list[TokenEvent] = []
    while engine.has_work:
        events += engine.step()
    return events


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["plan", "launch", "sample", "result", "commit"])
def test_what_is_raised_in_a_step_ends_its_requests(
    engine: Engine, place: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise kind("planted")

    owners: dict[str, Any] = {
        "launch": engine._executor,
        "sample": engine._executor,
        "result": LocalStep,
    }
    owner = owners.get(place, engine._scheduler)
    engine.add_request(request("a", 5))
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, fail)
        events: list[TokenEvent] = []
        if issubclass(kind, Exception):
            events = engine.step()
        else:
            with pytest.raises(kind):
                engine.step()
    events += finish(engine)
    assert [event.finish_reason for event in events] == [FinishReason.ERROR]
    assert "planted" in (events[0].error or "")
    engine.add_request(request("a", 5))
    found = finish(engine)
    assert found[-1].finish_reason is FinishReason.LENGTH


def test_who_was_not_in_the_step_goes_on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = engine._executor.launch
    planned: list[str] = []

    def interrupt(plan: StepPlan) -> None:
        planned.extend(chunk.request_id for chunk in plan.chunks)
        raise KeyboardInterrupt

    for name in "abcdefg":  # more than there are places
        engine.add_request(request(name, 2))
    with monkeypatch.context() as patch:
        patch.setattr(engine._executor, "launch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert engine._executor.launch == launch
    reasons = {each.request_id: each.finish_reason for each in finish(engine)}
    assert 0 < len(planned) < 7
    assert reasons == {
        name: FinishReason.ERROR if name in planned else FinishReason.LENGTH for name in "abcdefg"
    }


def test_logits_that_are_interrupted_leave_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = engine.logits([1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(engine._executor, "launch", lambda plan: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            engine.logits([4, 5, 6])
    assert not executor_of(engine)._captures
    assert (engine.logits([1, 2, 3]) == expected).all()
    with monkeypatch.context() as patch:
        patch.setattr(engine._executor, "launch", lambda plan: 1 / 0)
        with pytest.raises(EngineError):
            engine.logits([4, 5, 6])
    assert (engine.logits([1, 2, 3]) == expected).all()
