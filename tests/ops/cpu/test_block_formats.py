"""GGUF's blocks in the kernels: values by the `gguf` package, products by sums in float64."""

from __future__ import annotations

import gguf
import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.gguf.tensor_types import BY_NAME
from inferno.ops import PlainSwiGLU, StoredRows, cpu
from inferno.ops.cpu.native import matrix
from inferno.ops.cpu.panels import PanelWeight, empty_panels, stack
from inferno.ops.packed import SerializedWeight
from inferno.ops.reference import stored as reference
from inferno.quantization import BLOCK_FORMATS, ScaleType, WeightFormat
from tests.ops.cpu.guarded import copied, guarded
from tests.ops.cpu.packed_weights import quantized
from tests.ops.cpu.test_linear import assert_near, random

FORMATS = list(BLOCK_FORMATS.values())
FLOATS = [torch.float32, torch.bfloat16]
OFFSETS = (ScaleType.FLOAT16_OFFSET, ScaleType.SIX_BIT_OFFSET)
Q6_K_SCALE = 208  # where in its block


def random_blocks(format: WeightFormat, num_outputs: int, num_blocks: int) -> Tensor:
    """Blocks [O, B, bytes] of random bits, with scales that are numbers."""
    assert format.block is not None
    generator = torch.Generator().manual_seed(num_outputs + num_blocks)
    shape = (num_outputs, num_blocks)
    blocks = torch.randint(256, (*shape, format.block.num_bytes), generator=generator)
    blocks = blocks.to(torch.uint8)
    scales = torch.randn(*shape, 2, generator=generator).mul(0.02).half().view(torch.uint8)
    if format.scale is ScaleType.HALVES:
        blocks[..., Q6_K_SCALE:] = scales[..., :2]
    else:
        end = 4 if format.scale in OFFSETS else 2
        blocks[..., :end] = scales[..., :end]
    return blocks


def values_of(format: WeightFormat, blocks: Tensor) -> Tensor:
    assert format.block is not None
    rows = blocks.flatten(1).numpy()
    quantization = gguf.GGMLQuantizationType[format.block.type]
    return torch.from_numpy(gguf.dequantize(rows, quantization).copy())


def make(
    format: WeightFormat, num_outputs: int, num_blocks: int, dtype: torch.dtype = torch.float32
) -> tuple[PanelWeight, Tensor]:
    """A weight that was filled by parts, and its values."""
    return packed(format, random_blocks(format, num_outputs, num_blocks), dtype)


def packed(
    format: WeightFormat, blocks: Tensor, dtype: torch.dtype = torch.float32
) -> tuple[PanelWeight, Tensor]:
    values_OI = values_of(format, blocks)
    weight = empty_panels(format, values_OI.shape, dtype)
    for first in range(0, len(blocks), 32):
        weight.fill(first, StoredRows(format, (blocks[first : first + 32],)))
    return weight, values_OI


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_blocks_have_the_sizes_of_the_table_of_types(format: WeightFormat) -> None:
    assert format.block is not None
    in_files = BY_NAME[format.block.type]
    assert format.block.num_inputs == in_files.block_values
    assert format.block.num_bytes == in_files.block_bytes
    assert format.bits == 8 * in_files.block_bytes / in_files.block_values


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_outputs", [1, 16, 50])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_values_are_those_of_the_library(format: WeightFormat, num_outputs: int) -> None:
    for num_blocks in (1, 3):
        weight, values_OI = make(format, num_outputs, num_blocks)
        assert torch.equal(weight.unpack(torch.float32), values_OI)
        ids = torch.tensor([num_outputs - 1, 0, num_outputs // 2])
        for dtype in FLOATS:
            out = guarded((3, values_OI.shape[1]), dtype)
            _native.embedding(ids.data_ptr(), weight.native, matrix(out))
            assert torch.equal(out, values_OI[ids].to(dtype))


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_the_reference_reads_panels_and_blocks(format: WeightFormat) -> None:
    weight, values_OI = make(format, 40, 3)
    serialized = weight.serialize()
    parts = tuple(part.clone() for part in serialized.parts)
    read = reference.deserialize(SerializedWeight(serialized.meta, parts))
    assert torch.equal(read.unpack(torch.float32), values_OI)
    rows = StoredRows(format, (random_blocks(format, 40, 3),))
    assert rows.shape == values_OI.shape
    assert torch.equal(rows.unpack(torch.float32), values_OI)
    assert rows.num_bytes == values_OI.numel() * format.bits / 8


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 7, 12, 30, 70])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_it_is_the_sum_of_products(format: WeightFormat, dtype: torch.dtype, num_rows: int) -> None:
    for num_outputs, num_blocks in [(1, 1), (17, 2), (100, 5)]:
        weight, values_OI = make(format, num_outputs, num_blocks, dtype)
        x_TI = copied(random(num_rows, values_OI.shape[1], dtype=dtype))
        seen_TI = quantized(x_TI, format)
        terms_TO = seen_TI.abs() @ _largest_parts(weight, values_OI).T
        assert_near(cpu.linear(x_TI, weight), seen_TI @ values_OI.double().T, terms_TO)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_the_largest_products_are_summed_exactly(format: WeightFormat, byte: int) -> None:
    """Some processors sum products in 16 bits, into which those of these codes just fit."""
    blocks = random_blocks(format, 20, 2)
    scales = slice(None, Q6_K_SCALE) if format.scale is ScaleType.HALVES else slice(4, None)
    blocks[..., scales] = byte
    weight, values_OI = packed(format, blocks)
    signs = torch.ones(70, values_OI.shape[1])
    signs[1::2] = -1
    signs[2::4, ::2] = -1
    for num_rows in (1, 9, 70):
        x_TI = copied(3 * signs[:num_rows])
        seen_TI = quantized(x_TI, format)
        terms_TO = seen_TI.abs() @ _largest_parts(weight, values_OI).T
        assert_near(cpu.linear(x_TI, weight), seen_TI @ values_OI.double().T, terms_TO)


