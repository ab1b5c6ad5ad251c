"""The compiled quantization against every scale there is, and its bits against other schedules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.ops.cpu.panels import PANEL, PanelWeight, empty_panels
from inferno.quantization import BFLOAT16, FLOAT32, INT4, INT8, MXFP4, WeightFormat
from tests.ops.cpu.guarded import copied
from tests.ops.cpu.packed_weights import decode

pytestmark = pytest.mark.usefixtures("level")

GROUP = 32
FLOATS = [torch.float32, torch.bfloat16]
QUANTIZED = [INT8, INT4]
RANGE = {INT8: (-127, 127), INT4: (-8, 7)}
SIZES = [(1, 1), (16, 32), (17, 33), (35, 95), (50, 129)]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).mul(0.02).to(dtype)


def quantize(values_OI: Tensor, format: WeightFormat) -> PanelWeight:
    weight = empty_panels(format, values_OI.shape, values_OI.dtype)
    weight.fill(0, values_OI)
    return weight


def scales_of(weight: PanelWeight) -> Tensor:
    """[P, G, L], L being the outputs of a panel."""
    num_groups = -(-weight.shape[1] // GROUP)
    return weight.scales.view(torch.bfloat16).view(-1, num_groups, PANEL)


def all_values(weight: PanelWeight) -> Tensor:
    """What the bytes mean by native/contract/packings.h, in float64, with what was filled up."""
    scales_PGL = scales_of(weight)
    codes = weight.codes.view(*scales_PGL.shape[:2], -1, PANEL, 4)
    return decode(weight.format, codes, scales_PGL)


def values_of(weight: PanelWeight) -> Tensor:
    num_outputs, num_inputs = weight.shape
    return all_values(weight)[:num_outputs, :num_inputs]


def groups(values_OI: Tensor) -> Tensor:
    return values_OI.double().view(-1, GROUP)


def assert_same_bits(a: PanelWeight, b: PanelWeight) -> None:
    assert torch.equal(a.codes, b.codes)
    assert torch.equal(a.scales, b.scales)


def least_errors(values_NI: Tensor, format: WeightFormat) -> Tensor:
    """For each group of 32, the least squared error that any bfloat16 scale leaves."""
    smallest_N = (values_NI.abs().amax(1) / (max(RANGE[format]) * 2)).bfloat16()
    least_N = torch.full(values_NI.shape[:1], torch.inf, dtype=torch.float64)
    for step in range(256):  # to four times the smallest
        scale_N = (smallest_N.view(torch.int16) + step).view(torch.bfloat16).double()
        for scale_N1 in (scale_N[:, None], -scale_N[:, None]):
            rounded_NI = (values_NI / scale_N1).round().clamp(*RANGE[format]) * scale_N1
            least_N = least_N.minimum((values_NI - rounded_NI).square().sum(1))
    return least_N


@pytest.mark.parametrize(("format", "margin"), [(INT8, 1.02), (INT4, 1.005)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_no_scale_is_much_better(format: WeightFormat, margin: float, dtype: torch.dtype) -> None:
    values_OI = random(64, 256, dtype=dtype)
    errors_N = (groups(values_OI) - groups(values_of(quantize(values_OI, format)))).square().sum(1)
    least_N = least_errors(groups(values_OI), format)
    assert torch.all(errors_N >= least_N * 0.999)
    assert errors_N.sum() <= least_N.sum() * margin


@pytest.mark.parametrize("dtype", FLOATS)
def test_int8_is_off_by_half_a_step_at_most(dtype: torch.dtype) -> None:
    values_OI = random(64, 256, dtype=dtype)
    values_OI[::3, ::37] *= 30
    weight = quantize(values_OI, INT8)
    errors_N = (groups(values_OI) - groups(values_of(weight))).abs().amax(1)
    steps_N = scales_of(weight).transpose(1, 2).flatten().double()
    assert torch.all(errors_N <= steps_N * 0.50001)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_multiples_of_a_scale_stay_what_they_are(format: WeightFormat, sign: int) -> None:
    lowest, highest = RANGE[format]
    generator = torch.Generator().manual_seed(0)
    codes_ONG = torch.randint(lowest, highest + 1, (48, 4, GROUP), generator=generator)
    codes_ONG[:, :, 0] = lowest
    scales_ON1 = random(48, 4, 1).abs().bfloat16().float()
    values_OI = (codes_ONG * scales_ON1 * sign).flatten(1)
    assert torch.equal(values_of(quantize(values_OI, format)), values_OI.double())


def test_int4_that_is_quantized_again_stays_what_it_is() -> None:
    once_OI = values_of(quantize(random(64, 256), INT4))
    assert torch.equal(values_of(quantize(once_OI.float(), INT4)), once_OI)


@pytest.mark.parametrize("power", [-80, 80])
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_large_and_small_weights_are_treated_alike(format: WeightFormat, power: int) -> None:
    values_OI, factor = random(32, 96), 2.0**power
    usual, scaled = quantize(values_OI, format), quantize(values_OI * factor, format)
    assert torch.equal(usual.codes, scaled.codes)
    assert torch.equal(scales_of(usual).double() * factor, scales_of(scaled).double())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_what_is_not_finite_can_be_seen(format: WeightFormat, bad: float) -> None:
    values_OI = random(20, 96)
    expected_OI = values_of(quantize(values_OI, format))
    values_OI[7, 40], expected_OI[7, 32:64] = bad, torch.nan
    result_OI = values_of(quantize(values_OI, format))
    torch.testing.assert_close(result_OI, expected_OI, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("nothing", [0.0, 1e-38])
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_a_group_of_nothing_becomes_zeros(format: WeightFormat, nothing: float) -> None:
    values_OI = random(20, 96)
    expected_OI = values_of(quantize(values_OI, format))
    values_OI[7, 32:64], expected_OI[7, 32:64] = nothing, 0.0
    assert torch.equal(values_of(quantize(values_OI, format)), expected_OI)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_panels_and_groups_are_filled_up_with_zeros(
    format: WeightFormat, size: tuple[int, int]
) -> None:
    num_outputs, num_inputs = size
    values = all_values(quantize(random(*size).add(3), format))
    assert torch.all(values[:num_outputs, :num_inputs] > 2)
    values[:num_outputs, :num_inputs] = 0
    assert torch.equal(values, torch.zeros_like(values))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_every_level_gives_the_same_bits(
    format: WeightFormat, dtype: torch.dtype, size: tuple[int, int]
) -> None:
    values_OI = random(*size, dtype=dtype)
    values_OI[::2] = (values_OI[::2] * 200).round() / 200  # ties, and several scales as good
    values_OI[::5, ::11] *= 100
    values_OI[::7, ::31] = torch.inf
    result = quantize(values_OI, format)
    _native.set_isa("scalar")
    assert_same_bits(result, quantize(values_OI, format))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_parts_of_rows_with_gaps_give_the_same_bits(
    format: WeightFormat, dtype: torch.dtype
) -> None:
    values_OI = random(50, 129, dtype=dtype)
    weight = empty_panels(format, values_OI.shape, dtype)
    with _native.KernelContext(2):
        for start, end in ((16, 48), (48, 50), (0, 16)):
            weight.fill(start, copied(values_OI[start:end], stride=135))
    assert_same_bits(weight, quantize(values_OI, format))


@pytest.mark.parametrize("format", [FLOAT32, BFLOAT16, *QUANTIZED], ids=str)
def test_float16_is_packed_as_the_numbers_that_it_holds(format: WeightFormat) -> None:
    values_OI = random(20, 70, dtype=torch.float16)
    weight, expected = (empty_panels(format, values_OI.shape, torch.float32) for _ in range(2))
    weight.fill(0, values_OI)
    expected.fill(0, values_OI.float())
    assert_same_bits(weight, expected)


def test_floats_are_not_packed_in_what_only_files_hold() -> None:
    with pytest.raises(AssertionError, match="no kernel makes mxfp4 of floats"):
        empty_panels(MXFP4, (16, 32), torch.float32).fill(0, random(16, 32))
