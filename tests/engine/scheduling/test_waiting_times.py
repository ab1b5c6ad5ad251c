"""How long anybody waits, on a clock: first tokens behind long prompts, and gaps between tokens.

The machines are some that were measured: the embedded models' shapes and Qwen3-0.6B's in int8, on
two cores. Beside the smaller shape, deep in a context, what each step costs counts. Nothing here
depends on the machine that runs it: time passes as the prices say.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.scheduling.shares import AUTO_TARGET_RATIO, AUTO_TARGET_SECONDS
from inferno.options import EngineOptions
from tests.engine.simulation import Clock, Prices, TimedEngine

DEMO = Prices(weights=0.0007, token=7e-5, chunk=5e-5, pair=1.2e-7)
QWEN3 = Prices(weights=0.033, token=0.002, chunk=0.0007, pair=1.5e-6)
DRAFT = Prices(weights=0.0001, token=6e-6, chunk=1e-5, pair=5e-9, step=0.0006)
MACHINES = pytest.mark.parametrize("prices", [DEMO, QWEN3], ids=["demo", "qwen3"])

DEFAULTS = EngineOptions(model=Path())
FULL_STEP = DEFAULTS.max_num_batched_tokens


def make_engine(prices: Prices, *, step_target: float | None = None) -> TimedEngine:
    """An engine of the default options, with blocks for everybody, that has run for a while."""
    clock = Clock()
    scheduler = Scheduler(
        BlockManager(20_000, DEFAULTS.block_size),
        max_num_seqs=DEFAULTS.max_num_seqs,
        max_num_batched_tokens=FULL_STEP,
        max_model_len=40_960,
        priority_aging=DEFAULTS.priority_aging,
        step_target=step_target,
        clock=clock,
    )
    engine = TimedEngine(scheduler, clock, prices)
    for number, length in enumerate((700, 20, 3000)):
        engine.add(f"warm {number}", length, max_tokens=8)
    while scheduler.has_work:
        engine.step()
    return engine


def add_streams(engine: TimedEngine, count: int) -> list[str]:
    names = [f"stream {number}" for number in range(count)]
    for name in names:
        engine.add(name, 32, max_tokens=30_000)
        engine.first_token(name)
    return names


def first_tokens_behind(prices: Prices, length: int, num_streams: int) -> list[float]:
    """Of three prompts of 64 tokens behind four of another length."""
    engine = make_engine(prices)
    add_streams(engine, num_streams)
    for number in range(4):
        engine.add(f"long {number}", length)
    names = [f"short {number}" for number in range(3)]
    for name in names:
        engine.add(name, 64)
    return [engine.first_token(name) for name in names]


@MACHINES
@pytest.mark.parametrize("num_streams", [0, 4])
def test_a_short_prompt_waits_about_as_long_behind_long_prompts_as_behind_short_ones(
    prices: Prices, num_streams: int
) -> None:
    behind_long = first_tokens_behind(prices, 30_000, num_streams)
    behind_short = first_tokens_behind(prices, 512, num_streams)
    for long, short in zip(behind_long, behind_short, strict=True):
        assert long <= 3 * short


@MACHINES
@pytest.mark.parametrize("num_streams", [0, 4])
def test_a_short_prompt_that_comes_in_the_midst_of_long_ones_does_not_wait_for_them(
    prices: Prices, num_streams: int
) -> None:
    engine = make_engine(prices)
    add_streams(engine, num_streams)
    for number in range(4):
        engine.add(f"long {number}", 30_000)
    waits = []
    for number in range(40):
        for _ in range(7):
            engine.step()
        engine.add(f"short {number}", 64)
        waits.append(engine.first_token(f"short {number}"))
    full = prices.seconds_of_prompt(FULL_STEP)
    assert statistics.median(waits) <= 2.5 * full
    assert max(waits) <= 4.5 * full  # the step under way, and its own


def in_order(prices: Prices, lengths: list[int], num_streams: int) -> float:
    """Seconds that prompts take one after the other, in full steps, streams in each."""
    seconds = 0.0
    for length in lengths:
        for start in range(0, length, FULL_STEP - num_streams):
            num_tokens = min(FULL_STEP - num_streams, length - start)
            pairs = num_tokens * (start + num_tokens / 2)
            compute = max(prices.weights, (num_tokens + num_streams) * prices.token)
            rows = num_streams * prices.chunk
            seconds += prices.step + compute + rows + pairs * prices.pair
    return seconds


@pytest.mark.parametrize("prices", [DEMO, QWEN3, DRAFT], ids=["demo", "qwen3", "draft"])
@pytest.mark.parametrize(("num_streams", "least"), [(0, 0.99), (1, 0.90), (4, 0.90)])
def test_prompts_are_computed_about_as_fast_as_one_after_the_other(
    prices: Prices, num_streams: int, least: float
) -> None:
    engine = make_engine(prices)
    names = add_streams(engine, num_streams)
    begun = engine.clock()
    for number in range(2):
        engine.add(f"long {number}", 30_000)
    for number in range(2):
        engine.first_token(f"long {number}")
    taken = engine.clock() - begun
    assert in_order(prices, [30_000] * 2, num_streams) / taken >= least
    assert all(len(engine.tokens_at[name]) > 100 for name in names)


@MACHINES
@pytest.mark.parametrize("target", [None, 0.1])
@pytest.mark.parametrize("num_streams", [1, 8])
def test_a_stream_gets_its_tokens_within_the_target(
    prices: Prices, target: float | None, num_streams: int
) -> None:
    engine = make_engine(prices, step_target=target)
    names = add_streams(engine, num_streams)
    for number in range(4):
        engine.add(f"long {number}", 2_500 if prices is QWEN3 else 6_000)
    for number in range(4):
        engine.first_token(f"long {number}")
    alone = max(prices.weights, num_streams * prices.token) + num_streams * prices.chunk
    auto = max(AUTO_TARGET_SECONDS, AUTO_TARGET_RATIO * alone)
    for name in names:
        gaps = sorted(engine.gaps(name))
        assert len(gaps) > 50
        assert gaps[math.ceil(0.99 * len(gaps)) - 1] <= 1.25 * (target or auto)


@MACHINES
def test_where_even_a_block_takes_longer_than_the_target_a_block_is_computed(
    prices: Prices,
) -> None:
    engine = make_engine(prices, step_target=prices.weights / 10)
    add_streams(engine, 1)
    engine.add("long", 3_000)
    sizes = {engine.step().chunks[-1].num_tokens for _ in range(50)}
    assert sizes == {DEFAULTS.block_size}


@MACHINES
def test_without_a_target_steps_are_full_however_long_they_take(prices: Prices) -> None:
    engine = make_engine(prices, step_target=0.0)
    add_streams(engine, 1)
    engine.add("long", 20_000)
    sizes = {sum(chunk.num_tokens for chunk in engine.step().chunks) for _ in range(35)}
    assert sizes == {FULL_STEP}
