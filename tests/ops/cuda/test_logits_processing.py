"""Penalties in Triton: to the bit the reference's, whose definitions the engine's tests hold."""

from __future__ import annotations

import random

import pytest
import torch

from inferno.ops import Penalties, reference
from inferno.ops.cuda import logits_processing

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

WIDTH = 700


def random_penalties(rng: random.Random, num_tokens: int) -> Penalties:
    return Penalties(
        repetition=rng.choice([1.0, 1.3, 0.7, 3.0, 1e-300, 1e30]),
        frequency=rng.choice([0.0, 0.1, -2.0, 0.37]),
        presence=rng.choice([0.0, 0.3, -1.7]),
        token_ids=rng.sample(range(WIDTH), num_tokens),
        in_output=[rng.choice([0, 0, 1, 2, 77]) for _ in range(num_tokens)],
    )


def test_penalties_are_the_references(device: torch.device) -> None:
    rng = random.Random(1)
    logits_RV = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(1)) * 10
    logits_RV[0, :100], logits_RV[1, :100], logits_RV[2, ::2] = 3e38, 1e-40, -torch.inf
    logits_RV[3, ::3], logits_RV[4, ::2], logits_RV[5, ::2] = torch.nan, -0.0, 0.0
    logits_RV = logits_RV.to(device)
    rows = [0, 1, 2, 3, 4, 5, 7]
    # More tokens than a program takes, none, one.
    penalties = [random_penalties(rng, count) for count in (600, 513, 512, 300, 1, 0, 40)]
    expected_RV = logits_RV.cpu().clone()
    reference.penalize(expected_RV, rows, penalties)
    wide_RV = torch.full((9, WIDTH + 5), torch.nan, device=device)
    wide_RV[:, 3:-2] = logits_RV
    logits_processing.penalize(wide_RV[:, 3:-2], rows, penalties)
    found_RV = wide_RV[:, 3:-2].contiguous().cpu()
    assert torch.equal(found_RV.isnan(), expected_RV.isnan())
    found_RV.nan_to_num_(nan=0.0), expected_RV.nan_to_num_(nan=0.0)
    assert torch.equal(found_RV.view(torch.int32), expected_RV.view(torch.int32))
    assert wide_RV[:, :3].isnan().all()


def test_nothing_to_penalise_changes_nothing(device: torch.device) -> None:
    logits_RV = torch.ones(2, 5, device=device)
    logits_processing.penalize(logits_RV, [1], [Penalties(2.0, 1.0, 1.0, [], [])])
    logits_processing.penalize(logits_RV, [], [])
    assert (logits_RV == 1.0).all()
