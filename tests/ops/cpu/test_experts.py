"""The compiled mixture of experts against the reference, and bit by bit against its own parts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.config.mixture import Activation, ClampedSwiGLU, PlainSwiGLU
from inferno.ops import cpu
from inferno.ops.cpu.native import matrix
from inferno.ops.cpu.panels import PanelExperts
from inferno.ops.reference import moe
from inferno.quantization import FLOAT32, INT4, INT8, MXFP4, WeightFormat
from tests.ops.cpu.guarded import copied, guarded
from tests.ops.cpu.packed_weights import KERNEL_FORMATS, quantized, random_weight

pytestmark = pytest.mark.usefixtures("level")

FLOATS = [torch.float32, torch.bfloat16]
ACTIVATIONS = [PlainSwiGLU(), ClampedSwiGLU(limit=2.0)]
NUM_EXPERTS, SIZE = 6, 70
INNER, WHOLE = 41, 48  # widths of what is gated: with whole panels the product itself may gate it


@dataclass(frozen=True)
class Mixture:
    """Weights, and their values in float64."""

    gate_up: PanelExperts
    down: PanelExperts
    gate_up_bias_XF: Tensor
    down_bias_XE: Tensor
    gate_up_values_XFE: Tensor
    down_values_XEF: Tensor
    activation: Activation

    def run(self, x_TE: Tensor, experts_TA: Tensor, weights_TA: Tensor) -> Tensor:
        return cpu.experts(
            *(x_TE, experts_TA, weights_TA, self.gate_up, self.down),
            activation=self.activation,
            gate_up_bias_XF=self.gate_up_bias_XF,
            down_bias_XE=self.down_bias_XE,
            out=guarded(x_TE.shape, x_TE.dtype, stride=x_TE.shape[1] + 3),
        )


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def random_experts(
    format: WeightFormat, num_outputs: int, num_inputs: int
) -> tuple[PanelExperts, Tensor]:
    made = [random_weight(format, num_outputs, num_inputs, seed) for seed in range(NUM_EXPERTS)]
    native = _native.weights([weight.native for weight, _ in made])
    experts = PanelExperts(tuple(weight for weight, _ in made), native)
    return experts, torch.stack([values_OI for _, values_OI in made])


def make_mixture(
    format: WeightFormat, activation: Activation, dtype: torch.dtype, inner: int = INNER
) -> Mixture:
    gate_up, gate_up_values_XFE = random_experts(format, 2 * inner, SIZE)
    down, down_values_XEF = random_experts(format, SIZE, inner)
    return Mixture(
        *(gate_up, down),
        *(random(NUM_EXPERTS, 2 * inner, dtype=dtype), random(NUM_EXPERTS, SIZE, dtype=dtype)),
        *(gate_up_values_XFE, down_values_XEF),
        activation,
    )


def make_tokens(num_tokens: int, num_chosen: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Activations, the chosen experts (the last is chosen by nobody) and their weights."""
    x_TE = copied(random(num_tokens, SIZE, dtype=dtype), stride=SIZE + 2)
    logits_TX = random(num_tokens, NUM_EXPERTS)
    logits_TX[:, -1] = -100
    experts_TA, weights_TA = moe.route(logits_TX, num_chosen, renormalize=True)
    return x_TE, experts_TA.contiguous(), weights_TA


