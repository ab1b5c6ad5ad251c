"""Packed weights: values of a few bits, kept so in memory and unpacked where they are multiplied.

MXFP4 is the microscaling format of OCP MX v1.0 with 4-bit elements. A row of I values is cut into
blocks of 32, and value = element * scale.

    element  E2M1, four bits: 3 sign; 2-1 exponent, bias 1; 0 mantissa. By the lower three bits
             0 0.5 1 1.5 2 3 4 6; no infinity, no NaN.
    byte     j of a block's 16 holds element 2j in bits 0-3, element 2j + 1 in bits 4-7.
    scale    E8M0, one byte a block: 2^(byte - 127); byte 255 makes the whole block NaN.

Shape letters: X experts, O output and I input features, G blocks of a row (I / 32), B bytes of a
block (16). Leading axes may be absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

FILL_ROWS = 16  # a weight is prepared in whole multiples of so many outputs
MX_BLOCK = 32  # values that share a scale
MX_BLOCK_BYTES = MX_BLOCK // 2

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
ELEMENTS = (*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES))
_LARGEST_EXPONENT = 2  # of an element: 4 = 2^2
_SCALE_BIAS = 127


@dataclass(frozen=True, slots=True, eq=False)
class MXFP4Weight:
    """A weight [X, O, I] in MXFP4: blocks_XOGB and scales_XOG, both uint8."""

    blocks: Tensor
    scales: Tensor

    @property
    def shape(self) -> torch.Size:
        """Return the shape that it would have unpacked."""
        *leading, num_blocks = self.scales.shape
        return torch.Size((*leading, num_blocks * MX_BLOCK))

    def __getitem__(self, index: int | slice) -> MXFP4Weight:
        """Index along the first axis, as a tensor would; nothing is copied."""
        return MXFP4Weight(self.blocks[index], self.scales[index])


@runtime_checkable
class Prepared(Protocol):
    """A weight [O, I] as a backend laid it out for its kernels; any backend can read its values."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of activations that meet it."""

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that it takes."""

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""

    def steps(self) -> Tensor | None:
        """Return the distance between values that each could take, of int8 and int4: [O, I]."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A prepared weight as it can be written to a file.

    meta   what it is, in values that JSON has;  parts  its bytes, uint8.
    """

    meta: dict[str, Any]
    parts: tuple[Tensor, ...]


@runtime_checkable
class Fillable(Prepared, Protocol):
    """A prepared weight that takes its values a few rows at a time."""

    def fill(self, first: int, values_NI: Tensor) -> None:
        """Set rows from output `first` on, a multiple of FILL_ROWS; so is N, but at the end."""

    def stored(self) -> Stored:
        """Describe it for `ops.restore`; its memory is shared."""


class PreparedExperts(Protocol):
    """The weights [X, O, I] of a mixture's experts, as a backend laid them out."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that they take."""

    def __getitem__(self, index: int) -> Prepared: ...


def unpacked(weight: Tensor | MXFP4Weight | Prepared, dtype: torch.dtype) -> Tensor:
    """Return the weight's values; a tensor is what it is."""
    if isinstance(weight, Tensor):
        return weight
    return unpack(weight, dtype) if isinstance(weight, MXFP4Weight) else weight.unpack(dtype)


def unpack(weight: MXFP4Weight, dtype: torch.dtype) -> Tensor:
    """Return the values: exact in float32 and bfloat16, but infinite beyond their largest."""
    exact = dtype if dtype is torch.bfloat16 else torch.float32
    device = weight.blocks.device
    pairs = _pairs(exact, device).index_select(0, weight.blocks.flatten().int())
    scales_G = _scales(exact, device).index_select(0, weight.scales.flatten().int())
    values_GB = pairs.view(exact).view(-1, MX_BLOCK).mul_(scales_G.unsqueeze(1))
    return values_GB.view(weight.shape).to(dtype)


def pack(values_OI: Tensor) -> MXFP4Weight:
    """Return the nearest MXFP4 weight, as section 6.3 of the specification converts.

    A block's scale is the largest power of two in it, over 4; elements are rounded to the nearest,
    ties to even, and at most 6. A block with a NaN becomes NaN.
    """
    values = values_OI.double().view(*values_OI.shape[:-1], -1, MX_BLOCK)
    largest = values.abs().amax(-1)
    exponents = torch.frexp(largest).exponent - 1 - _LARGEST_EXPONENT
    exponents = exponents.clamp(-_SCALE_BIAS, _SCALE_BIAS)
    codes = _element_codes(torch.ldexp(values, -exponents.unsqueeze(-1)))
    blocks = codes[..., 0::2] | codes[..., 1::2] << 4
    scales = torch.where(largest.isnan(), 255, exponents + _SCALE_BIAS).to(torch.uint8)
    return MXFP4Weight(blocks, scales)


def _element_codes(values: Tensor) -> Tensor:
    """Return the four bits of the nearest elements, as uint8."""
    magnitudes = values.abs()
    steps = torch.where(magnitudes < 2, 0.5, torch.where(magnitudes < 4, 1.0, 2.0))
    rounded = (magnitudes / steps).round() * steps  # round() takes ties to even
    table = torch.tensor(_MAGNITUDES, dtype=values.dtype, device=values.device)
    codes = torch.searchsorted(table, rounded.nan_to_num().clamp(max=table[-1]))
    return (codes + 8 * values.signbit()).to(torch.uint8)


@cache
def _pairs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Tabulate by byte its two elements, as the bits of one integer: together they cost half."""
    pairs = [[ELEMENTS[byte & 15], ELEMENTS[byte >> 4]] for byte in range(256)]
    integer = torch.int32 if dtype.itemsize == 2 else torch.int64
    return torch.tensor(pairs, dtype=dtype, device=device).view(integer).squeeze(1)


@cache
def _scales(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Tabulate by byte its power of two; 255 is NaN."""
    powers = [2.0 ** (byte - _SCALE_BIAS) for byte in range(255)]
    return torch.tensor([*powers, torch.nan], dtype=dtype, device=device)
