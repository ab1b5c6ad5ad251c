"""The reference's draw where its public face can't tell which way it went."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inferno.ops import SamplingSpec, reference
from inferno.ops.reference import sampling
from inferno.ops.reference.sampling import exponential

CPU = torch.device("cpu")
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("num_candidates", [1, 2, 7, 60, 299, 300])
def test_the_number_of_candidates_that_are_tried_first_changes_nothing(
    num_candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    logits_RV = (torch.randn(40, 300) * 6).round() / 6  # many ties
    specs = [
        SamplingSpec(1.0, top_k=7, top_p=1.0, min_p=0.0),
        SamplingSpec(1.0, top_k=100, top_p=1.0, min_p=0.0),
        SamplingSpec(1.0, top_k=0, top_p=0.5, min_p=0.0),
        SamplingSpec(1.0, top_k=100, top_p=0.4, min_p=0.0),
    ]
    peak_R, _ = reference.argmax(logits_RV)
    grouped = reference.sampling_specs(specs * 10, CPU)
    uniform_R = torch.rand(40, dtype=torch.float64)

    def drawn() -> list[int]:
        out = torch.full((40,), -1)
        return reference.draw(logits_RV, peak_R, grouped, uniform_R, out=out).tolist()

    usual = drawn()
    monkeypatch.setattr(sampling, "_NUM_CANDIDATES", num_candidates)
    assert drawn() == usual


@pytest.mark.parametrize("number", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize("vocab_size", [5, 256, 300, 1000])
def test_the_ends_of_the_random_range_give_tokens_that_are_possible(
    number: float, vocab_size: int
) -> None:
    torch.manual_seed(vocab_size)
    logits_RV = torch.randn(2, vocab_size)
    logits_RV[:, [0, -1]] = -torch.inf
    specs = [SamplingSpec(1.0, 0, 1.0, 0.0), SamplingSpec(1.0, vocab_size - 3, 1.0, 0.0)]
    peak_R, out = logits_RV.amax(1), torch.full((2,), -1)
    uniform_R = torch.full((2,), number, dtype=torch.float64)
    grouped = reference.sampling_specs(specs, CPU)
    any_token, likely_token = reference.draw(logits_RV, peak_R, grouped, uniform_R, out=out)
    assert 0 < any_token < vocab_size - 1
    assert likely_token in logits_RV[1].argsort(descending=True)[: vocab_size - 3]


def test_the_exponential_is_near_the_exact_one_and_whole_at_zero() -> None:
    x = torch.cat((torch.linspace(-87, 0, 200_001), -torch.logspace(-30, 1, 10_000)))
    exact = x.double().exp()
    assert ((exponential(x).double() - exact) / exact).abs().max() < 3e-7
    assert exponential(torch.zeros(3)).tolist() == [1.0] * 3
    assert exponential(torch.tensor([-1e30, -INF])).max() < 1.2e-38
    assert exponential(torch.tensor([NAN])).isnan().all()


def test_each_step_of_the_exponential_rounds() -> None:
    """Its bits, worked out in float64 of which each step is rounded to float32."""
    x = torch.linspace(-80, 0, 3001)

    def rounded(value: Tensor) -> Tensor:
        return value.float().double()

    def constant(value: float) -> Tensor:
        return rounded(torch.tensor(value, dtype=torch.float64))

    wide = x.double()
    n = rounded(wide * constant(1.442695041)).round()
    r = rounded(wide - rounded(n * constant(0.693359375)))
    r = rounded(r + rounded(n * constant(2.12194440e-4)))
    p = constant(1.9875691500e-4)
    for coefficient in (
        *(1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
    ):
        p = rounded(rounded(p * r) + constant(coefficient))
    p = rounded(rounded(p * rounded(r * r)) + rounded(r + 1))
    expected = p * torch.exp2(n)
    assert torch.equal(exponential(x).double(), expected)
