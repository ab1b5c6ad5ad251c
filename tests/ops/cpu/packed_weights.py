"""Random packed weights, and the values that native/contract/packings.h says they have."""

from __future__ import annotations

import torch
from torch import Tensor

from inferno import _native
from inferno.ops.cpu.panels import PANEL, PanelWeight
from inferno.quantization import (
    BFLOAT16,
    FLOAT32,
    FORMATS,
    INT4,
    INT8,
    MXFP4,
    InputRounding,
    WeightFormat,
)
from tests.ops.cpu.guarded import aligned

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = torch.tensor([*_E2M1, *(-value for value in _E2M1)], dtype=torch.float64)


GROUP = 32
# Those that kernels compute with.
# Those of GGUF's blocks: test_block_formats.py.
KERNEL_FORMATS = [
    format for format in FORMATS.values() if format.packing is not None and format.block is None
]


def random_weight(
    format: WeightFormat, num_outputs: int, num_inputs: int, seed: int = 0
) -> tuple[PanelWeight, Tensor]:
    """A weight [O, I] and its values in float64."""
    generator = torch.Generator().manual_seed(seed)
    num_panels, num_groups = -(-num_outputs // PANEL), -(-num_inputs // GROUP)
    scales = torch.empty(0, dtype=torch.uint8)
    if not format.is_float:
        bytes_of_group = GROUP if format is INT8 else GROUP // 2
        shape = (num_panels, num_groups, bytes_of_group // 4, PANEL, 4)
        codes = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        scales = _random_scales(format, (num_panels, num_groups, PANEL), generator)
        values = decode(format, codes, scales)
    else:
        unit = 1 if format is FLOAT32 else 2
        num_units = -(-num_inputs // unit)
        codes = torch.randn(num_panels, num_units, PANEL, unit, generator=generator)
        codes.transpose(2, 3).flatten(1, 2)[:, num_inputs:] = 0
        if format is BFLOAT16:
            codes = codes.bfloat16()
        values = codes.double().permute(0, 2, 1, 3).flatten(0, 1).flatten(1)
    dtype = torch.float32 if format is FLOAT32 else torch.bfloat16
    shape_OI = torch.Size((num_outputs, num_inputs))
    codes, scales = aligned(codes), aligned(scales)
    assert format.packing is not None
    native = _native.weight(format.packing, codes.data_ptr(), scales.data_ptr(), *shape_OI)
    weight = PanelWeight(format, shape_OI, dtype, codes, scales, native)
    return weight, values[:num_outputs, :num_inputs]


def _random_scales(
    format: WeightFormat, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    if format is MXFP4:
        return torch.randint(110, 135, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(shape, generator=generator).mul(0.02).bfloat16()


def decode(format: WeightFormat, codes: Tensor, scales_PGL: Tensor) -> Tensor:
    """The values of panels of codes [P, G, S, L, C], all O and I that there is room for."""
    if format is INT8:
        values = codes.double() - 128
    else:
        nibbles = torch.stack([codes & 15, codes >> 4], dim=3).long()  # [P, G, S, 2, L, C]
        decoded = nibbles - 8.0 if format is INT4 else E2M1[nibbles]
        values = decoded.flatten(2, 3).double()
    if format is MXFP4:
        scales = torch.exp2(scales_PGL.double() - 127).masked_fill(scales_PGL == 255, torch.nan)
    else:
        scales = scales_PGL.double()
    scaled = values * scales[:, :, None, :, None]
    return scaled.permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(1)


def quantized(x: Tensor, format: WeightFormat) -> Tensor:
    """What products with groups see of activations: int8 codes, a scale for each 32."""
    num_groups = -(-x.shape[1] // GROUP)
    padded = torch.nn.functional.pad(x.float(), (0, num_groups * GROUP - x.shape[1]))
    groups = padded.view(len(x), num_groups, GROUP)
    peaks = groups.abs().amax(-1, keepdim=True)
    if format.inputs is InputRounding.BY_POWERS:
        scales = torch.exp2((peaks / 127).log2().ceil())
        codes = torch.where(peaks > 0, groups / scales, 0).round()
    else:
        scales = (peaks / 127).double()
        largest = torch.tensor(127.0)  # a number over a tensor would be times its reciprocal
        codes = (groups * torch.where(peaks > 0, largest / peaks, 0)).round()
    values: Tensor = (codes.double() * scales.double()).flatten(1)[:, : x.shape[1]]
    return values
