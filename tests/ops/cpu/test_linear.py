"""The compiled linear layers against sums in float64, and their bits against other schedules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.ops import cpu
from inferno.ops.cpu.native import matrix
from inferno.quantization import BFLOAT16, FLOAT32, INT4, INT8, MXFP4, WeightFormat
from tests.ops.cpu.guarded import copied, guarded
from tests.ops.cpu.packed_weights import KERNEL_FORMATS, quantized, random_weight

FLOATS = [torch.float32, torch.bfloat16]
# Outputs and inputs: a lane, a panel, a tail of each kind; several chunks of the longest kind.
SIZES = [(1, 1), (16, 32), (17, 33), (40, 95), (100, 544), (200, 1061)]
ROW_COUNTS = [0, 1, 2, 3, 5, 7, 12, 13, 30]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def seen(x: Tensor, format: WeightFormat) -> Tensor:
    """Activations as they are multiplied."""
    if not format.is_float:
        return quantized(x, format)
    return x.to(torch.float32 if format is FLOAT32 else torch.bfloat16).double()


def assert_near(result: Tensor, expected: Tensor, terms: Tensor) -> None:
    """Within what rounding can do to sums of such terms."""
    error = (result.double() - expected).abs()
    allowed = terms * 4e-6 + expected.abs() * (2**-8 if result.dtype is torch.bfloat16 else 0)
    assert torch.all(error <= allowed), (error / allowed).max()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_rows", ROW_COUNTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_it_is_the_sum_of_products(format: WeightFormat, dtype: torch.dtype, num_rows: int) -> None:
    for num_outputs, num_inputs in SIZES:
        weight, values_OI = random_weight(format, num_outputs, num_inputs)
        x_TI = copied(random(num_rows, num_inputs, dtype=dtype))
        result_TO = cpu.linear(x_TI, weight)
        assert (result_TO.shape, result_TO.dtype) == ((num_rows, num_outputs), dtype)
        seen_TI = seen(x_TI, format)
        terms_TO = seen_TI.abs() @ values_OI.abs().T
        assert_near(result_TO, seen_TI @ values_OI.T, terms_TO)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_without_inputs_sums_are_zeros(format: WeightFormat) -> None:
    weight, _ = random_weight(format, 32, 0)
    for num_rows in (1, 40):
        cpu.linear(random(num_rows, 700), random_weight(format, 32, 700)[0])  # leaves sums behind
        x_TI = random(num_rows, 0)
        assert not cpu.linear(x_TI, weight).any()
        assert not cpu.gated_linear(x_TI, weight).any()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("bias_dtype", FLOATS)
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_a_bias_is_added_before_rounding(format: WeightFormat, bias_dtype: torch.dtype) -> None:
    weight, _ = random_weight(format, 50, 70)
    x_TI, bias_O = random(9, 70), copied(random(50, dtype=bias_dtype))
    without_TO = cpu.linear(x_TI, weight)
    assert torch.equal(cpu.linear(x_TI, weight, bias_O), without_TO + bias_O.float())
    out_TO = torch.empty(9, 50, dtype=torch.bfloat16)
    cpu.linear(x_TI, weight, bias_O, out=out_TO)
    assert torch.equal(out_TO, (without_TO + bias_O.float()).bfloat16())


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_a_row_has_the_same_bits_in_any_batch(format: WeightFormat) -> None:
    weight, _ = random_weight(format, 75, 700)
    x_TI = random(40, 700)
    alone_TO = torch.cat([cpu.linear(row_I, weight) for row_I in torch.split(x_TI, 1)])
    for num_rows in range(1, 41):
        assert torch.equal(cpu.linear(x_TI[:num_rows], weight), alone_TO[:num_rows])
        assert torch.equal(cpu.linear(x_TI[-num_rows:], weight), alone_TO[-num_rows:])


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_rows", [1, 7, 16, 33, 600])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_a_gated_product_has_the_bits_of_its_parts(
    format: WeightFormat, dtype: torch.dtype, num_rows: int
) -> None:
    for num_outputs, num_inputs, bias_O in [
        (32, 32, None),
        (160, 95, random(160, dtype=dtype)),
        (100, 40, None),  # a half that ends within a panel
    ]:
        weight, _ = random_weight(format, num_outputs, num_inputs)
        x_TI = copied(random(num_rows, num_inputs, dtype=dtype) * 3)
        expected_TF = cpu.silu_mul(cpu.linear(x_TI, weight, bias_O))
        result_TF = cpu.gated_linear(x_TI, weight, bias_O)
        assert result_TF.dtype == dtype
        assert torch.equal(result_TF, expected_TF)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_a_gated_product_writes_half_as_many_outputs(format: WeightFormat) -> None:
    weight, _ = random_weight(format, 96, 33)
    x_TI, out_TF = copied(random(9, 33)), guarded((9, 48), torch.float32)
    silu = _native.activation(0, 0.0, 0.0)
    _native.gated_linear(matrix(x_TI), weight.native, None, silu, matrix(out_TF))
    assert torch.equal(out_TF, cpu.silu_mul(cpu.linear(x_TI, weight)))
    odd = random_weight(format, 48, 33)[0]
    with pytest.raises(ValueError, match="whole panels"):
        _native.gated_linear(matrix(x_TI), odd.native, None, silu, matrix(out_TF))


@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_more_rows_than_are_multiplied_at_a_time(format: WeightFormat) -> None:
    weight, _ = random_weight(format, 20, 50)
    x_TI = random(1100, 50)
    parts = [cpu.linear(part_TI, weight) for part_TI in torch.split(x_TI, 7)]
    assert torch.equal(cpu.linear(x_TI, weight), torch.cat(parts))


@pytest.mark.usefixtures("level", "two_threads")
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_a_large_result_is_that_of_its_rows(format: WeightFormat, *, is_gated: bool) -> None:
    num_rows, width, gap = 277, 1024, 16  # more than a megabyte, in whole panels
    weight, _ = random_weight(format, 2 * width if is_gated else width, 70)
    x_TI = random(num_rows, 70)
    out_TO = guarded((num_rows, width), torch.float32, stride=width + gap)
    if is_gated:
        silu = _native.activation(0, 0.0, 0.0)
        _native.gated_linear(matrix(x_TI), weight.native, None, silu, matrix(out_TO))
    else:
        _native.linear(matrix(x_TI), weight.native, None, matrix(out_TO))
    multiply = cpu.gated_linear if is_gated else cpu.linear
    parts = [multiply(part_TI, weight) for part_TI in torch.split(x_TI, 32)]
    assert torch.equal(out_TO, torch.cat(parts))
    first_gap = out_TO.storage_offset() + width
    assert out_TO.as_strided((num_rows - 1, gap), (width + gap, 1), first_gap).isnan().all()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_rows", [1, 9, 64])
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_threads_change_nothing(
    format: WeightFormat, num_rows: int, request: pytest.FixtureRequest
) -> None:
    weights = [random_weight(format, outputs, 300)[0] for outputs in (5, 64, 500)]
    x_TI = random(num_rows, 300)
    alone = [cpu.linear(x_TI, weight) for weight in weights]
    request.getfixturevalue("two_threads")
    for weight, expected_TO in zip(weights, alone, strict=True):
        for _ in range(5):
            assert torch.equal(cpu.linear(x_TI, weight), expected_TO)


@pytest.mark.parametrize("format", [p for p in KERNEL_FORMATS if p is not BFLOAT16], ids=str)
def test_every_level_has_the_same_bits(format: WeightFormat) -> None:
    """But for bfloat16 products, which the processor's own instructions round differently."""
    weight, _ = random_weight(format, 100, 600)
    x_TI = random(20, 600)
    before, results = _native.isa(), []
    try:
        for level in _native.isas():
            _native.set_isa(level)
            results.append(cpu.linear(x_TI, weight))
    finally:
        _native.set_isa(before)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_nothing_else_is_read_or_written(format: WeightFormat, dtype: torch.dtype) -> None:
    for num_rows in (1, 7, 14):
        for num_outputs, num_inputs in SIZES:
            weight, _ = random_weight(format, num_outputs, num_inputs)
            x_TI = copied(random(num_rows, num_inputs, dtype=dtype), stride=num_inputs + 3)
            out_TO = guarded((num_rows, num_outputs), dtype, stride=num_outputs + 5)
            before = out_TO.as_strided((out_TO.storage_offset(),), (1,), 0)  # same storage
            gaps = out_TO.as_strided(
                (num_rows - 1, 5), out_TO.stride(), num_outputs + before.numel()
            )
            cpu.linear(x_TI, weight, out=out_TO)
            assert torch.equal(out_TO, cpu.linear(x_TI.contiguous(), weight))
            for untouched in (before, gaps):
                assert torch.all(untouched.contiguous().view(torch.uint8) == 255)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
