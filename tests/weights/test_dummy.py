"""Random weights: reproducible, of the promised distribution, and without structure."""

from __future__ import annotations

from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from inferno.errors import NotEnoughMemory
from inferno.layers.moe import ExpertLinear
from inferno.ops import matrices
from inferno.quantization import MXFP4, WeightFormat
from inferno.weights import allocate
from inferno.weights.dummy import fill_dummy
from inferno.weights.pieces import FusedSpec, Piece, whole
from tests.weights.files import parameters

CPU = torch.device("cpu")


def filled(*, dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Tensor]:
    with torch.device("meta"):
        model = nn.ModuleDict(
            {
                "up": nn.Linear(256, 512),
                "gate": nn.Linear(256, 512),
                "embed": nn.Embedding(20_000, 256),  # larger than the pool
                "q_norm": nn.LayerNorm(64, bias=False),
                "input_layernorm": nn.LayerNorm(64, bias=False),
            }
        )
    fill_dummy(model, device=CPU, dtype=dtype, seed=seed)
    return parameters(model)


def test_progress_counts_up_to_the_size_of_the_model() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2, bias=False))
    reports: list[tuple[int, int]] = []
    fill_dummy(model, device=CPU, dtype=torch.bfloat16, progress=lambda *at: reports.append(at))
    assert reports == [(64, 88), (72, 88), (88, 88)]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    first, second, other = filled(), filled(), filled(seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["up.weight"], other["up.weight"])


def test_weights_are_normal_with_deviation_0_02() -> None:
    weights = torch.cat([filled()[f"{name}.weight"].view(-1) for name in ("up", "gate", "embed")])
    assert abs(weights.mean()) < 1e-4
    expected = NormalDist(0, 0.02)
    for quantile in (0.01, 0.25, 0.5, 0.75, 0.99):
        below = (weights < expected.inv_cdf(quantile)).float().mean()
        assert abs(below - quantile) < 2e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_no_weight_is_zero_or_denormal(dtype: torch.dtype) -> None:
    for weight in filled(dtype=dtype).values():
        assert weight.dtype == dtype
        assert not weight.requires_grad
        assert weight.abs().min() >= torch.finfo(dtype).smallest_normal


def test_norms_are_ones_and_biases_small() -> None:
    weights = filled()
    assert torch.equal(weights["q_norm.weight"], torch.ones(64))
    assert torch.equal(weights["input_layernorm.weight"], torch.ones(64))
    assert 0 < weights["up.bias"].abs().max() < 0.2


def test_matrices_differ_and_have_full_rank() -> None:
    weights = filled()
    assert not torch.equal(weights["up.weight"], weights["gate.weight"])
    for name in ("up", "gate", "embed"):
        assert torch.linalg.matrix_rank(weights[f"{name}.weight"]) == 256
    assert len(torch.unique(weights["embed.weight"], dim=0)) == 20_000


def test_packed_weights_have_about_the_same_deviation() -> None:
    with torch.device("meta"):
        model = nn.ModuleDict({"up": ExpertLinear(5, 640, 1000, bias=True)})
    fused: FusedSpec = {"up.weight": (Piece("up", whole, format=MXFP4),)}

    def stored_format(name: str, parameter: Tensor, stored: WeightFormat) -> WeightFormat:
        return stored

    fill_dummy(model, device=CPU, dtype=torch.bfloat16, fused=fused, format_of=stored_format)
    (packed,) = model.children()
    assert isinstance(packed, ExpertLinear)
    assert not isinstance(packed.weight, Tensor)
    rows = packed.weight.num_bytes / (5 * 640 * MXFP4.bits / 8)
    assert rows in (1000, 1008)  # in panels of 16 where there are kernels
    weights = torch.stack([one.unpack(torch.float32) for one in matrices(packed.weight)])
    assert weights.shape == (5, 1000, 640)
    assert 0.015 < weights.std() < 0.025
    assert abs(weights.mean()) < 1e-4
    assert all(torch.linalg.matrix_rank(weight) == 640 for weight in weights[:2])
    assert not torch.equal(weights[0], weights[1])
    assert packed.bias is not None
    assert packed.bias.dtype == torch.bfloat16


def test_a_model_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocate, "available_bytes", lambda device: 100)
    with pytest.raises(NotEnoughMemory):
        filled()
