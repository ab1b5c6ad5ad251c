"""Routing in Triton: each token's experts, and each expert's rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from inferno.ops import cuda, reference
from inferno.ops.cuda import routing
from tests.ops.cuda.test_mixture import random, strided

pytestmark = pytest.mark.gpu

# Numbers of experts and of choices; of the last ones the kernel takes too few.
MODELS = [(4, 1), (6, 6), (32, 4), (60, 4), (512, 10), (40, 33)]


# Who is chosen


def expected_route(
    logits: list[float], num_chosen: int, renormalize: bool
) -> tuple[list[int], list[float]]:
    ranked = sorted(range(len(logits)), key=lambda expert: (-logits[expert], expert))
    chosen = ranked[:num_chosen]
    shares = [math.exp(logit - max(logits)) for logit in logits]
    total = sum(shares[expert] for expert in (chosen if renormalize else ranked))
    return chosen, [shares[expert] / total for expert in chosen]


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_experts", "num_chosen"), MODELS)
def test_the_highest_logits_are_chosen_and_weighted_by_softmax(
    num_experts: int, num_chosen: int, dtype: torch.dtype, renormalize: bool, device: torch.device
) -> None:
    logits = 3 * random(4, num_experts, seed=num_experts, device=device, dtype=dtype)
    experts, weights = cuda.route(strided(logits), num_chosen, renormalize=renormalize)
    assert (experts.dtype, weights.dtype) == (torch.int64, torch.float32)
    for token, row in enumerate(logits.double().tolist()):
        chosen, shares = expected_route(row, num_chosen, renormalize)
        assert experts[token].tolist() == chosen
        assert weights[token].tolist() == pytest.approx(shares, abs=1e-6)


def test_of_equal_logits_the_lower_index_is_chosen(device: torch.device) -> None:
    rows = torch.randint(3, (8, 40), generator=torch.Generator().manual_seed(0)).float()
    rows[1] = torch.where(rows[1] > 0, 0.0, -0.0)  # which are equal
    experts, _ = cuda.route(rows.to(device), 7, renormalize=True)
    for found, row in zip(experts.tolist(), rows.tolist(), strict=True):
        assert found == sorted(range(40), key=lambda expert: (-row[expert], expert))[:7]


def test_logits_that_are_no_numbers_harm_no_others(device: torch.device) -> None:
    logits = random(5, 12, seed=1, device=device, dtype=torch.float32)
    clean = cuda.route(logits, 3, renormalize=True)
    logits[1], logits[3, 7] = torch.nan, -torch.tensor(torch.nan)
    found = cuda.route(logits, 3, renormalize=True)
    others = [0, 2, 4]
    for ours, theirs in zip(found, clean, strict=True):
        assert torch.equal(ours[others], theirs[others])
    for renormalize in (True, False):
        experts, weights = cuda.route(logits, 3, renormalize=renormalize)
        expected = reference.route(logits, 3, renormalize=renormalize)
        assert torch.equal(experts, expected[0]), "NaN ranks first, as torch sorts"
        torch.testing.assert_close(weights, expected[1], equal_nan=True)


def test_far_apart_and_infinite_logits_still_rank(device: torch.device) -> None:
    logits = torch.tensor([[-500.0, 0.0, -300.0, -400.0], [-torch.inf, -1.0, -torch.inf, -9.0]])
    experts, weights = cuda.route(logits.to(device), 3, renormalize=True)
    assert experts.tolist() == [[1, 2, 3], [1, 3, 0]]
    assert weights[0].tolist() == [1.0, 0.0, 0.0]


def test_nobody_is_routed_where_there_are_no_tokens(device: torch.device) -> None:
    experts, weights = cuda.route(torch.empty(0, 8, device=device), 2, renormalize=True)
    assert experts.shape == weights.shape == (0, 2)


# Which rows an expert has


@pytest.mark.parametrize("num_tokens", [40, 300])
def test_choices_are_sorted_by_expert_and_stay_in_order(
    num_tokens: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "_SORT_BLOCK", 128)
    seed = torch.Generator().manual_seed(0)
    experts = (torch.randint(4, (num_tokens, 2), generator=seed) * 2 + 1).to(device)
    order = routing.order_of(experts, 9, 16)
    _, order_P, bounds_2X = order.arguments
    assert torch.equal(order_P.long(), experts.flatten().argsort(stable=True))
    counts = experts.flatten().bincount(minlength=9)
    assert torch.equal(bounds_2X[1].long(), counts.cumsum(0))
    assert torch.equal(bounds_2X[0].long(), counts.cumsum(0) - counts)
    assert order.num_slots <= math.ceil(2 * num_tokens / 16) + 9


@triton.jit
def _write_rows_kernel(
    experts: Any,
    order: Any,
    bounds: Any,
    seen: Any,
    found: Any,
    num_choices: Any,
    num_experts: Any,
    IS_SORTED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Count how often each choice is computed, and note the expert whose weights it would meet."""
    slot = tl.program_id(0)
    expert, _, choices_M, is_row = routing.rows_of_slot(
        slot, experts, order, bounds, num_choices, num_experts, IS_SORTED, ROWS, BLOCK
    )
    tl.store(found + choices_M, expert.to(tl.int64) + choices_M * 0, mask=is_row)
    tl.atomic_add(seen + choices_M, 1, mask=is_row)


@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize(("num_tokens", "num_chosen"), [(1, 4), (21, 3), (40, 3)])
@pytest.mark.parametrize(("num_used", "num_experts"), [(1, 11), (3, 11), (9, 11), (259, 260)])
def test_every_choice_has_one_place_in_some_tile(
    num_tokens: int,
    num_chosen: int,
    num_used: int,
    num_experts: int,
    rows: int,
    device: torch.device,
) -> None:
    seed = torch.Generator().manual_seed(num_used)
    # The first one has no tokens, nor have others in between; most of few have no last ones.
    experts = torch.randint(num_used, (num_tokens, num_chosen), generator=seed) + 1
    experts = experts.to(device)
    order = routing.order_of(experts, num_experts, rows)
    seen = torch.zeros(experts.numel(), dtype=torch.int32, device=device)
    found = torch.full_like(experts.flatten(), -1)
    arguments: dict[str, Any] = {**order.constants, "ROWS": rows}
    _write_rows_kernel[(order.num_slots,)](
        *order.arguments, seen, found, experts.numel(), num_experts, **arguments
    )
    assert seen.tolist() == [1] * experts.numel()
    assert torch.equal(found, experts.flatten())
