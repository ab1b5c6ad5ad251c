"""The compiled norms, gates and angles against formulas in float64 and the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.config.mixture import ClampedSwiGLU
from inferno.ops import cpu, reference
from inferno.ops.cpu.native import matrix
from inferno.ops.reference.moe import activate
from tests.ops.cpu.guarded import copied, guarded

pytestmark = pytest.mark.usefixtures("level")

DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = [1, 5, 16, 100, 1030]
# A result may be rounded the other way where float32 sums differ in their last bit.
STEP = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
EPS = 1e-5


def assert_near(result: Tensor, expected: Tensor) -> None:
    step = STEP[result.dtype]
    torch.testing.assert_close(result, expected.to(result.dtype), rtol=step, atol=step / 1000)


def clamped_gate(gate_up_TF: Tensor, activation: ClampedSwiGLU) -> Tensor:
    num_tokens, width = gate_up_TF.shape
    out_TF = guarded((num_tokens, width // 2), gate_up_TF.dtype)
    kind = _native.activation(1, activation.alpha, activation.limit)
    _native.gate(matrix(gate_up_TF), kind, matrix(out_TF))
    return out_TF


def silu_mul_into(out_TF: Tensor, gate_up_TF: Tensor) -> None:
    _native.gate(matrix(gate_up_TF), _native.activation(0, 0.0, 0.0), matrix(out_TF))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", DTYPES)
def test_rms_norm_is_its_formula(width: int, dtype: torch.dtype, weights: torch.dtype) -> None:
    torch.manual_seed(width)
    x_TE = (torch.randn(7, width) * 3).to(dtype)
    weight_E = torch.rand(width).add(0.5).to(weights)
    x64_TE = x_TE.double()
    scale_T1 = (x64_TE.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    normalized_TE = (x64_TE * scale_T1).to(dtype).double()
    assert_near(cpu.rms_norm(x_TE, weight_E, EPS), normalized_TE * weight_E.double())


def test_rms_norm_rounds_before_it_weighs() -> None:
    x_TE, weight_E = torch.randn(9, 1000).bfloat16(), torch.rand(1000).bfloat16()
    is_equal_TE = cpu.rms_norm(x_TE, weight_E, EPS) == reference.rms_norm(x_TE, weight_E, EPS)
    assert is_equal_TE.float().mean() > 0.99  # one rounding instead of two changes every fourth


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_residual_is_added_first(width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(width)
    x_TE, residual_TE = torch.randn(2, 7, width).to(dtype)
    weight_E = torch.rand(width).add(0.5).to(dtype)
    normed_TE, summed_TE = cpu.add_rms_norm(x_TE, residual_TE, weight_E, EPS)
    assert torch.equal(summed_TE, x_TE + residual_TE)
    assert torch.equal(normed_TE, cpu.rms_norm(summed_TE, weight_E, EPS))
    assert_near(normed_TE, reference.rms_norm(summed_TE, weight_E, EPS))


@pytest.mark.parametrize("width", WIDTHS)
def test_silu_mul_is_its_formula(width: int) -> None:
    torch.manual_seed(width)
    gate_up_TF = torch.randn(7, 2 * width) * 10
    gate_TF, up_TF = gate_up_TF.double().chunk(2, dim=-1)
    expected_TF = gate_TF / (1 + torch.exp(-gate_TF)) * up_TF
    torch.testing.assert_close(cpu.silu_mul(gate_up_TF).double(), expected_TF, rtol=1e-6, atol=0)


def test_silu_mul_rounds_twice_in_bfloat16() -> None:
    gate_up_TF = (torch.randn(7, 200) * 4).bfloat16()
    gate_TF, up_TF = gate_up_TF.double().chunk(2, dim=-1)
    silu_TF = (gate_TF / (1 + torch.exp(-gate_TF))).bfloat16()
    assert torch.equal(cpu.silu_mul(gate_up_TF), silu_TF * up_TF.bfloat16())


@pytest.mark.parametrize("gate", [-1e30, -200.0, -88.0, -0.0, 88.0, 200.0, 1e30])
def test_gates_far_out_are_finite(gate: float) -> None:
    gate_up_TF = torch.tensor([[gate, 1.0]])
    assert_near(cpu.silu_mul(gate_up_TF), torch.tensor([[max(gate, 0.0)]]))
    activation = ClampedSwiGLU()
    assert_near(clamped_gate(gate_up_TF, activation), activate(gate_up_TF, activation))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_clamped_gates(width: int, dtype: torch.dtype) -> None:
    gate_up_TF = (torch.randn(7, 2 * width) * 6).to(dtype)
    activation = ClampedSwiGLU(alpha=1.5, limit=5.0)
    assert_near(clamped_gate(gate_up_TF, activation), activate(gate_up_TF, activation))


@pytest.mark.parametrize("place", [0, 1])
def test_nan_stays_nan(place: int) -> None:
    gate_up_TF = torch.ones(2, 40)
    gate_up_TF[0, place * 20] = torch.nan
    for result in (cpu.silu_mul(gate_up_TF), clamped_gate(gate_up_TF, ClampedSwiGLU())):
        assert result[0, 0].isnan()
        assert result.isnan().sum() == 1


@pytest.mark.parametrize("half", [1, 3, 40, 64])
def test_angles_are_exact_to_the_last_bit(half: int) -> None:
    positions_T = torch.tensor([0, 1, 7, 4095, 131071, 1_000_003])
    frequencies_D = 10000.0 ** -(torch.arange(half) / half)
    angles_TD = (positions_T.float().unsqueeze(1) * frequencies_D).double()
    result = cpu.cos_sin(positions_T, frequencies_D, 1.0)
    expected = torch.cat([angles_TD.cos(), angles_TD.sin()], dim=-1)
    torch.testing.assert_close(result.double(), expected, rtol=2**-23, atol=1e-10)
    assert torch.equal(cpu.cos_sin(positions_T, frequencies_D, 1.25), result * 1.25)


def ops_by_row() -> dict[str, object]:
    weight_E = torch.rand(60).add(0.5)
    return {
        "rms_norm": lambda x: cpu.rms_norm(x, weight_E, EPS),
        "add_rms_norm": lambda x: torch.cat(cpu.add_rms_norm(x, x.flip(-1), weight_E, EPS), dim=-1),
        "silu_mul": cpu.silu_mul,
        "clamped": lambda x: clamped_gate(x, ClampedSwiGLU()),
        "cos_sin": lambda x: cpu.cos_sin((x[:, 0] * 100).long(), weight_E, 1.0),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ops_by_row())
def test_a_row_has_the_same_bits_alone_and_among_others(
    name: str, dtype: torch.dtype, two_threads: None
) -> None:
    op = ops_by_row()[name]
    assert callable(op)
    x_TE = (torch.randn(1000, 60) * 3).to(dtype)
    together = op(x_TE)
    for row in (0, 1, 499, 999):
        assert torch.equal(op(x_TE[row : row + 1])[0], together[row])
    assert len(op(x_TE[:0])) == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_beyond_a_row_is_read_or_written(width: int, dtype: torch.dtype) -> None:
    x_TE, weight_E = copied(torch.randn(3, width).to(dtype)), copied(torch.ones(width))
    cpu.rms_norm(x_TE, weight_E, EPS, out=guarded((3, width), dtype))
    cpu.add_rms_norm(x_TE, copied(x_TE), weight_E.to(dtype), EPS)
    gate_up_TF = copied(torch.randn(3, 2 * width).to(dtype))
    silu_mul_into(guarded((3, width), dtype), gate_up_TF)
    clamped_gate(gate_up_TF, ClampedSwiGLU())


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_be_slices_and_nothing_beside_them_is_written(dtype: torch.dtype) -> None:
    x_TF = torch.randn(9, 100).to(dtype)
    out_TF = torch.full((11, 50), 5.0, dtype=dtype)
    inner_TF, slice_TF = out_TF[1:-1, 4:34], x_TF[:, 13:43]
    weight_E = torch.ones(30)
    cpu.rms_norm(slice_TF, weight_E, EPS, out=inner_TF)
    assert torch.equal(inner_TF, cpu.rms_norm(slice_TF.contiguous(), weight_E, EPS))
    silu_mul_into(inner_TF, x_TF[:, 13:73])
    assert torch.equal(inner_TF, cpu.silu_mul(x_TF[:, 13:73].contiguous()))
    inner_TF.fill_(5.0)
    assert (out_TF == 5).all()
