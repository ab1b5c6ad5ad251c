"""Read serialized weights in plain torch: their memory, its checksum, and their values.

Shape letters: O output and I input features; P panels of 16 outputs (L lanes), G groups of inputs,
U units of C inputs whose codes lie side by side, for one lane after the other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.ops.packed import (
    FILL_ROWS,
    PackedWeight,
    SerializedWeight,
    StoredRows,
    deserialize_by,
    scales_of,
    unpacked,
)
from inferno.quantization import FORMATS, ScaleType, WeightFormat

ALIGNMENT = 64
_PANEL = FILL_ROWS
_DTYPES = (torch.float32, torch.bfloat16)

_MASK = (1 << 64) - 1
_PRIME1, _PRIME2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME3, _PRIME4, _PRIME5 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def aligned_memory(num_bytes: int) -> Tensor:
    memory = torch.empty(num_bytes + ALIGNMENT, dtype=torch.uint8)
    start = -memory.data_ptr() % ALIGNMENT
    return memory[start : start + num_bytes]


def checksum(part: Tensor) -> int:
    """Compute XXH64 step by step, as its specification has it (xxHash, doc/xxhash_spec.md)."""
    data = part.view(torch.uint8).numpy().tobytes()
    whole = len(data) - len(data) % 32
    total = _PRIME5
    if whole:
        sums = [_PRIME1 + _PRIME2, _PRIME2, 0, -_PRIME1]
        for index, (word,) in enumerate(struct.iter_unpack("<Q", data[:whole])):
            sums[index % 4] = _round(sums[index % 4], word)
        total = sum(_rotate(one, bits) for one, bits in zip(sums, (1, 7, 12, 18), strict=True))
        for one in sums:
            total = (total ^ _round(0, one)) * _PRIME1 + _PRIME4
    total, rest = total + len(data), data[whole:]
    while len(rest) >= 8:
        word, rest = int.from_bytes(rest[:8], "little"), rest[8:]
        total = _rotate(total ^ _round(0, word), 27) * _PRIME1 + _PRIME4
    if len(rest) >= 4:
        word, rest = int.from_bytes(rest[:4], "little"), rest[4:]
        total = _rotate(total ^ word * _PRIME1, 23) * _PRIME2 + _PRIME3
    for byte in rest:
        total = _rotate(total ^ byte * _PRIME5, 11) * _PRIME1
    total &= _MASK
    total = (total ^ total >> 33) * _PRIME2 & _MASK
    total = (total ^ total >> 29) * _PRIME3 & _MASK
    return total ^ total >> 32


def _round(total: int, word: int) -> int:
    return _rotate(total + word * _PRIME2, 31) * _PRIME1 & _MASK


def _rotate(word: int, bits: int) -> int:
    word &= _MASK
    return (word << bits | word >> (64 - bits)) & _MASK


@dataclass(frozen=True, slots=True, eq=False)
class UnpackedWeight:
    """The unpacked values [O, I] of a weight; float32 if the weight was serialized.

    dtype   of activations.
    scales  where floats were quantized, float32 [O, I]: the scale of each value's group.
    """

    values: Tensor
    dtype: torch.dtype
    scales: Tensor | None

    @property
    def shape(self) -> torch.Size:
        """Return the shape [O, I]."""
        return self.values.shape

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weight takes."""
        return self.values.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Set rows from output `first` on."""
        assert self.scales is None, "floats are quantized by kernels alone"
        values_NI = unpacked(rows_NI, self.values.dtype)
        self.values[first : first + len(values_NI)] = values_NI

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""
        return self.values.to(dtype)

    def steps(self) -> Tensor | None:
        """Return the distance between neighbouring values of each weight, if quantized."""
        return None if self.scales is None else self.scales.abs()


def deserialize(serialized: SerializedWeight) -> PackedWeight:
    return deserialize_by(_read, serialized)


def _read(serialized: SerializedWeight) -> UnpackedWeight:
    """Read panels as native/contract/packings.h lays them out."""
    meta, (codes, scales) = serialized.meta, serialized.parts
    shape = torch.Size(meta["shape"])
    num_outputs, num_inputs = shape
    dtype: torch.dtype = getattr(torch, str(meta["dtype"]))
    format = FORMATS[str(meta["format"])]
    try:
        values_PULC = _codes(format, codes, -(-num_outputs // _PANEL), num_inputs)
        if format.is_float:
            return _checked(UnpackedWeight(_plain(values_PULC.float(), shape), dtype, None))
        elements_PULC = torch.tensor(format.elements)[values_PULC.int()]
        scales_PUL1, offsets_PUL1 = _scales(format, scales, *elements_PULC.shape[:2])
    except RuntimeError as problem:  # of torch's views
        raise ValueError(f"{meta} has other sizes: {problem}") from None
    steps_PULC = scales_PUL1.expand_as(elements_PULC)
    return _checked(
        UnpackedWeight(
            _plain(elements_PULC * scales_PUL1 + offsets_PUL1, shape),
            dtype,
            None if format.steps is None else _plain(steps_PULC, shape),
        )
    )


def _checked(weight: UnpackedWeight) -> UnpackedWeight:
    if weight.dtype not in _DTYPES:
        raise ValueError(f"no weight meets activations of {weight.dtype}")
    return weight


def _plain(values_PULC: Tensor, shape: torch.Size) -> Tensor:
    values_OI = values_PULC.transpose(1, 2).flatten(0, 1).flatten(1)
    return values_OI[: shape[0], : shape[1]].contiguous()


def _codes(format: WeightFormat, codes: Tensor, num_panels: int, num_inputs: int) -> Tensor:
    """Return floats, or the number of each code: [P, U, L, C]."""
    unit = format.panel_inputs
    num_units = -(-num_inputs // format.row_unit) * (format.row_unit // unit)
    if format.is_float:
        return codes.view(getattr(torch, format.name)).view(num_panels, num_units, _PANEL, unit)
    if format.code_bits == 8:
        return codes.view(num_panels, num_units, _PANEL, unit)
    groups = codes.view(num_panels, num_units // 8, format.code_bits, _PANEL, unit)
    # The low halves of a unit's bytes, then the high ones, are a unit each.
    halves = torch.stack((groups[:, :, :4] & 15, groups[:, :, :4] >> 4), dim=3).flatten(2, 3)
    num_upper = format.code_bits - 4
    if num_upper:
        shifts = torch.arange(0, 8, num_upper, dtype=torch.uint8)[:, None, None]
        upper = groups[:, :, 4:].unsqueeze(3) >> shifts & (1 << num_upper) - 1
        halves = halves | upper.flatten(2, 3) << 4
    return halves.flatten(1, 2)


def _scales(
    format: WeightFormat, scales: Tensor, num_panels: int, num_units: int
) -> tuple[Tensor, Tensor]:
    """Return the scale and the offset of each unit of a group: [P, U, L, 1]."""
    units_per_group = format.group // format.panel_inputs
    num_groups = num_units // units_per_group
    if format.scale is ScaleType.HALVES:
        blocks = scales.view(num_panels, num_groups // 8, 18, _PANEL)
        unit = _float16(blocks[:, :, :2])
        of_halves = unit * blocks[:, :, 2:].view(torch.int8).float()
        return _of_units(of_halves.flatten(1, 2), units_per_group // 2), torch.zeros(())
    if format.scale is ScaleType.SIX_BIT_OFFSET:
        blocks = scales.view(num_panels, num_groups // 8, 16, _PANEL)
        low, pairs = blocks[:, :, 4:12], blocks[:, :, 12:].repeat_interleave(2, dim=2)
        high = torch.where(torch.arange(8)[:, None] % 2 == 1, pairs >> 4, pairs & 15)
        of_groups = _float16(blocks[:, :, :2]) * (low & 63).float()
        offsets = _float16(blocks[:, :, 2:4]) * (low >> 6 | high << 2).float()
        return (
            _of_units(of_groups.flatten(1, 2), units_per_group),
            _of_units(offsets.flatten(1, 2), units_per_group),
        )
    if format.scale is ScaleType.FLOAT16_OFFSET:
        both = scales.view(torch.float16).float().view(num_panels, num_groups, 2, _PANEL)
        return _of_units(both[:, :, 0], units_per_group), _of_units(both[:, :, 1], units_per_group)
    scales_PGL = scales_of(format, scales).view(num_panels, num_groups, _PANEL)
    return _of_units(scales_PGL, units_per_group), torch.zeros(())


def _float16(vectors_PH2L: Tensor) -> Tensor:
    """Return the numbers [P, H, 1, L] in two vectors of bytes."""
    bits = vectors_PH2L.contiguous().view(*vectors_PH2L.shape[:2], 1, -1)
    return bits.view(torch.float16).float()


def _of_units(scales_PGL: Tensor, count: int) -> Tensor:
    """Return what belongs to each of so many neighbouring units: [P, U, L, 1]."""
    return scales_PGL.repeat_interleave(count, dim=1).unsqueeze(-1)