def test_what_is_not_finite_shows_in_its_row_alone(format: WeightFormat, bad: float) -> None:
    weight, _ = random_weight(format, 30, 100)
    x_TI = random(8, 100)
    expected_TO = cpu.linear(x_TI, weight)
    for column in (0, 31, 50, 99):
        spoilt_TI = x_TI.clone()
        spoilt_TI[3, column] = bad
        result_TO = cpu.linear(spoilt_TI, weight)
        assert not result_TO[3].isfinite().any()
        if math.isnan(bad):
            assert result_TO[3].isnan().all()
        others = [0, 1, 2, 4, 5, 6, 7]
        assert torch.equal(result_TO[others], expected_TO[others])


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", [INT8, INT4, MXFP4], ids=str)
def test_zeros_and_the_smallest_activations(format: WeightFormat) -> None:
    weight, values_OI = random_weight(format, 20, 64)
    x_TI = torch.zeros(4, 64)
    x_TI[1, 40], x_TI[2] = 1e-44, 1e-38
    x_TI[3, :3] = torch.tensor([3e-7, -2e-7, 1e-7])
    result_TO = cpu.linear(x_TI, weight)
    assert torch.all(result_TO[0] == 0)
    assert torch.all(result_TO[1:3].abs() < 1e-30)
    torch.testing.assert_close(result_TO[3:].double(), quantized(x_TI[3:], format) @ values_OI.T)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", [INT8, INT4, MXFP4], ids=str)
