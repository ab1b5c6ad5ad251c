"""Quantized weights times activations in bfloat16, in matrix registers, where an engine asks.

Rows of a unit matrix show the weights as they are multiplied; products are sums of these.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from inferno import _native, ops
from inferno.ops import cpu
from inferno.ops.cpu.native import TYPES, matrix
from inferno.ops.cpu.panels import PanelWeight, empty_panels
from inferno.quantization import (
    BFLOAT16,
    BLOCK_FORMATS,
    FLOAT32,
    INT4,
    INT8,
    MXFP4,
    WeightFormat,
)
from tests.ops.cpu.guarded import copied, guarded
from tests.ops.cpu.packed_weights import quantized, random_weight
from tests.ops.cpu.test_block_formats import OFFSETS, assert_made_of_products, make
from tests.ops.cpu.test_linear import assert_near, random

LEVEL = "amx"
CPU = torch.device("cpu")
FLOATS = [torch.float32, torch.bfloat16]
QUANTIZED = [INT8, INT4, MXFP4]
CODED = [*QUANTIZED, *BLOCK_FORMATS.values()]
# Outputs and inputs: tails of panels, scale groups and parts of 256 inputs; 512 rows of the longest
# are multiplied in two turns.
SIZES = [(1, 1), (16, 32), (17, 33), (40, 95), (100, 544), (50, 1541)]


def _context(num_threads: int) -> _native.KernelContext:
    return _native.KernelContext(num_threads, TYPES[torch.bfloat16])


@pytest.fixture(autouse=True)
def chosen() -> Iterator[None]:
    """Kernels of matrix registers run, in a context that asks for bfloat16."""
    if LEVEL not in _native.isas():
        pytest.skip("this processor has no matrix registers")
    before = _native.isa()
    _native.set_isa(LEVEL)
    with _context(1):
        yield
    _native.set_isa(before)


def weights_of(format: WeightFormat) -> list[tuple[PanelWeight, Tensor]]:
    """Weights of many sizes, and their values in float64."""
    if format in QUANTIZED:
        return [random_weight(format, *size) for size in SIZES]
    found = [make(format, *size) for size in [(1, 1), (17, 2), (100, 5)]]
    return [(weight, values_OI.double()) for weight, values_OI in found]


def block_inputs(format: WeightFormat) -> int:
    assert format.block is not None
    return format.block.num_inputs


def as_multiplied(weight: PanelWeight) -> Tensor:
    """The weights [O, I] that products are made of."""
    return cpu.linear(torch.eye(weight.shape[1]), weight).T


def cut_off(values: Tensor) -> Tensor:
    """The upper 16 bits of float32 numbers."""
    bits: Tensor = values.float().view(torch.int32) & -0x10000
    return bits.view(torch.float32)


def parts_of(format: WeightFormat, values_OI: Tensor) -> Tensor:
    """Magnitudes of what is added up to a value: a number times its scale, and an offset."""
    if format.scale not in OFFSETS:
        return values_OI.abs()
    groups = values_OI.abs().view(len(values_OI), -1, 32)
    return 2 * groups.amax(-1, keepdim=True).expand_as(groups).flatten(1)


@pytest.mark.parametrize("format", CODED, ids=str)
def test_weights_are_made_larger_and_cut_off(format: WeightFormat) -> None:
    factor = 1 + 0.7213475 / 256
    for weight, values_OI in weights_of(format):
        found_OI = as_multiplied(weight)
        error_OI = parts_of(format, values_OI) * 2**-22  # what rounding in float32 may do
        bounds = [cut_off(values_OI * factor + sign * error_OI) for sign in (-1, 1)]
        assert torch.all(found_OI >= bounds[0])
        assert torch.all(found_OI <= bounds[1])
        assert torch.equal(found_OI, found_OI.bfloat16().float())


@pytest.mark.parametrize("format", CODED, ids=str)
def test_cutting_off_errs_by_nothing_on_average(format: WeightFormat) -> None:
    if format in QUANTIZED:
        weight, values_OI = random_weight(format, 400, 1024)
    else:
        weight, values_OI = make(format, 400, 1024 // block_inputs(format))
    found_OI = as_multiplied(weight).double()
    large = values_OI.abs() > 1e-30
    errors = (found_OI[large] / values_OI[large] - 1).double()
    assert errors.abs().max() < 2**-7
    assert errors.mean().abs() < 2e-4  # without the factor 2.8e-3


def test_what_bfloat16_holds_is_multiplied_as_it_is() -> None:
    weight, values_OI = random_weight(MXFP4, 200, 544)
    assert torch.equal(as_multiplied(weight).double(), values_OI)
    weight, values_OI = random_weight(INT8, 200, 544)
    weight.scales.view(torch.bfloat16)[:] = 2.0**-5
    assert torch.equal(as_multiplied(weight), weight.unpack(torch.float32))


@pytest.mark.parametrize("num_rows", [0, 1, 2, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", CODED, ids=str)
def test_it_is_the_sum_of_products(format: WeightFormat, dtype: torch.dtype, num_rows: int) -> None:
    for weight, values_OI in weights_of(format):
        num_outputs, num_inputs = values_OI.shape
        x_TI = copied(random(num_rows, num_inputs, dtype=dtype))
        seen_TI, seen_OI = x_TI.bfloat16().double(), as_multiplied(weight).double()
        result_TO = cpu.linear(x_TI, weight)
        assert (result_TO.shape, result_TO.dtype) == ((num_rows, num_outputs), dtype)
        terms_TO = seen_TI.abs() @ seen_OI.abs().T
        assert_near(result_TO, seen_TI @ seen_OI.T, terms_TO)


@pytest.mark.parametrize("format", [FLOAT32, BFLOAT16], ids=str)
def test_beside_floats_it_changes_nothing(format: WeightFormat) -> None:
    weight, _ = random_weight(format, 40, 95)
    x_TI = random(9, 95)
    asked_TO = cpu.linear(x_TI, weight)
    with _native.KernelContext(1):
        assert torch.equal(cpu.linear(x_TI, weight), asked_TO)


@pytest.mark.parametrize("format", QUANTIZED, ids=str)
def test_another_context_multiplies_int8(format: WeightFormat) -> None:
    weight, values_OI = random_weight(format, 40, 95)
    x_TI = random(9, 95)
    with _native.KernelContext(1):
        result_TO = cpu.linear(x_TI, weight)
    seen_TI = quantized(x_TI, format)
    assert_near(result_TO, seen_TI @ values_OI.T, seen_TI.abs() @ values_OI.abs().T)
    assert not torch.equal(cpu.linear(x_TI, weight), result_TO)


@pytest.mark.parametrize("format", CODED, ids=str)
def test_a_row_has_the_same_bits_in_any_batch_and_on_any_threads(format: WeightFormat) -> None:
    weight, values_OI = weights_of(format)[-1]
    x_TI = random(1000, values_OI.shape[1])
    alone_TO = torch.cat([cpu.linear(row_I, weight) for row_I in torch.split(x_TI, 1)])
    for num_threads in (1, 2):
        with _context(num_threads):
            for num_rows in (*range(1, 41), 600, 1000):
                assert torch.equal(cpu.linear(x_TI[:num_rows], weight), alone_TO[:num_rows])
                assert torch.equal(cpu.linear(x_TI[-num_rows:], weight), alone_TO[-num_rows:])


@pytest.mark.parametrize("num_rows", [16, 33, 600])
@pytest.mark.parametrize("format", CODED, ids=str)
def test_a_gated_product_has_the_bits_of_its_parts(format: WeightFormat, num_rows: int) -> None:
    if format in QUANTIZED:
        weight, values_OI = random_weight(format, 160, 295)
    else:
        weight, values_OI = make(format, 160, 2)
    x_TI = copied(random(num_rows, values_OI.shape[1]) * 3)
    bias_O = copied(random(160))
    expected_TF = cpu.silu_mul(cpu.linear(x_TI, weight, bias_O))
    assert torch.equal(cpu.gated_linear(x_TI, weight, bias_O), expected_TF)


@pytest.mark.parametrize("num_tokens", [1, 9, 70])
@pytest.mark.parametrize("format", CODED, ids=str)
def test_experts_are_made_of_their_products(format: WeightFormat, num_tokens: int) -> None:
    num_experts, size, inner = 4, 256, 512

    def experts(num_outputs: int, num_inputs: int) -> list[PanelWeight]:
        if format in QUANTIZED:
            found = [random_weight(format, num_outputs, num_inputs, x) for x in range(num_experts)]
        else:
            num_blocks = num_inputs // block_inputs(format)
            found = [make(format, num_outputs, num_blocks) for _ in range(num_experts)]
        return [weight for weight, _ in found]

    assert_made_of_products(experts(2 * inner, size), experts(size, inner), num_tokens)


@pytest.mark.parametrize("num_rows", [1, 20, 515])
def test_ranges_of_rows_have_the_bits_of_their_own_products(num_rows: int) -> None:
    formats = (INT8, BFLOAT16, INT4, INT8, FLOAT32, MXFP4, INT4)
    weights = [random_weight(format, 17 + 7 * nth, 295)[0] for nth, format in enumerate(formats)]
    x_TI = copied(random(num_rows, 295))
    expected_TO = torch.cat([cpu.linear(x_TI, weight) for weight in weights], dim=1)
    ranges = _native.weight_of_rows([weight.native for weight in weights])
    out_TO = guarded(expected_TO.shape, torch.float32)
    _native.linear(matrix(x_TI), ranges, None, matrix(out_TO))
    assert torch.equal(out_TO, expected_TO)


@pytest.mark.parametrize("format", CODED, ids=str)
def test_without_inputs_sums_are_zeros(format: WeightFormat) -> None:
    weight, _ = random_weight(INT8, 32, 700)
    empty = empty_panels(format, torch.Size((32, 0)), torch.float32)
    for num_rows in (1, 40):
        cpu.linear(random(num_rows, 700), weight)  # leaves sums behind
        assert not cpu.linear(random(num_rows, 0), empty).any()
        assert not cpu.gated_linear(random(num_rows, 0), empty).any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", CODED, ids=str)
def test_nothing_else_is_read_or_written(format: WeightFormat, dtype: torch.dtype) -> None:
    for num_rows in (1, 7, 40):
        for weight, values_OI in weights_of(format):
            num_outputs, num_inputs = values_OI.shape
            x_TI = copied(random(num_rows, num_inputs, dtype=dtype), stride=num_inputs + 3)
            out_TO = guarded((num_rows, num_outputs), dtype, stride=num_outputs + 5)
            cpu.linear(x_TI, weight, out=out_TO)
            assert torch.equal(out_TO, cpu.linear(x_TI.contiguous(), weight))
            gaps = out_TO.as_strided(
                (num_rows - 1, 5), out_TO.stride(), out_TO.storage_offset() + num_outputs
            )
            assert torch.all(gaps.contiguous().view(torch.uint8) == 255)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("format", CODED, ids=str)
def test_activations_that_are_not_finite_show_in_their_row_alone(
    format: WeightFormat, bad: float
) -> None:
    weight, values_OI = weights_of(format)[-1]
    num_inputs = values_OI.shape[1]
    x_TI = random(40, num_inputs)
    expected_TO = cpu.linear(x_TI, weight)
    for column in (0, 31, 50, num_inputs - 1):
        spoilt_TI = x_TI.clone()
        spoilt_TI[3, column] = bad
        result_TO = cpu.linear(spoilt_TI, weight)
        assert not result_TO[3].isfinite().any()
        others = [row for row in range(40) if row != 3]
        assert torch.equal(result_TO[others], expected_TO[others])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("format", [INT8, INT4], ids=str)
def test_a_scale_that_is_not_finite_shows_in_its_output_alone(
    format: WeightFormat, bad: float
) -> None:
    weight, _ = random_weight(format, 40, 544)
    x_TI = random(20, 544)
    expected_TO = cpu.linear(x_TI, weight)
    weight.scales.view(torch.bfloat16).view(3, 17, 16)[1, 9, 5] = bad  # of output 21
    result_TO = cpu.linear(x_TI, weight)
    assert not result_TO[:, 21].isfinite().any()
    others = [output for output in range(40) if output != 21]
    assert torch.equal(result_TO[:, others], expected_TO[:, others])


def test_scale_255_of_mxfp4_is_nan_in_its_output_alone() -> None:
    weight, _ = random_weight(MXFP4, 20, 64)
    x_TI = random(7, 64)
    before_TO = cpu.linear(x_TI, weight)
    weight.scales[16 + 5] = 255  # of output 5, inputs 32 to 63
    result_TO = cpu.linear(x_TI, weight)
    assert result_TO[:, 5].isnan().all()
    others = [output for output in range(20) if output != 5]
    assert torch.equal(result_TO[:, others], before_TO[:, others])


def test_a_recorded_call_keeps_the_choice() -> None:
    weight, _ = random_weight(INT4, 40, 95)
    x_TI, out_TO = random(9, 95), torch.zeros(9, 40)
    context = _context(1)
    graph = _native.CapturedGraph(context)
    with context:
        graph.start()
        _native.linear(matrix(x_TI), weight.native, None, matrix(out_TO))
        graph.stop()
    expected_TO = out_TO.clone()
    out_TO.zero_()
    with _native.KernelContext(1):
        graph.run()
        assert torch.equal(out_TO, expected_TO)
        assert not torch.equal(cpu.linear(x_TI, weight), expected_TO)


def test_a_context_is_refused_what_its_kernels_lack() -> None:
    assert ops.why_no_bfloat16_activations(CPU, torch.float32) is None
    reason = ops.why_no_bfloat16_activations(CPU, torch.float16)
    assert reason == "products are computed in plain PyTorch here"
    _native.set_isa("scalar")
    assert ops.why_no_bfloat16_activations(CPU, torch.float32) == "the kernels that run are scalar"
    with pytest.raises(ValueError, match="has no such activations"):
        _context(1)
    _native.set_isa(LEVEL)
    with pytest.raises(ValueError, match="has no such activations"):
        _native.KernelContext(1, TYPES[torch.float16])
