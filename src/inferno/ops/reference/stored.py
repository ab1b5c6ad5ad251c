"""Stored weights in plain torch: the memory that they are read into, its checksum, their values.

Shape letters: O output and I input features; P panels of 16 outputs (L lanes), G groups of 32
inputs, U units of C inputs whose codes lie side by side, for one lane after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.ops.packed import ELEMENTS, FILL_ROWS, MX_BLOCK, Stored

_ALIGNMENT = 64
_PANEL = FILL_ROWS
_GROUP = MX_BLOCK
_DTYPES = (torch.float32, torch.bfloat16)

_MASK = (1 << 64) - 1
_PRIME1, _PRIME2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME3, _PRIME4, _PRIME5 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def aligned_memory(num_bytes: int) -> Tensor:
    memory = torch.empty(num_bytes + _ALIGNMENT, dtype=torch.uint8)
    start = -memory.data_ptr() % _ALIGNMENT
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
    """The float32 values [O, I] that a stored weight means.

    dtype   what is computed with.
    scales  of int8 and int4, float32 [O, I]: the scale of each value's group.
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
        """Return the number of bytes that it takes."""
        return self.values.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""
        return self.values.to(dtype)

    def steps(self) -> Tensor | None:
        """Return how far apart the values lie that each could take, where it was quantized."""
        return None if self.scales is None else self.scales.abs()


def restore(stored: Stored) -> UnpackedWeight:
    """Read panels as native/types.h lays them out."""
    shape = torch.Size(stored.meta["shape"])
    num_outputs, num_inputs = shape
    dtype: torch.dtype = getattr(torch, str(stored.meta["dtype"]))
    read = _READERS[str(stored.meta["packing"])]
    codes, scales = stored.parts
    try:
        values_PULC, scales_PULC = read(codes, scales, -(-num_outputs // _PANEL), num_inputs)
    except RuntimeError as problem:  # of torch's views
        raise ValueError(f"{stored.meta} has other sizes: {problem}") from None
    if dtype not in _DTYPES:
        raise ValueError(f"no weight meets activations of {dtype}")
    return UnpackedWeight(
        _plain(values_PULC, shape),
        dtype,
        None if scales_PULC is None else _plain(scales_PULC.expand_as(values_PULC), shape),
    )


def _plain(values_PULC: Tensor, shape: torch.Size) -> Tensor:
    values_OI = values_PULC.transpose(1, 2).flatten(0, 1).flatten(1)
    return values_OI[: shape[0], : shape[1]].contiguous()


# Each takes codes, scales, P and I; and gives float32 [P, U, L, C] and, of integers, its scales.
_Read = tuple[Tensor, Tensor | None]


def _floats(codes: Tensor, scales: Tensor, num_panels: int, num_inputs: int) -> _Read:
    return codes.view(torch.float32).view(num_panels, num_inputs, _PANEL, 1), None


def _bfloats(codes: Tensor, scales: Tensor, num_panels: int, num_inputs: int) -> _Read:
    num_units = -(-num_inputs // 2)
    return codes.view(torch.bfloat16).view(num_panels, num_units, _PANEL, 2).float(), None


def _int8(codes: Tensor, scales: Tensor, num_panels: int, num_inputs: int) -> _Read:
    num_groups = -(-num_inputs // _GROUP)
    codes_PULC = codes.view(num_panels, 8 * num_groups, _PANEL, 4)
    scales_PULC = _integer_scales(scales, num_panels, num_groups)
    return (codes_PULC.float() - 128) * scales_PULC, scales_PULC


def _int4(codes: Tensor, scales: Tensor, num_panels: int, num_inputs: int) -> _Read:
    num_groups = -(-num_inputs // _GROUP)
    scales_PULC = _integer_scales(scales, num_panels, num_groups)
    return (_nibbles(codes, num_panels, num_groups).float() - 8) * scales_PULC, scales_PULC


def _mxfp4(codes: Tensor, scales: Tensor, num_panels: int, num_inputs: int) -> _Read:
    num_groups = -(-num_inputs // _GROUP)
    elements_PULC = torch.tensor(ELEMENTS)[_nibbles(codes, num_panels, num_groups).int()]
    powers = torch.exp2(scales.float() - 127).masked_fill(scales == 255, torch.nan)
    return elements_PULC * _of_units(powers.view(num_panels, num_groups, _PANEL)), None


def _nibbles(codes: Tensor, num_panels: int, num_groups: int) -> Tensor:
    """Return the low halves of a unit's bytes, then the high ones, as a unit each: [P, U, L, C]."""
    codes_PULC = codes.view(num_panels, 4 * num_groups, _PANEL, 4)
    return torch.stack((codes_PULC & 15, codes_PULC >> 4), dim=2).flatten(1, 2)


def _integer_scales(scales: Tensor, num_panels: int, num_groups: int) -> Tensor:
    return _of_units(scales.view(torch.bfloat16).view(num_panels, num_groups, _PANEL).float())


def _of_units(scales_PGL: Tensor) -> Tensor:
    """Return a group's scale for each of its eight units: [P, U, L, 1]."""
    return scales_PGL.repeat_interleave(8, dim=1).unsqueeze(-1)


_READERS: dict[str, Callable[[Tensor, Tensor, int, int], _Read]] = {
    "FLOAT32": _floats,
    "BFLOAT16": _bfloats,
    "INT8": _int8,
    "INT4": _int4,
    "MXFP4": _mxfp4,
}
