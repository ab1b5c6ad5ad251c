"""What is due to prompts that share steps: nobody falls behind, whatever comes."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.scheduler import Scheduler
from tests.engine.simulation import Clock, Prices, TimedEngine

PRICES = Prices(weights=0.01, token=0.001, chunk=0.001, pair=1e-6)


def make_engine(budget: int, step_target: float | None) -> TimedEngine:
    clock = Clock()
    scheduler = Scheduler(
        BlockManager(5000, 4),
        max_num_seqs=100,
        max_num_batched_tokens=budget,
        max_model_len=10_000,
        priority_aging=0.1,
        step_target=step_target,
        clock=clock,
    )
    return TimedEngine(scheduler, clock, PRICES)


@pytest.mark.parametrize("step_target", [0.0, None, 0.03])
@pytest.mark.parametrize("seed", range(6))
def test_no_prompt_falls_behind_its_part_by_more_than_a_few_steps(
    seed: int, step_target: float | None
) -> None:
    """In tokens where steps have no bound in time, else in seconds of the true prices."""
    rng = random.Random(seed)
    budget = rng.choice((8, 50, 200) if step_target == 0.0 else (50, 200))
    engine = make_engine(budget, step_target)
    behind: dict[str, float] = defaultdict(float)
    longest = 0.0
    for number in range(300):
        if rng.random() < 0.25:
            length = rng.choice((1, 5, 20, 100, 1000))
            engine.add(str(number), length, max_tokens=rng.choice((1, 1, 30)))
        running = engine.scheduler._running
        before = {
            sample.request.request_id
            for sample in [*running, *engine.scheduler._waiting]
            if not sample.is_stream
        }
        plan = engine.step()
        served = dict.fromkeys(before, 0.0)
        for chunk in plan.chunks:
            if chunk.request_id in before:
                pairs = chunk.num_tokens * (chunk.start + chunk.num_tokens / 2)
                seconds = chunk.num_tokens * PRICES.token + pairs * PRICES.pair
                served[chunk.request_id] = chunk.num_tokens if step_target == 0.0 else seconds
        longest = max(longest, sum(served.values()))
        for name in before:
            behind[name] += sum(served.values()) / len(before) - served[name]
            most = 2 * budget if step_target == 0.0 else 4 * longest
            assert behind[name] <= most, f"{name} is {behind[name]} behind"
