"""Mixture of experts against formulas in float64: each token alone, each expert written out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno import ops
from inferno.ops import Activation, ClampedSwiGLU, PlainSwiGLU, StoredRows
from inferno.ops.reference import moe
from inferno.quantization import MXFP4
from tests.mxfp4 import decode, random_bytes

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
NUM_EXPERTS, SIZE, INNER = 6, 64, 32


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_experts", "num_chosen"), [(4, 1), (8, 8), (32, 4), (128, 8)])
def test_the_highest_logits_are_chosen_and_weighted_by_softmax(
    num_experts: int, num_chosen: int, dtype: torch.dtype, renormalize: bool
) -> None:
    logits = random(50, num_experts, seed=num_experts, dtype=dtype) * 3
    experts, weights = ops.route(logits, num_chosen, renormalize=renormalize)
    assert (experts.dtype, weights.dtype) == (torch.int64, torch.float32)
    assert experts.shape == weights.shape == (50, num_chosen)
    for token, row in enumerate(logits.double().tolist()):
        chosen, shares = expected_route(row, num_chosen, renormalize)
        assert experts[token].tolist() == chosen
        assert weights[token].tolist() == pytest.approx(shares, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=40, max_size=40), min_size=1, max_size=3))
def test_of_equal_logits_the_lower_index_is_chosen(rows: list[list[int]]) -> None:
    experts, _ = ops.route(torch.tensor(rows, dtype=torch.bfloat16), 7, renormalize=True)
    for found, row in zip(experts.tolist(), rows, strict=True):
        assert found == sorted(range(40), key=lambda expert: (-row[expert], expert))[:7]


def test_far_apart_logits_still_rank() -> None:
    """A softmax over all would underflow to ties."""
    logits = torch.tensor([[-500.0, 0.0, -300.0, -400.0]])
    experts, weights = ops.route(logits, 3, renormalize=True)
    assert experts.tolist() == [[1, 2, 3]]
    assert weights.tolist() == [[1.0, 0.0, 0.0]]


# What they compute


@dataclass(frozen=True)
class Weights:
    """The arguments of ops.experts, and the same numbers in float64."""

    gate_up: Tensor | StoredRows
    down: Tensor | StoredRows
    gate_up_bias: Tensor | None
    down_bias: Tensor | None

    def apply(
        self, x: Tensor, experts: Tensor, weights: Tensor, activation: Activation, **more: Tensor
    ) -> Tensor:
        return ops.experts(
            x,
            experts,
            weights,
            self.gate_up,
            self.down,
            activation=activation,
            gate_up_bias_XF=self.gate_up_bias,
            down_bias_XE=self.down_bias,
            **more,
        )


def packed(*shape: int, seed: int) -> StoredRows:
    *leading, size = shape
    blocks = random_bytes(*leading, size // 32, 16, seed=seed)
    scales = random_bytes(*leading, size // 32, seed=seed, low=121, high=125)
    return StoredRows(MXFP4, (blocks, scales))


def make_weights(*, is_packed: bool, has_bias: bool, dtype: torch.dtype) -> Weights:
    shapes = (NUM_EXPERTS, 2 * INNER, SIZE), (NUM_EXPERTS, SIZE, INNER)
    gate_up, down = (
        packed(*shape, seed=seed) if is_packed else random(*shape, seed=seed, dtype=dtype) / 8
        for seed, shape in enumerate(shapes)
    )
    biases = [random(*shape[:2], seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]
    return Weights(gate_up, down, *(biases if has_bias else (None, None)))


def in_float64(weight: Tensor | StoredRows) -> Tensor:
    if isinstance(weight, Tensor):
        return weight.double()
    return torch.from_numpy(decode(*weight.parts))


def activated(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    if isinstance(activation, PlainSwiGLU):
        return gate / (1 + torch.exp(-gate)) * up
    limit = torch.tensor(activation.limit, dtype=torch.float64)
    gate = torch.minimum(gate, limit)
    up = torch.maximum(torch.minimum(up, limit), -limit)
    return (up + 1) * gate / (1 + torch.exp(-activation.alpha * gate))


def expected_mixture(
    x: Tensor, experts: Tensor, weights: Tensor, given: Weights, activation: Activation
) -> Tensor:
    gate_up, down = in_float64(given.gate_up), in_float64(given.down)
    sums = torch.zeros(x.shape, dtype=torch.float64)
    for token in range(len(x)):
        for expert, weight in zip(experts[token].tolist(), weights[token].tolist(), strict=True):
            hidden = gate_up[expert] @ x[token].double()
            if given.gate_up_bias is not None:
                hidden += given.gate_up_bias[expert].double()
            output = down[expert] @ activated(hidden[:INNER], hidden[INNER:], activation)
            if given.down_bias is not None:
                output += given.down_bias[expert].double()
            sums[token] += weight * output
    return sums


ACTIVATIONS = [PlainSwiGLU(), ClampedSwiGLU(), ClampedSwiGLU(alpha=0.9, limit=0.5)]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("num_tokens", [1, 40])
def test_each_token_gets_the_weighted_sum_of_its_experts(
    num_tokens: int, dtype: torch.dtype, is_packed: bool, has_bias: bool, activation: Activation
) -> None:
    given = make_weights(is_packed=is_packed, has_bias=has_bias, dtype=dtype)
    x = random(num_tokens, SIZE, seed=7, dtype=dtype)
    experts, weights = ops.route(random(num_tokens, NUM_EXPERTS, seed=8), 3, renormalize=True)
    found = given.apply(x, experts, weights, activation)
    assert found.dtype == dtype
    expected = expected_mixture(x, experts, weights, given, activation)
    bound = TOLERANCE[dtype] * expected.abs().max().clamp(min=1)
    assert (found.double() - expected).abs().max() <= bound


def test_the_result_is_written_where_asked() -> None:
    given = make_weights(is_packed=True, has_bias=True, dtype=torch.float32)
    x = random(5, SIZE, seed=7)
    experts, weights = ops.route(random(5, NUM_EXPERTS, seed=8), 2, renormalize=False)
    out = torch.full_like(x, torch.nan)
    assert given.apply(x, experts, weights, PlainSwiGLU(), out=out) is out
    assert torch.equal(out, given.apply(x, experts, weights, PlainSwiGLU()))


# What they don't touch


def poison(given: Weights, expert: int) -> Weights:
    """Make an expert NaN throughout."""
    for weight in (given.gate_up, given.down):
        part = weight.parts[1] if isinstance(weight, StoredRows) else weight
        part[expert] = 255 if isinstance(weight, StoredRows) else torch.nan
    for bias in (given.gate_up_bias, given.down_bias):
        if bias is not None:
            bias[expert] = torch.nan
    return given


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_expert_that_nobody_chose_is_not_computed(is_packed: bool) -> None:
    given = make_weights(is_packed=is_packed, has_bias=True, dtype=torch.float32)
    x, weights = random(3, SIZE, seed=7), torch.full((3, 2), 0.5)
    experts = torch.tensor([[1, 4], [4, 2], [2, 1]])
    expected = given.apply(x, experts, weights, PlainSwiGLU())
    for expert in (0, 3, 5):
        poison(given, expert)
    assert torch.equal(given.apply(x, experts, weights, PlainSwiGLU()), expected)
    poison(given, 2)
    is_nan = given.apply(x, experts, weights, PlainSwiGLU()).isnan()
    assert is_nan.all(-1).tolist() == [False, True, True]
    assert not is_nan[0].any()


def test_a_token_that_is_no_number_harms_no_other() -> None:
    given = make_weights(is_packed=True, has_bias=True, dtype=torch.float32)
    x, logits = random(9, SIZE, seed=7), random(9, NUM_EXPERTS, seed=8)
    clean = given.apply(x, *ops.route(logits, 3, renormalize=True), ClampedSwiGLU())
    x[4], logits[4] = torch.nan, torch.nan
    found = given.apply(x, *ops.route(logits, 3, renormalize=True), ClampedSwiGLU())
    others = [token for token in range(9) if token != 4]
    torch.testing.assert_close(found[others], clean[others], atol=1e-5, rtol=1e-5)
    assert found[4].isnan().all()


def test_a_packed_weight_is_unpacked_in_tiles_and_only_for_chosen_experts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def watch(weight: StoredRows, dtype: torch.dtype) -> Tensor:
        sizes.append(math.prod(weight.shape))
        return ops.packed.unpack(weight, dtype)

    monkeypatch.setattr(moe, "unpack", watch)
    monkeypatch.setattr(moe, "_TILE_VALUES", 10 * SIZE)
    given = make_weights(is_packed=True, has_bias=True, dtype=torch.float32)
    x, weights = random(4, SIZE, seed=7), torch.ones(4, 2)
    experts = torch.tensor([[1, 4], [4, 1], [4, 1], [1, 4]])
    found = given.apply(x, experts, weights, PlainSwiGLU())
    assert max(sizes) <= 10 * SIZE
    assert sum(sizes) == 2 * 3 * INNER * SIZE, "each chosen expert once, whoever chose it"
    expected = expected_mixture(x, experts, weights, given, PlainSwiGLU())
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-4)


# In which order they are summed


@pytest.mark.parametrize("num_others", [0, 30])
def test_outputs_are_summed_by_rank_whoever_shares_the_batch(num_others: int) -> None:
    """1e8 + 1 - 1e8 is 0 in float32, 1e8 - 1e8 + 1 is 1: the sum shows its order."""
    zeros = make_weights(is_packed=False, has_bias=False, dtype=torch.float32)
    outputs = torch.tensor([1e8, 1.0, -1e8, 0.0, 0.0, 0.0]).unsqueeze(1).expand(-1, SIZE)
    zeros = replace(zeros, down=torch.zeros(NUM_EXPERTS, SIZE, INNER), down_bias=outputs)
    ranked = [[0, 1, 2], [0, 2, 1], [2, 0, 1], [1, 0, 2]]
    others = torch.randint(6, (num_others, 3), generator=torch.Generator().manual_seed(0))
    experts = torch.cat((torch.tensor(ranked), others))
    found = zeros.apply(
        torch.zeros(len(experts), SIZE), experts, torch.ones(experts.shape), PlainSwiGLU()
    )
    assert found[:4, 0].tolist() == [0.0, 1.0, 1.0, 0.0]
