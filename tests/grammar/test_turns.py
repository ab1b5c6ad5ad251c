"""What takes long is done in pieces, by turns, and comes to the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from inferno.grammar import token_paths, turns
from inferno.grammar.expressions import Expressions, Meter, OutOfWork
from inferno.grammar.json_schema import compile_schema
from inferno.grammar.recognizer import Recognizer
from inferno.grammar.regex import TooComplex
from inferno.grammar.token_paths import TokenPaths
from inferno.grammar.turns import Aside, NotQuick, away, quickly
from tests.grammar.acceptor import Sampler
from tests.grammar.test_token_paths import make_schema, make_vocabulary


def in_turns(*tasks: Callable[[], object]) -> int:
    """Do tasks, each as long as its turn is, which is as short as it can be; count the turns."""
    asides = [Aside(task) for task in tasks]
    num_turns = 0
    while sum(aside.lend(0.0) for aside in asides):
        num_turns += 1
    for aside in asides:
        assert aside.is_done
        if aside.problem is not None:
            raise aside.problem
    return num_turns


def spend(meter: Meter, num_steps: int, most: int | None = None) -> None:
    with meter.at_most(1 << 40 if most is None else most):
        for _ in range(num_steps):
            meter.spend(1)


def test_what_takes_few_steps_is_quick_and_what_takes_many_is_not() -> None:
    meter = Meter()
    with quickly():
        spend(meter, 100)
    with pytest.raises(NotQuick), quickly():
        spend(meter, 100_000)
    assert meter.spent < 5_000
    spend(meter, 100_000)


def test_many_questions_of_few_steps_are_not_quick() -> None:
    meter = Meter()

    def ask_for_ever() -> None:
        while True:
            spend(meter, 100)

    with pytest.raises(NotQuick), quickly():
        ask_for_ever()
    assert meter.spent < 5_000


def test_a_task_runs_only_while_a_turn_is_lent() -> None:
    meter = Meter()
    aside = Aside(lambda: spend(meter, 10_000))
    seen = []
    while aside.lend(0.0):
        seen.append(meter.spent)
        assert meter.spent == seen[-1]
    assert aside.is_done
    assert meter.spent == 10_000
    assert len(seen) > 20


def test_tasks_by_turns_have_each_their_own_bound() -> None:
    meter = Meter()
    assert in_turns(*[lambda: spend(meter, 990, most=1000)] * 3) > 5
    with pytest.raises(OutOfWork):
        in_turns(*[lambda: spend(meter, 1010, most=1000)] * 3)
    spend(meter, 990, most=1000)
    with pytest.raises(OutOfWork):
        spend(meter, 1010, most=1000)


def test_what_one_has_begun_is_ended_before_another_one_spends_anything() -> None:
    meter = Meter()
    aside = Aside(lambda: spend(meter, 10_000))
    aside.lend(0.0)
    assert 0 < meter.spent < 10_000
    with pytest.raises(NotQuick), quickly():
        spend(meter, 1)
    assert meter.spent < 10_000
    spend(meter, 500, most=1000)  # who waits for all answers has it ended
    assert aside.is_done
    assert meter.spent > 10_000
    with quickly():
        spend(meter, 1)


def test_who_waits_for_what_another_one_has_begun_takes_none_of_its_turns() -> None:
    meter = Meter()
    asides = [Aside(lambda: spend(meter, 10_000)) for _ in range(9)]
    assert all(aside.lend(0.0) for aside in asides)
    assert [aside.lend(0.0) for aside in asides] == [True] + [False] * 8
    asides[0].drop()
    assert [aside.lend(0.0) for aside in asides[:3]] == [False, True, False]
    asides[2].drop()
    for aside in (*asides[1:2], *asides[3:]):
        while aside.lend(0.0):
            pass
    assert all(aside.is_done for aside in asides)
    assert meter.spent > 70_000


def test_a_piece_of_work_by_turns_keeps_its_own_bound() -> None:
    meter = Meter()
    expressions = Expressions(1 << 30, 1 << 30, meter)

    def work(num_steps: int, most: int) -> None:
        with meter.at_most(1 << 40):
            expressions.start_work(most)
            for _ in range(num_steps):
                expressions.spend(1)

    long = Aside(lambda: work(9_900, most=10_000))
    assert long.lend(0.0)
    with pytest.raises(NotQuick), quickly():
        work(10, most=20)
    short = Aside(lambda: work(4_900, most=5_000))
    while sum(aside.lend(0.0) for aside in (short, long)):
        pass
    assert long.problem is None
    assert short.problem is None
    assert in_turns(*[lambda: work(4_900, most=5_000)] * 3) > 5
    with pytest.raises(TooComplex):
        in_turns(*[lambda: work(5_100, most=5_000)] * 3)


def test_a_search_by_turns_is_charged_what_it_took_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_paths, "_LITTLE_WORK", 300)
    grammar = compile_schema(make_schema(random.Random(3)))
    vocabulary = make_vocabulary(3)
    alone, together = (TokenPaths(Recognizer(grammar), vocabulary) for _ in range(2))

    def ask(paths: TokenPaths) -> int:
        return paths.num_to_end(paths.recognizer.start)

    ask(alone)
    assert alone._work_left < token_paths._ALL_LATER_WORK
    in_turns(*[lambda: ask(together)] * 3)
    assert alone._work_left == together._work_left


def test_who_is_away_has_no_turn_and_holds_nobody_up() -> None:
    may_end = threading.Event()

    def wait() -> None:
        with away():
            may_end.wait()

    aside = Aside(wait)
    assert aside.lend(0.0)
    assert not aside.lend(0.0)
    aside.wait_until_here(0.0)
    may_end.set()
    aside.wait_until_here(30.0)
    assert aside.lend(0.0)
    assert aside.is_done


@pytest.mark.parametrize("num_turns", [0, 1, 3])
def test_a_task_that_is_dropped_ends(num_turns: int) -> None:
    meter, has_ended = Meter(), []

    def work() -> None:
        try:
            spend(meter, 10_000)
        finally:
            has_ended.append(True)

    aside = Aside(work)
    for _ in range(num_turns):
        aside.lend(0.0)
    aside.drop()
    assert aside.is_done
    assert aside.problem is None
    assert has_ended == [True] * bool(num_turns)
    with quickly():
        spend(meter, 100)


def test_a_task_without_room_for_a_thread_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    meter = Meter()
    aside = Aside(lambda: spend(meter, 10_000))
    assert aside.is_done
    assert meter.spent == 10_000
    aside = Aside(lambda: [][0])
    assert isinstance(aside.problem, IndexError)


def test_an_interrupt_while_a_thread_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    start, begun = threading.Thread.start, []

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        Aside(lambda: None)
    [thread] = begun
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("seed", range(12))
def test_ways_are_the_same_whether_found_at_once_or_by_turns(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_QUICK_STEPS", 200)
    generator = random.Random(seed)
    grammar = compile_schema(make_schema(generator))
    vocabulary = make_vocabulary(seed)
    text = Sampler(grammar, seed).text(20).encode()
    sizes = [generator.randrange(len(text)) for _ in range(4)]
    found: list[dict[int, tuple[int, int]]] = [{}, {}]

    def ask(paths: TokenPaths, size: int, answers: dict[int, tuple[int, int]]) -> None:
        state = paths.recognizer.advance(paths.recognizer.start, text[:size])
        assert state is not None
        following = -1 if state.is_end else paths.next_to_end(state)
        answers[size] = paths.num_to_end(state), following

    at_once, by_turns = (TokenPaths(Recognizer(grammar), vocabulary) for _ in range(2))
    for size in sizes:
        ask(at_once, size, found[0])
        in_turns(partial(ask, by_turns, size, found[1]))
        assert at_once.recognizer.meter.spent == by_turns.recognizer.meter.spent
    together = TokenPaths(Recognizer(grammar), vocabulary)
    answers: dict[int, tuple[int, int]] = {}
    in_turns(*[partial(ask, together, size, answers) for size in sizes])
    assert found[0] == found[1] == answers
