"""The reference ops against formulas in float64, written from the papers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno import ops
from inferno.ops import LayerKV, reference
from inferno.ops.reference import rotate
from tests.ops.batches import make_batch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(found: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_has_unit_root_mean_square_times_the_weight(dtype: torch.dtype) -> None:
    x, weight = random(5, 33, dtype=dtype) * 7, random(33, dtype=dtype, seed=1)
    exact = x.double()
    expected = exact / (exact.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    assert_close(ops.rms_norm(x, weight, 1e-6), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_returns_the_norm_and_the_sum(dtype: torch.dtype) -> None:
    x, residual, weight = (random(4, 24, dtype=dtype, seed=i) for i in range(3))
    normed, summed = ops.add_rms_norm(x, residual, weight[0], 1e-5)
    assert_close(summed, x.double() + residual.double())
    assert torch.equal(normed, ops.rms_norm(summed, weight[0], 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_mul_gates_the_second_half_by_the_first(dtype: torch.dtype) -> None:
    x = random(6, 20, dtype=dtype) * 4
    gate, up = x.double()[:, :10], x.double()[:, 10:]
    assert_close(reference.silu_mul(x), gate / (1 + torch.exp(-gate)) * up)


def test_a_gated_product_is_one_of_both_halves() -> None:
    x, weight, bias = random(3, 8), random(10, 8, seed=1), random(10, seed=2)
    gate, up = (x.double() @ weight.double().T + bias.double()).chunk(2, dim=-1)
    assert_close(ops.gated_linear(x, weight, bias), gate / (1 + torch.exp(-gate)) * up)


@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_multiplies_by_the_transposed_weight(has_bias: bool) -> None:
    x, weight = random(3, 8), random(5, 8, seed=1)
    bias = random(5, seed=2) if has_bias else None
    expected = torch.einsum("ti,oi->to", x.double(), weight.double())
    assert_close(ops.linear(x, weight, bias), expected if bias is None else expected + bias)


def test_embedding_takes_rows() -> None:
    table = random(7, 3)
    assert torch.equal(ops.embedding(torch.tensor([6, 0, 6]), table), table[[6, 0, 6]])


def test_results_are_written_where_asked() -> None:
    x, weight = random(3, 8), random(8, seed=1)
    out = torch.empty(3, 8)
    assert ops.rms_norm(x, weight, 1e-6, out=out) is out
    assert torch.equal(out, ops.rms_norm(x, weight, 1e-6))


@settings(max_examples=30, deadline=None)
@given(position=st.integers(0, 5000), pair=st.integers(0, 3), head=st.integers(0, 1))
def test_rotation_is_a_complex_product(position: int, pair: int, head: int) -> None:
    frequencies = torch.tensor([1.0, 0.1, 0.01, 0.001])
    angles = position * frequencies
    cos_sin = torch.cat((angles.cos(), angles.sin())).unsqueeze(0)
    x = random(1, 2, 8, seed=position)
    turned = rotate(x, cos_sin)[0, head]
    before = complex(x[0, head, pair], x[0, head, pair + 4])
    angle = position * frequencies[pair].item()
    after = before * complex(math.cos(angle), math.sin(angle))
    assert complex(turned[pair], turned[pair + 4]) == pytest.approx(after, abs=2e-3)


def test_rotated_products_depend_on_distance_only() -> None:
    frequencies = torch.tensor([1.0, 0.3, 0.02])
    q, k = random(1, 1, 6), random(1, 1, 6, seed=1)

    def at(x: Tensor, position: int) -> Tensor:
        angles = position * frequencies
        return rotate(x, torch.cat((angles.cos(), angles.sin())).unsqueeze(0)).flatten()

    near = at(q, 12) @ at(k, 5)
    far = at(q, 107) @ at(k, 100)
    torch.testing.assert_close(near, far, atol=1e-4, rtol=0)


def test_keys_and_values_go_to_their_slots_and_nowhere_else() -> None:
    batch = make_batch([2, 1], [5, 1], [[3, 1], [2]], block_size=4)
    shape = (4, 4, 2, 6)
    kv = LayerKV(torch.full(shape, math.nan), torch.full(shape, math.nan))
    q, k, v = random(3, 4, 6), random(3, 2, 6, seed=1), random(3, 2, 6, seed=2)
    angles = batch.positions_T.unsqueeze(1) * torch.tensor([1.0, 0.1, 0.01])
    cos_sin = torch.cat((angles.cos(), angles.sin()), dim=1)
    weight = random(6, seed=3)
    turned = ops.rotate_and_store(
        q, k, v, cos_sin, batch, kv, q_norm_D=weight, k_norm_D=weight, eps=1e-6
    )
    torch.testing.assert_close(turned, rotate(ops.rms_norm(q, weight, 1e-6), cos_sin))
    keys = rotate(ops.rms_norm(k, weight, 1e-6), cos_sin)
    for token, (block, offset) in enumerate([(3, 3), (1, 0), (2, 0)]):
        torch.testing.assert_close(kv.keys_NSKD[block, offset], keys[token])
        assert torch.equal(kv.values_NSKD[block, offset], v[token])
    assert kv.keys_NSKD.isnan().all(-1).all(-1).sum() == 16 - 3
