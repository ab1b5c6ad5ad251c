"""Norms, the gate and the embedding in Triton against formulas in float64 and the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda import elementwise, norms

pytestmark = pytest.mark.gpu

WIDTHS = [2, 5, 64, 100, 1030]
EPS = 1e-5
# A result may be rounded the other way where float32 sums differ in their last bit.
STEP = {torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Triton's interpreter rounds to bfloat16 wrongly.
DTYPES = list(STEP) if torch.cuda.is_available() else [torch.float32, torch.float16]


def rows(num_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows that are a part of wider ones, whose rest is NaN."""
    wide_TF = torch.full((num_rows, width + 7), torch.nan, dtype=dtype, device=device)
    wide_TF[:, 3:-4] = torch.randn(num_rows, width, device=device) * 3
    return wide_TF[:, 3:-4]


def weight(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.rand(width, device=device).add(0.5).to(dtype)


def assert_near(result: Tensor, expected: Tensor) -> None:
    step = STEP[result.dtype]
    torch.testing.assert_close(result, expected.to(result.dtype), rtol=step, atol=step / 1000)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_is_its_formula(width: int, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(width)
    x_TE, weight_E = rows(3, width, dtype, device), weight(width, dtype, device)
    x64_TE = x_TE.double()
    scale_T1 = (x64_TE.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    normalized_TE = (x64_TE * scale_T1).to(dtype).double()
    assert_near(norms.rms_norm(x_TE, weight_E, EPS), normalized_TE * weight_E.double())


def test_rms_norm_rounds_before_it_weighs(device: torch.device) -> None:
    torch.manual_seed(0)
    x_TE, weight_E = rows(9, 1000, torch.float16, device), weight(1000, torch.float16, device)
    is_equal_TE = norms.rms_norm(x_TE, weight_E, EPS) == reference.rms_norm(x_TE, weight_E, EPS)
    assert is_equal_TE.float().mean() > 0.99  # one rounding instead of two changes every fourth


def test_a_norm_is_written_where_it_is_wanted(device: torch.device) -> None:
    x_TE, weight_E = rows(3, 20, torch.float32, device), weight(20, torch.float32, device)
    out_TE = torch.full((3, 25), 7.0, device=device)
    result_TE = norms.rms_norm(x_TE, weight_E, EPS, out=out_TE[:, :20])
    assert result_TE.data_ptr() == out_TE.data_ptr()
    assert torch.equal(out_TE[:, :20], norms.rms_norm(x_TE, weight_E, EPS))
    assert (out_TE[:, 20:] == 7).all()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_residual_is_added_first(width: int, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(width)
    x_TE, residual_TE = (rows(3, width, dtype, device) for _ in range(2))
    weight_E = weight(width, dtype, device)
    normed_TE, summed_TE = norms.add_rms_norm(x_TE, residual_TE, weight_E, EPS)
    assert torch.equal(summed_TE, x_TE + residual_TE)
    assert torch.equal(normed_TE, norms.rms_norm(summed_TE, weight_E, EPS))
    assert_near(normed_TE, reference.rms_norm(summed_TE, weight_E, EPS))


def test_the_first_block_has_no_residual(device: torch.device) -> None:
    x_TE, weight_E = rows(3, 20, torch.float32, device), weight(20, torch.float32, device)
    normed_TE, summed_TE = norms.add_rms_norm(x_TE, None, weight_E, EPS)
    assert torch.equal(summed_TE, x_TE)
    assert torch.equal(normed_TE, norms.rms_norm(x_TE, weight_E, EPS))


def test_a_row_has_the_same_bits_alone_and_beside_others(device: torch.device) -> None:
    torch.manual_seed(0)
    x_TE, residual_TE = (rows(5, 300, torch.float32, device) for _ in range(2))
    x_TE[3] = torch.nan
    weight_E = weight(300, torch.float32, device)
    both = norms.add_rms_norm(x_TE, residual_TE, weight_E, EPS)
    for row in (0, 2, 4):
        part = slice(row, row + 1)
        alone = norms.add_rms_norm(x_TE[part], residual_TE[part], weight_E, EPS)
        assert all(torch.equal(a, b[part]) for a, b in zip(alone, both, strict=True))


def test_extreme_rows_stay_finite(device: torch.device) -> None:
    x_TE = torch.zeros(3, 8, device=device)
    x_TE[1], x_TE[2] = 1e18, 1e-30
    result_TE = norms.rms_norm(x_TE, torch.ones(8, device=device), EPS)
    assert (result_TE[0] == 0).all()
    torch.testing.assert_close(result_TE[1], torch.ones(8, device=device))
    assert result_TE[2].isfinite().all()


@pytest.mark.parametrize("width", [1, 20000])
def test_other_widths_are_the_references(width: int, device: torch.device) -> None:
    x_TE, weight_E = rows(2, width, torch.float32, device), weight(width, torch.float32, device)
    expected_TE = reference.rms_norm(x_TE, weight_E, EPS)
    torch.testing.assert_close(norms.rms_norm(x_TE, weight_E, EPS), expected_TE)


@pytest.mark.parametrize("width", [1, 100, 1030])
@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_mul_is_the_reference(width: int, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(width)
    gate_up_TF = rows(3, 2 * width, dtype, device)
    result_TF = elementwise.silu_mul(gate_up_TF)
    torch.testing.assert_close(
        result_TF, reference.silu_mul(gate_up_TF), rtol=STEP[dtype], atol=1e-7
    )


def test_silu_mul_of_large_numbers(device: torch.device) -> None:
    gate_up_TF = torch.tensor([[-1e4, 1e4, torch.nan, -0.0, 2.0, 2.0, 2.0, 2.0]], device=device)
    expected_TF = torch.tensor([[-0.0, 2e4, torch.nan, -0.0]], device=device)
    torch.testing.assert_close(elementwise.silu_mul(gate_up_TF), expected_TF, equal_nan=True)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding_takes_rows(width: int, dtype: torch.dtype, device: torch.device) -> None:
    weight_VE = rows(11, width, dtype, device)
    ids_T = torch.tensor([10, 0, 3, 3], device=device)
    assert torch.equal(elementwise.embedding(ids_T, weight_VE), weight_VE[ids_T])


def test_ids_of_padding_read_nothing(device: torch.device) -> None:
    weight_VE = torch.ones(4, 20, device=device)
    result_TE = elementwise.embedding(torch.tensor([4, -1, 1 << 40, 3], device=device), weight_VE)
    assert result_TE.sum(-1).tolist() == [0, 0, 0, 20]


def test_no_rows_are_no_launch(device: torch.device) -> None:
    x_TE, weight_E = torch.empty(0, 20, device=device), torch.ones(20, device=device)
    assert norms.rms_norm(x_TE, weight_E, EPS).shape == (0, 20)
    assert norms.add_rms_norm(x_TE, x_TE, weight_E, EPS)[1].shape == (0, 20)
    assert elementwise.silu_mul(x_TE).shape == (0, 10)
    ids_T = torch.empty(0, dtype=torch.int64, device=device)
    assert elementwise.embedding(ids_T, torch.ones(3, 20, device=device)).shape == (0, 20)