def test_activations_of_very_different_sizes(format: WeightFormat) -> None:
    weight, values_OI = random_weight(format, 20, 6 * 32)
    sizes = torch.tensor([[1e4, 1.0, 1e-4, 0.0, 1e-9, 1e3], [1e30] * 6, [1e-25] * 6])
    x_TI = random(3, 6 * 32) * sizes.repeat_interleave(32, dim=1)
    seen_TI = quantized(x_TI, format)
    terms_TO = seen_TI.abs() @ values_OI.abs().T
    assert_near(cpu.linear(x_TI, weight), seen_TI @ values_OI.T, terms_TO)


@pytest.mark.usefixtures("level")
def test_beside_int4_what_is_2_to_the_48th_of_a_row_or_less_is_zero() -> None:
    weight, values_OI = random_weight(INT4, 20, 64)
    x_TI = random(2, 64)
    x_TI[0, 32:] *= 2.0**-40
    x_TI[1, 32:] *= 2.0**-60
    weight.codes.view(2, 2, -1)[:, 0] = 0x88  # all that the large activations meet is zero
    values_OI[:, :32] = 0
    result_TO = cpu.linear(x_TI, weight)
    seen_TI = quantized(x_TI[:1], INT4)
    torch.testing.assert_close(result_TO[:1].double(), seen_TI @ values_OI.T, rtol=1e-5, atol=0)
    assert torch.all(result_TO[1].abs() < 1e-30)


@pytest.mark.usefixtures("level")
def test_scale_255_of_mxfp4_is_nan() -> None:
    weight, _ = random_weight(MXFP4, 20, 64)
    before_TO = cpu.linear(random(7, 64), weight)
    weight.scales[16 + 5] = 255  # of output 5, inputs 32 to 63
    result_TO = cpu.linear(random(7, 64), weight)
    assert result_TO[:, 5].isnan().all()
    others = [i for i in range(20) if i != 5]
    assert torch.equal(result_TO[:, others], before_TO[:, others])


@pytest.mark.usefixtures("level")
def test_the_smallest_and_largest_scales_of_mxfp4() -> None:
    weight, _ = random_weight(MXFP4, 16, 32)
    x_TI = torch.ones(1, 32)
    weight.scales[:] = 127
    unit_TO = cpu.linear(x_TI, weight).double()
    for scale in (10, 240):
        weight.scales[:] = scale
        assert torch.equal(cpu.linear(x_TI, weight), (unit_TO * 2.0 ** (scale - 127)).float())
    weight.scales[:] = 0  # denormals lose their last bits
    expected_TO = unit_TO * 2.0**-127
    torch.testing.assert_close(
        cpu.linear(x_TI, weight).double(), expected_TO, rtol=0.01, atol=1e-43
    )
