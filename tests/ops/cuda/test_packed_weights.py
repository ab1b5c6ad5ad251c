"""Packed weights against the CPU's and the specification: the same codes, the same values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno import ops
from inferno.ops import RowRanges, StoredRows
from inferno.ops.cuda import packed_weights
from inferno.ops.cuda.dequantize import CHUNK, elements, format_constants, scale
from inferno.ops.cuda.packed_weights import SLOTS, CodedExperts, CodedWeight, chunk_inputs
from inferno.ops.packed import pack_mxfp4
from inferno.quantization import BFLOAT16, FLOAT16, FP8, INT4, INT8, MXFP4, RowRange, WeightFormat
from tests import fp8

pytestmark = pytest.mark.gpu
CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(
    not ops.has_kernels(CPU, INT8), reason="no compiled kernels run here"
)


def empty(format: WeightFormat, shape: tuple[int, ...], device: torch.device) -> CodedWeight:
    with device:
        ranges = [RowRange(shape[-2], format)]
        weight = packed_weights.allocate(torch.Size(shape), torch.float16, ranges)
    assert isinstance(weight, CodedWeight)
    return weight


def hostile_values(num_inputs: int) -> Tensor:
    torch.manual_seed(num_inputs)
    values_OI = torch.randn(16, num_inputs) * torch.rand(16, 1)
    values_OI[0] = 0.0
    values_OI[1, 5], values_OI[2, 3], values_OI[3, 7] = torch.nan, torch.inf, -torch.inf
    values_OI[4] *= 1e-32
    values_OI[5] *= 1e30
    values_OI[6] = torch.randint(-8, 8, (num_inputs,)) * 0.25
    values_OI[7] = 1.0
    return values_OI


@needs_kernels
@pytest.mark.parametrize("format", [INT8, INT4], ids=str)
@pytest.mark.parametrize("num_inputs", [32, 72, 200, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_floats_are_quantized_as_on_the_cpu_bit_for_bit(
    format: WeightFormat, num_inputs: int, dtype: torch.dtype, device: torch.device
) -> None:
    values_OI = hostile_values(num_inputs).to(dtype)
    found = empty(format, (16, num_inputs), device)
    found.fill(0, values_OI)
    with CPU:
        expected = ops.allocate(values_OI.shape, dtype, CPU, [RowRange(16, format)])
    assert expected is not None
    expected_weight = ops.matrices(expected)[0]
    expected_weight.fill(0, values_OI)
    torch.testing.assert_close(
        found.unpack(torch.float32).cpu(),
        expected_weight.unpack(torch.float32),
        rtol=0,
        atol=0,
        equal_nan=True,
    )
    steps, expected_steps = found.steps(), expected_weight.steps()
    assert steps is not None
    assert expected_steps is not None
    torch.testing.assert_close(steps.cpu(), expected_steps, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("num_inputs", [32, 96, 128, 352])
def test_mxfp4_of_a_checkpoint_keeps_its_values(num_inputs: int, device: torch.device) -> None:
    blocks = torch.randint(0, 256, (32, num_inputs // 32, 16), dtype=torch.uint8)
    scales = torch.randint(0, 256, (32, num_inputs // 32), dtype=torch.uint8)
    stored = StoredRows(MXFP4, (blocks, scales))
    weight = empty(MXFP4, (32, num_inputs), device)
    for first in (16, 0):
        weight.fill(first, stored[first : first + 16])
    assert weight.steps() is None
    torch.testing.assert_close(
        weight.unpack(torch.float32).cpu(),
        stored.unpack(torch.float32),
        rtol=0,
        atol=0,
        equal_nan=True,
    )


@pytest.mark.parametrize("num_inputs", [64, 96, 128, 200, 320])
def test_fp8_of_a_checkpoint_keeps_its_values(num_inputs: int, device: torch.device) -> None:
    codes = fp8.random_codes(32, num_inputs, seed=num_inputs).view(torch.uint8)
    scales = torch.randn(32, -(-num_inputs // 128), 1)
    stored = StoredRows(FP8, (codes, scales.view(torch.uint8)))
    weight = empty(FP8, (32, num_inputs), device)
    for first in (16, 0):
        weight.fill(first, stored[first : first + 16])
    values_OI = torch.from_numpy(fp8.elements(codes)).float()
    expected_OI = values_OI * scales.repeat_interleave(128, 1)[:, :num_inputs, 0]
    assert torch.equal(weight.unpack(torch.float32).cpu(), expected_OI)
    assert torch.equal(stored.unpack(torch.float32), expected_OI)


def test_a_nan_of_fp8_makes_its_group_nan(device: torch.device) -> None:
    codes = fp8.random_codes(16, 256, seed=0).view(torch.uint8).clone()
    codes[3, 200], codes[5, 7] = 0x7F, 0xFF
    scales = torch.ones(16, 2, 1)
    weight = empty(FP8, (16, 256), device)
    weight.fill(0, StoredRows(FP8, (codes, scales.view(torch.uint8))))
    is_nan = weight.unpack(torch.float32).cpu().isnan().view(16, 2, 128)
    assert {*map(tuple, is_nan.all(2).nonzero().tolist())} == {(3, 1), (5, 0)}
    assert {*map(tuple, is_nan.any(2).nonzero().tolist())} == {(3, 1), (5, 0)}


@pytest.mark.parametrize("num_inputs", [72, 128, 256])
def test_floats_become_the_nearest_values_of_fp8(num_inputs: int, device: torch.device) -> None:
    values_OI = hostile_values(num_inputs)
    weight = empty(FP8, (16, num_inputs), device)
    weight.fill(0, values_OI.to(device))
    found_OI, steps_OI = weight.unpack(torch.float32).cpu(), weight.steps()
    assert steps_OI is not None
    elements = fp8.elements(torch.arange(256, dtype=torch.uint8))
    positive = torch.from_numpy(elements[np.isfinite(elements)])
    for row in range(16):
        for first in range(0, num_inputs, 128):
            group = values_OI[row, first : first + 128].double()
            found = found_OI[row, first : first + 128].double()
            if not group.isfinite().all():
                assert found.isnan().all()
                continue
            if group.abs().max() < 1e-30:
                assert not found.any()
                continue
            scale = group.abs().max() / 448
            distances = (group[:, None] / scale - positive).abs().amin(1)
            torch.testing.assert_close(
                (group - found).abs() / scale, distances, rtol=1e-4, atol=1e-4
            )
            steps = steps_OI[row, first : first + 128].cpu().double()
            assert ((group - found).abs() <= 0.5001 * steps).all()


def test_rows_may_be_filled_a_few_at_a_time(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    values_OI = torch.randn(40, 64)
    whole, pieces = (empty(INT8, (40, 64), device) for _ in range(2))
    whole.fill(0, values_OI)
    monkeypatch.setattr(packed_weights, "_QUANTIZED_VALUES", 1024)
    pieces.fill(32, values_OI[32:])
    pieces.fill(0, values_OI[:32])
    assert torch.equal(whole.codes, pieces.codes)
    assert torch.equal(whole.scales, pieces.scales)


def test_stored_rows_of_another_format_are_packed_anew(device: torch.device) -> None:
    stored = pack_mxfp4(torch.randn(16, 64))
    weight, expected = (empty(INT8, (16, 64), device) for _ in range(2))
    weight.fill(0, stored)
    expected.fill(0, stored.unpack(torch.float32))
    assert torch.equal(weight.codes, expected.codes)


def test_experts_share_their_memory_and_are_filled_one_by_one(device: torch.device) -> None:
    values_XOI = torch.randn(3, 16, 64)
    with device:
        experts = packed_weights.allocate(values_XOI.shape, torch.float16, [RowRange(16, INT8)])
    assert isinstance(experts, CodedExperts)
    for expert, values_OI in zip(ops.matrices(experts), values_XOI, strict=True):
        expert.fill(0, values_OI)
    assert experts.num_bytes == sum(one.num_bytes for one in ops.matrices(experts))
    for index, values_OI in enumerate(values_XOI):
        error = (experts[index].unpack(torch.float32).cpu() - values_OI).abs().max()
        assert error < values_OI.abs().max() / 127


def test_floats_stay_plain_and_ranges_stay_apart() -> None:
    shape = torch.Size((48, 64))
    assert packed_weights.allocate(shape, torch.float16, [RowRange(48, FLOAT16)]) is None
    ranges = [RowRange(16, INT8), RowRange(16, BFLOAT16), RowRange(16, INT4)]
    weight = packed_weights.allocate(shape, torch.bfloat16, ranges)
    assert isinstance(weight, RowRanges)
    values_OI = torch.randn(shape)
    weight.fill(0, values_OI)
    # A step is 1/7 of a group's peak at least, and a peak may be cut off by 2.5 steps.
    assert (weight.unpack(torch.float32) - values_OI).abs().max() < 1.5
    assert torch.equal(weight.unpack(torch.bfloat16)[16:32], values_OI[16:32].bfloat16())


@triton.jit
def unpack_kernel(  # type: ignore[no-untyped-def]
    codes, scales, out, SLOTS: tl.constexpr, GROUPS_PER_WORD: tl.constexpr, FORMAT: tl.constexpr
):
    """Write the values of one chunk a program."""
    chunk = tl.program_id(0)
    words = tl.load(codes + chunk * CHUNK + tl.arange(0, CHUNK))
    for slot in tl.static_range(SLOTS):
        word = tl.load(scales + (chunk * SLOTS + slot) // (2 * GROUPS_PER_WORD))
        values = elements(words, slot, FORMAT) * scale(word, slot // 2, FORMAT)
        tl.store(out + (chunk * SLOTS + slot) * CHUNK + tl.arange(0, CHUNK), values)


@pytest.mark.parametrize("format", SLOTS, ids=str)
def test_kernels_unpack_every_code_and_scale(format: WeightFormat, device: torch.device) -> None:
    num_chunks = 8
    shape = (1, num_chunks * chunk_inputs(format))
    weight = empty(format, shape, device)
    limits = torch.iinfo(torch.int32)
    weight.codes.random_(limits.min, limits.max)
    weight.scales.random_(limits.min, limits.max)
    if format is FP8:  # whose scales say what is NaN
        elements_of = weight.codes.view(torch.uint8)
        elements_of[(elements_of & 127) == 127] = 0
    out = torch.empty(shape[1], device=device)
    unpack_kernel[(num_chunks,)](weight.codes, weight.scales, out, **format_constants(format))
    expected = weight.unpack(torch.float32)[0]
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
