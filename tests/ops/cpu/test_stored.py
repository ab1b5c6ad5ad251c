"""What the kernels store, and its checksum, beside the reference."""

from __future__ import annotations

import pytest
import torch

from inferno.ops import cpu, float_format, pack, reference
from inferno.ops.cpu.panels import PanelWeight
from inferno.quantization import FORMATS, WeightFormat
from tests.ops.cpu.packed_weights import KERNEL_FORMATS, random_weight

SHAPES = [(16, 32), (1, 1), (33, 100), (48, 31)]


@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_stored_weight_means_the_same_to_both(
    format: WeightFormat, shape: tuple[int, int]
) -> None:
    weight, _ = random_weight(format, *shape)
    ours, theirs = cpu.deserialize(weight.serialize()), reference.deserialize(weight.serialize())
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.testing.assert_close(
            *(ours.unpack(dtype), theirs.unpack(dtype)), rtol=0, atol=0, equal_nan=True
        )
    steps = ours.steps(), theirs.steps()
    assert (steps[0] is None) == (steps[1] is None)
    if steps[0] is not None and steps[1] is not None:
        assert torch.equal(steps[0], steps[1])


@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
def test_a_filled_weight_is_stored_as_the_reference_reads_it(quantize: str | None) -> None:
    values = torch.randn(40, 70, generator=torch.Generator().manual_seed(0))
    weight = pack(values, float_format(values.dtype) if quantize is None else FORMATS[quantize])
    assert isinstance(weight, PanelWeight)
    read = reference.deserialize(weight.serialize()).unpack(torch.float32)
    assert torch.equal(read, weight.unpack(torch.float32))
    if quantize is None:
        assert torch.equal(read, values)


@pytest.mark.parametrize("num_bytes", [*range(70), 1000, 4096 + 13])
def test_checksums_are_the_references(num_bytes: int) -> None:
    generator = torch.Generator().manual_seed(num_bytes)
    part = torch.randint(256, (num_bytes,), generator=generator, dtype=torch.uint8)
    assert cpu.checksum(part) == reference.checksum(part)