def _largest_parts(weight: PanelWeight, values_OI: Tensor) -> Tensor:
    """What is added up: a value with an offset is two numbers, which may nearly cancel."""
    assert weight.format.scale is not None
    if weight.format.scale not in OFFSETS:
        return values_OI.double().abs()
    groups = values_OI.double().abs().view(len(values_OI), -1, 32)
    return 2 * groups.amax(-1, keepdim=True).expand_as(groups).flatten(1)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_row_has_the_same_bits_in_any_batch_and_on_any_threads(
    format: WeightFormat, request: pytest.FixtureRequest
) -> None:
    weight, values_OI = make(format, 75, 3)
    x_TI = random(40, values_OI.shape[1])
    alone_TO = torch.cat([cpu.linear(row_I, weight) for row_I in torch.split(x_TI, 1)])
    request.getfixturevalue("two_threads")
    for num_rows in range(1, 41):
        assert torch.equal(cpu.linear(x_TI[:num_rows], weight), alone_TO[:num_rows])
        assert torch.equal(cpu.linear(x_TI[-num_rows:], weight), alone_TO[-num_rows:])


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_rows", [1, 7, 33])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_gated_product_has_the_bits_of_its_parts(format: WeightFormat, num_rows: int) -> None:
    weight, values_OI = make(format, 160, 2)
    x_TI = copied(random(num_rows, values_OI.shape[1]) * 3)
    assert torch.equal(cpu.gated_linear(x_TI, weight), cpu.silu_mul(cpu.linear(x_TI, weight)))


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_experts_are_made_of_their_products(format: WeightFormat) -> None:
    num_experts, size, inner = 4, 256, 512
    gate_up = [make(format, 2 * inner, 256 // _block_inputs(format))[0] for _ in range(num_experts)]
    down = [make(format, size, inner // _block_inputs(format))[0] for _ in range(num_experts)]
    assert_made_of_products(gate_up, down, num_tokens=9)


def assert_made_of_products(
    gate_up: list[PanelWeight], down: list[PanelWeight], num_tokens: int
) -> None:
    """Hold a mixture's outputs against its experts' products, two for each token."""
    size = gate_up[0].shape[1]
    x_TE = random(num_tokens, size)
    experts_TA = torch.arange(2 * num_tokens).view(-1, 2) % len(gate_up)
    weights_TA = torch.rand(num_tokens, 2, generator=torch.Generator().manual_seed(3))
    result_TE = cpu.experts(
        *(x_TE, experts_TA, weights_TA, stack(gate_up), stack(down)), activation=PlainSwiGLU()
    )
    for x_E, chosen, weights, result_E in zip(
        x_TE, experts_TA.tolist(), weights_TA, result_TE, strict=True
    ):
        expected_E = torch.zeros(size)
        for expert, weight in zip(chosen, weights, strict=True):
            gated_F = cpu.gated_linear(x_E[None], gate_up[expert])
            expected_E += cpu.linear(gated_F, down[expert])[0] * weight
        assert torch.equal(result_E, expected_E)


def _block_inputs(format: WeightFormat) -> int:
    assert format.block is not None
    return format.block.num_inputs


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_what_is_not_finite_stays_in_its_row(format: WeightFormat) -> None:
    weight, values_OI = make(format, 20, 2)
    x_TI = random(3, values_OI.shape[1])
    expected_TO = cpu.linear(x_TI, weight)
    x_TI[1, 40] = torch.inf
    result_TO = cpu.linear(x_TI, weight)
    assert not result_TO[1].isfinite().any()
    assert torch.equal(result_TO[::2], expected_TO[::2])