def gate(gate_up_TF: Tensor, activation: Activation) -> Tensor:
    out_TF = torch.empty(len(gate_up_TF), gate_up_TF.shape[1] // 2, dtype=gate_up_TF.dtype)
    kind = _native.activation(0, 0.0, 0.0)
    if isinstance(activation, ClampedSwiGLU):
        kind = _native.activation(1, activation.alpha, activation.limit)
    _native.gate(matrix(gate_up_TF), kind, matrix(out_TF))
    return out_TF


def expert_alone(mixture: Mixture, x_E: Tensor, expert: int) -> Tensor:
    """One expert's output for one token, by the kernels that it should be made of."""
    hidden = cpu.linear(x_E[None], mixture.gate_up[expert], mixture.gate_up_bias_XF[expert])
    gated = gate(hidden, mixture.activation)
    return cpu.linear(gated, mixture.down[expert], mixture.down_bias_XE[expert])[0]


@pytest.mark.parametrize("inner", [INNER, WHOLE])
@pytest.mark.parametrize(("num_tokens", "num_chosen"), [(0, 2), (1, 1), (1, 4), (3, 5), (40, 3)])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_it_is_made_of_its_parts(
    format: WeightFormat,
    activation: Activation,
    dtype: torch.dtype,
    num_tokens: int,
    num_chosen: int,
    inner: int,
) -> None:
    mixture = make_mixture(format, activation, dtype, inner)
    x_TE, experts_TA, weights_TA = make_tokens(num_tokens, num_chosen, dtype)
    result_TE = mixture.run(x_TE, experts_TA, weights_TA)
    for x_E, chosen, weights, result_E in zip(
        x_TE, experts_TA.tolist(), weights_TA, result_TE, strict=True
    ):
        expected_E = torch.zeros(SIZE)
        for expert, weight in zip(chosen, weights, strict=True):
            expected_E += expert_alone(mixture, x_E, expert).float() * weight
        assert torch.equal(result_E, expected_E.to(dtype))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("format", [FLOAT32, INT8, MXFP4], ids=str)
def test_it_is_the_reference(format: WeightFormat, activation: Activation) -> None:
    mixture = make_mixture(format, activation, torch.float32)
    x_TE, experts_TA, weights_TA = make_tokens(20, 3, torch.float32)
    seen_TE = quantized(x_TE, format).float() if not format.is_float else x_TE
    expected_TE = moe.experts(
        *(seen_TE, experts_TA, weights_TA),
        *(mixture.gate_up_values_XFE.float(), mixture.down_values_XEF.float()),
        activation=activation,
        gate_up_bias_XF=mixture.gate_up_bias_XF,
        down_bias_XE=mixture.down_bias_XE,
    )
    error = (mixture.run(x_TE, experts_TA, weights_TA) - expected_TE).norm() / expected_TE.norm()
    assert error < (0.02 if not format.is_float else 1e-5)  # what is gated is quantized again


@pytest.mark.parametrize("inner", [INNER, WHOLE])
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_who_else_is_there_changes_nothing(format: WeightFormat, inner: int) -> None:
    mixture = make_mixture(format, PlainSwiGLU(), torch.float32, inner)
    x_TE, experts_TA, weights_TA = make_tokens(50, 2, torch.float32)
    together_TE = mixture.run(x_TE, experts_TA, weights_TA)
    for some in (slice(0, 1), slice(1, 8), slice(8, 31), slice(20, 50)):
        alone_TE = mixture.run(x_TE[some], experts_TA[some], weights_TA[some])
        assert torch.equal(alone_TE, together_TE[some])


@pytest.mark.parametrize("num_tokens", [1, 30])
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_threads_change_nothing(
    format: WeightFormat, num_tokens: int, request: pytest.FixtureRequest
) -> None:
    mixture = make_mixture(format, PlainSwiGLU(), torch.bfloat16)
    tokens = make_tokens(num_tokens, 4, torch.bfloat16)
    alone_TE = mixture.run(*tokens)
    request.getfixturevalue("two_threads")
    for _ in range(10):
        assert torch.equal(mixture.run(*tokens), alone_TE)


def test_more_tokens_than_are_computed_at_a_time() -> None:
    mixture = make_mixture(INT4, PlainSwiGLU(), torch.float32, WHOLE)
    x_TE, experts_TA, weights_TA = make_tokens(1030, 1, torch.float32)
    some = slice(500, 530)
    together_TE = mixture.run(x_TE, experts_TA, weights_TA)
    alone_TE = mixture.run(x_TE[some], experts_TA[some], weights_TA[some])
    assert torch.equal(together_TE[some], alone_TE)


def test_nothing_between_the_rows_is_written() -> None:
    mixture = make_mixture(INT8, PlainSwiGLU(), torch.bfloat16)
    result_TE = mixture.run(*make_tokens(5, 2, torch.bfloat16))
    gaps = result_TE.as_strided((4, 3), result_TE.stride(), result_TE.storage_offset() + SIZE)
    assert torch.all(gaps.contiguous().view(torch.uint8) == 255)
