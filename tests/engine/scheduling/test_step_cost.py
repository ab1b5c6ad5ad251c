"""Prices that are learnt from steps: what the model knows, and what it isn't led astray by."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from inferno.engine.scheduling.step_cost import StepCostModel, StepWork


def step(*chunks: tuple[int, int], window: int | None = None) -> StepWork:
    """The work of chunks, each a start and a number of tokens."""
    work = StepWork(window)
    for start, num_tokens in chunks:
        work.add(start, num_tokens)
    return work


def true_seconds(work: StepWork) -> float:
    """A machine that reads its weights in 60 ms and computes a token in 4 ms."""
    compute = 0.004 * work.num_tokens + 1e-6 * work.num_pairs
    return max(0.06, compute) + 0.001 * work.num_rows + 2e-6 * work.num_keys


def random_step(rng: random.Random) -> StepWork:
    chunks = [(rng.randrange(4000), 1) for _ in range(rng.choice((0, 1, 4, 20)))]
    prompts = (
        [(rng.randrange(20_000), rng.choice((5, 16, 60, 200, 500)))] if rng.random() < 0.7 else []
    )
    return step(*chunks, *prompts)


def relative_errors(model: StepCostModel, rng: random.Random) -> list[float]:
    steps = [work for _ in range(300) if (work := random_step(rng)).num_tokens]
    return [abs((model.expect(work) or 0.0) / true_seconds(work) - 1) for work in steps]


def test_nothing_is_expected_before_a_step_was_seen() -> None:
    model = StepCostModel()
    model.observe(step(), 1.0)  # no work
    model.observe(step((0, 1)), 0.0)
    model.observe(step((0, 1)), math.nan)
    model.observe(step((0, 1)), math.inf)
    assert model.expect(step((0, 8))) is None
    assert model.most_tokens(step(), 0, 512, 0.001) == 512


@pytest.mark.parametrize("window", [None, 1, 3, 8, 100])
@pytest.mark.parametrize(("start", "num_tokens"), [(0, 1), (0, 10), (7, 1), (7, 5), (50, 60)])
def test_work_counts_the_keys_that_tokens_see(
    window: int | None, start: int, num_tokens: int
) -> None:
    work = step((start, num_tokens), (3, 1), window=window)
    seen = [
        min(position + 1, window or position + 1) for position in range(start, start + num_tokens)
    ]
    assert work.num_tokens == num_tokens + 1
    assert work.num_rows == 2
    assert work.num_pairs == sum(seen) + min(4, window or 4)
    assert work.num_keys >= max(seen)


def test_after_a_few_hundred_steps_most_expectations_are_close() -> None:
    rng = random.Random(1)
    model = StepCostModel()
    for _ in range(400):
        work = random_step(rng)
        model.observe(work, true_seconds(work) * rng.uniform(0.95, 1.05))
    errors = sorted(relative_errors(model, rng))
    assert statistics.median(errors) < 0.1
    assert errors[int(0.9 * len(errors))] < 0.3


def test_the_first_step_already_says_that_more_work_takes_longer() -> None:
    model = StepCostModel()
    model.observe(step((0, 1)), 0.06)
    short, long = model.expect(step((0, 1))), model.expect(step((0, 512)))
    assert short == pytest.approx(0.06)
    assert long is not None
    assert long > 0.5


def test_steps_that_were_held_up_count_little() -> None:
    rng = random.Random(2)
    model = StepCostModel()
    for number in range(400):
        work = random_step(rng)
        stall = 50.0 if number % 10 == 5 else 1.0
        model.observe(work, true_seconds(work) * stall)
    assert statistics.median(relative_errors(model, rng)) < 0.2


def test_a_machine_that_slows_down_is_noticed() -> None:
    rng = random.Random(3)
    model = StepCostModel()
    for factor in (1.0, 3.0):
        for _ in range(500):
            work = random_step(rng)
            model.observe(work, factor * true_seconds(work))
    ratios = []
    for _ in range(100):
        work = random_step(rng)
        if expected := model.expect(work):
            ratios.append(expected / true_seconds(work))
    assert statistics.median(ratios) == pytest.approx(3.0, rel=0.15)


def test_a_day_of_small_steps_does_not_make_it_forget_prompts() -> None:
    rng = random.Random(4)
    model = StepCostModel()
    for _ in range(200):
        work = random_step(rng)
        model.observe(work, true_seconds(work))
    prompt = step((2000, 500))
    before = model.expect(prompt)
    for number in range(5000):
        decode = step((100 + number, 1))
        model.observe(decode, true_seconds(decode))
    assert model.expect(prompt) == pytest.approx(before, rel=0.1)
    assert model.expect(decode) == pytest.approx(true_seconds(decode), rel=0.1)


def test_no_work_has_a_negative_price() -> None:
    rng = random.Random(5)
    model = StepCostModel()
    for _ in range(100):
        model.observe(random_step(rng), rng.uniform(0.001, 1.0))
    smallest = [model.expect(step((start, 1))) for start in (0, 100, 100_000)]
    assert all(each is not None and each >= 0 for each in smallest)
    assert smallest == sorted(smallest, key=lambda each: each or 0.0)


def test_most_tokens_are_those_that_just_fit() -> None:
    rng = random.Random(6)
    model = StepCostModel()
    for _ in range(200):
        work = random_step(rng)
        model.observe(work, true_seconds(work))
    base = step((1000, 1))
    for seconds in (0.07, 0.2, 0.5, 3.0):
        most = model.most_tokens(base, 5000, 512, seconds)
        fits = model.expect(base.with_chunk(5000, most)) if most else 0.0
        assert fits is not None
        assert fits <= seconds
        more = model.expect(base.with_chunk(5000, most + 1))
        assert most == 512 or (more is not None and more > seconds)
    assert base.num_rows == 1
