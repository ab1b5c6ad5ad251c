"""Chances that two models draw alike, as computed, against drawing for both again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inferno import ops
from inferno.ops import SamplingSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import coupled_draws
from coupled_draws import Setting

NUM_DRAWS = 10_000
VOCAB_SIZE = 12

Draws = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.int64]]


def both(setting: Setting) -> tuple[NDArray[np.float32], ...]:
    """Return logits of a target and of a draft that differs a little."""
    generator = np.random.default_rng(3)
    target = 1.5 * generator.standard_normal((1, VOCAB_SIZE))
    draft = target + 0.8 * generator.standard_normal((1, VOCAB_SIZE))
    return target.astype(np.float32), draft.astype(np.float32)


def check(agree_V: NDArray[np.float64], mine: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    found_V = np.bincount(mine[mine == other], minlength=VOCAB_SIZE) / NUM_DRAWS
    assert np.abs(found_V - agree_V).max() < 4 * 0.5 / NUM_DRAWS**0.5


@pytest.mark.parametrize("setting", [Setting(1.0), Setting(0.6), Setting(1.2, 8, 0.8)])
def test_the_sampler_agrees_with_itself_as_often_as_was_computed(setting: Setting) -> None:
    """It draws by id where all tokens are open, and else by rank."""
    spec = SamplingSpec(setting.temperature, setting.top_k, setting.top_p, 0.0)
    specs = ops.sampling_specs([spec] * NUM_DRAWS, torch.device("cpu"))
    numbers_R = torch.from_numpy(np.random.default_rng(4).random(NUM_DRAWS))
    drawn = []
    for logits_1V in both(setting):
        rows_RV = torch.from_numpy(logits_1V).expand(NUM_DRAWS, -1).contiguous()
        peak_R, token_R = ops.argmax(rows_RV)
        drawn.append(ops.draw(rows_RV, peak_R, specs, numbers_R, out=token_R).numpy())
    p_NV, q_NV = (coupled_draws.probabilities(each, setting) for each in both(setting))
    is_by_id = setting.top_k == 0
    way = coupled_draws.inverse_cdf_by_id if is_by_id else coupled_draws.inverse_cdf_by_own_rank
    check(way(p_NV, q_NV)[0], *drawn)


def test_who_races_agrees_as_often_as_was_computed() -> None:
    p_NV, q_NV = (coupled_draws.probabilities(x, Setting(1.0, 9)) for x in both(Setting(1.0)))
    arrivals_RV = np.random.default_rng(5).exponential(size=(NUM_DRAWS, VOCAB_SIZE))
    with np.errstate(divide="ignore"):
        mine, other = ((arrivals_RV / each_NV).argmin(-1) for each_NV in (p_NV, q_NV))
    check(coupled_draws.race(p_NV, q_NV)[0], mine, other)


def test_no_coupling_exceeds_the_best_or_draws_a_token_too_often() -> None:
    p_NV, q_NV = (coupled_draws.probabilities(x, Setting(1.0)) for x in both(Setting(1.0)))
    best = coupled_draws.best(p_NV, q_NV)
    for name, way in coupled_draws.COUPLINGS.items():
        agree_NV = way(p_NV, q_NV)
        assert (agree_NV <= p_NV + 1e-12).all(), name
        if "likeliest" not in name:
            assert (agree_NV <= best + 1e-12).all(), name
        assert way(p_NV, p_NV).sum() == pytest.approx(1) or "likeliest" in name


def test_steps_are_those_of_running_through_a_text() -> None:
    chances, k, generator = [0.9, 0.2, 0.7, 1.0, 0.4, 0.6, 0.8], 2, np.random.default_rng(6)
    num_steps, num_runs = 0, 5_000
    for _ in range(num_runs):
        place = 0
        while place < len(chances):
            num_steps += 1
            for _ in range(k):
                stands = place < len(chances) and generator.random() < chances[place]
                place += 1
                if not stands:
                    break
            else:
                place += 1
    assert coupled_draws.steps_for(chances, k) == pytest.approx(num_steps / num_runs, rel=0.02)
