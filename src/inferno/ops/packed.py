"""Define packed weights: those that a backend makes, and rows as checkpoints hold them packed.

Shape letters: X experts, O output and I input features, N rows of interest, G groups of a row, B
bytes of a group's codes. Leading axes may be absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.ops.gguf_blocks import decode
from inferno.quantization import FP8, MXFP4, RowRange, ScaleType, WeightFormat

FILL_ROWS = 16  # a weight is filled in whole multiples of so many outputs

_MXFP4_LARGEST_EXPONENT = 2  # of an element: 4 = 2^2
_E8M0_BIAS = 127
_LARGEST_E4M3 = 448.0
_LEAST_PEAK = 1e-30  # groups whose peak is less become zeros, so that their scales are normal


class PackedWeight(Protocol):
    """A weight [O, I] in the layout of a backend's kernels; `unpack` returns its values."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of activations that are multiplied with the weight."""

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weight takes."""

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Set N rows from output `first` on; both are multiples of FILL_ROWS, but for the last N.

        Stored rows are moved unchanged if the weight's format can hold them exactly; otherwise
        their values are packed anew.
        """

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""

    def steps(self) -> Tensor | None:
        """Return the distance between neighbouring values that each weight could take: [O, I].

        The distance is zero in rows that weren't quantized; None: no row was.
        """


@dataclass(frozen=True, slots=True)
class SerializedWeight:
    """A packed weight as it can be written to a file.

    meta   a description in values that JSON has; parts the weight's bytes, uint8.
    """

    meta: dict[str, Any]
    parts: tuple[Tensor, ...]


@runtime_checkable
class Serializable(Protocol):
    """A packed weight that can be written to a file."""

    def serialize(self) -> SerializedWeight:
        """Describe the weight for `ops.deserialize`, sharing its memory."""


class PackedExperts(Protocol):
    """The weights [X, O, I] of a mixture's experts, in the layout of a backend's kernels."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weights take."""

    def __getitem__(self, index: int) -> PackedWeight:
        """Return the weight of one expert, which is filled by itself."""


def matrices(packed: PackedWeight | PackedExperts) -> list[PackedWeight]:
    """Return the weights [O, I] to be filled: the weight itself, or each expert's."""
    if len(packed.shape) == 2:
        return [cast(PackedWeight, packed)]
    experts = cast(PackedExperts, packed)
    return [experts[index] for index in range(experts.shape[0])]


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Packed rows of a weight [X, O, I] as checkpoints hold them; the reference computes with them.

    parts  uint8, as `format.parts` says: codes_XOGB and scales_XOG, or of FP8 codes_XOI and the
           bytes of scales_XOG; or the blocks of GGUF.
    dtype  of activations, and of rows taken out of an embedding.
    """

    format: WeightFormat
    parts: tuple[Tensor, ...]
    dtype: torch.dtype = torch.bfloat16

    @classmethod
    def empty(
        cls, format: WeightFormat, shape: Sequence[int], dtype: torch.dtype = torch.bfloat16
    ) -> StoredRows:
        """Return unfilled rows on the default device."""
        shapes = format.stored_shapes(tuple(shape))
        return cls(format, tuple(torch.empty(one, dtype=torch.uint8) for one in shapes), dtype)

    @property
    def shape(self) -> torch.Size:
        """Return the shape that the rows would have unpacked."""
        if self.format.block is not None:
            *leading, num_blocks, _ = self.parts[0].shape
            return torch.Size((*leading, num_blocks * self.format.block.num_inputs))
        if self.format.has_value_bytes:
            return self.parts[0].shape
        *leading, num_groups = self.parts[-1].shape
        return torch.Size((*leading, num_groups * self.format.group))

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the rows take."""
        return sum(part.nbytes for part in self.parts)

    def __getitem__(self, index: int | slice) -> StoredRows:
        """Index along the first axis, as a tensor would; nothing is copied."""
        return StoredRows(self.format, tuple(part[index] for part in self.parts), self.dtype)

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Set rows from `first` on."""
        assert isinstance(rows_NI, StoredRows), "floats are packed by kernels alone"
        assert self.format.takes_exactly(rows_NI.format), "and so are other formats"
        for ours, theirs in zip(self.parts, rows_NI.parts, strict=True):
            ours[first : first + len(theirs)] = theirs

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values."""
        return unpack(self, dtype)

    def steps(self) -> None:
        """Return None: packed values of checkpoints were never quantized here."""


@dataclass(frozen=True, slots=True, eq=False)
class RowRanges:
    """A weight [O, I] whose rows have several formats: a packed weight for each range of rows."""

    parts: tuple[PackedWeight, ...]

    @property
    def shape(self) -> torch.Size:
        """Return the shape [O, I]."""
        return torch.Size((sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]))

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of activations that are multiplied with the weight."""
        return self.parts[0].dtype

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that all ranges take."""
        return sum(part.num_bytes for part in self.parts)

    def rows(self) -> list[slice]:
        """Return where each range's rows begin and end."""
        ends = list(accumulate(part.shape[0] for part in self.parts))
        return [slice(end - part.shape[0], end) for part, end in zip(self.parts, ends, strict=True)]

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Set rows from `first` on; in every range a part begins at a multiple of FILL_ROWS."""
        last = first + rows_NI.shape[0]
        for part, rows in zip(self.parts, self.rows(), strict=True):
            start, stop = max(first, rows.start), min(last, rows.stop)
            if start < stop:
                part.fill(start - rows.start, rows_NI[start - first : stop - first])

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""
        return torch.cat([part.unpack(dtype) for part in self.parts])

    def steps(self) -> Tensor | None:
        """Return what PackedWeight.steps does: the ranges' distances, zero where there are none."""
        found = [part.steps() for part in self.parts]
        device = next((steps.device for steps in found if steps is not None), None)
        if device is None:
            return None
        return torch.cat(
            [
                torch.zeros(part.shape, device=device) if steps is None else steps
                for part, steps in zip(self.parts, found, strict=True)
            ]
        )

    def serialize(self) -> SerializedWeight:
        """Describe all ranges for `ops.deserialize`, sharing their memory."""
        found = [_serialized(part) for part in self.parts]
        parts = tuple(part for one in found for part in one.parts)
        return SerializedWeight({"ranges": [one.meta for one in found]}, parts)


def _serialized(part: PackedWeight) -> SerializedWeight:
    assert isinstance(part, Serializable), "the reference's weights are not written to files"
    return part.serialize()


def deserialize_by(
    read: Callable[[SerializedWeight], PackedWeight], serialized: SerializedWeight
) -> PackedWeight:
    """Return the weight that `read` makes of codes and scales, or of those of each range.

    Raises ValueError, KeyError or TypeError where the data describe no weight.
    """
    if "ranges" not in serialized.meta:
        return read(serialized)
    metas, parts = serialized.meta["ranges"], serialized.parts
    if 2 * len(metas) != len(parts) or not metas:
        raise ValueError(f"{len(metas)} ranges of rows have not {len(parts)} parts")
    found = tuple(
        read(SerializedWeight(meta, parts[2 * index : 2 * index + 2]))
        for index, meta in enumerate(metas)
    )
    if any((one.shape[1], one.dtype) != (found[0].shape[1], found[0].dtype) for one in found):
        raise ValueError("ranges of rows differ in inputs or dtype")
    return RowRanges(found)


def unpacked(weight: Tensor | PackedWeight | StoredRows, dtype: torch.dtype) -> Tensor:
    """Return the values of a packed weight; return a tensor as it is."""
    return weight if isinstance(weight, Tensor) else weight.unpack(dtype)


def unpack(rows: StoredRows, dtype: torch.dtype) -> Tensor:
    """Return the values of rows: exact in float32 and bfloat16, infinite where too large for dtype.

    Values of FP8 are products of element and scale, which float32 rounds.
    """
    format = rows.format
    if format.block is not None:
        blocks_NB = rows.parts[0].reshape(-1, format.block.num_bytes)
        return decode(format.block.type, blocks_NB).view(rows.shape).to(dtype)
    if format == FP8:
        return _unpack_fp8(*rows.parts).to(dtype)
    codes, scales = rows.parts
    assert format.code_bits == 4, "no checkpoints with other codes are read"
    assert format.scale is ScaleType.E8M0, "nor with other scales"
    exact = dtype if dtype is torch.bfloat16 else torch.float32
    pairs = _pairs(format.elements, exact, codes.device).index_select(0, codes.flatten().int())
    scales_G = _e8m0(exact, codes.device).index_select(0, scales.flatten().int())
    values_GB = pairs.view(exact).view(-1, format.group).mul_(scales_G.unsqueeze(1))
    return values_GB.view(rows.shape).to(dtype)


def _unpack_fp8(codes_OI: Tensor, scale_bytes_OG4: Tensor) -> Tensor:
    scales_OG = float32_scales(scale_bytes_OG4)
    scales_OI = scales_OG.repeat_interleave(FP8.group, -1)[..., : codes_OI.shape[-1]]
    return codes_OI.view(torch.float8_e4m3fn).float() * scales_OI


def float32_scales(bytes_OG4: Tensor) -> Tensor:
    """Return scales [..., O, G], float32, from bytes [..., O, G, 4] of any strides."""
    return bytes_OG4.clone(memory_format=torch.contiguous_format).view(torch.float32).squeeze(-1)


def pack_fp8(values_OI: Tensor) -> StoredRows:
    """Return the nearest FP8 weight whose scales are the groups' peaks over the largest element.

    Elements are rounded to the nearest, ties to even. A group with a NaN or infinity becomes NaN.
    """
    num_inputs = values_OI.shape[-1]
    filled = F.pad(values_OI.float(), (0, -num_inputs % FP8.group))
    values_OGB = filled.view(*filled.shape[:-1], -1, FP8.group)
    peak_OG = values_OGB.abs().amax(-1)
    is_finite_OG = peak_OG < torch.inf  # a NaN is the largest of all to torch
    has_values_OG = is_finite_OG & (peak_OG > _LEAST_PEAK)
    # Divided by a tensor of the device: a number would be multiplied by its inverse there.
    scales_OG = peak_OG / torch.full_like(peak_OG, _LARGEST_E4M3)
    scaled_OGB = values_OGB / torch.where(has_values_OG, scales_OG, 1.0).unsqueeze(-1)
    scaled_OGB = torch.where(has_values_OG.unsqueeze(-1), scaled_OGB, 0.0)
    codes_OGB = scaled_OGB.clamp(-_LARGEST_E4M3, _LARGEST_E4M3).to(torch.float8_e4m3fn)
    zeros_or_nan_OG = torch.where(is_finite_OG, 0.0, torch.nan)
    kept_OG = torch.where(has_values_OG, scales_OG, zeros_or_nan_OG)
    codes_OI = codes_OGB.view(torch.uint8).flatten(-2)[..., :num_inputs]
    return StoredRows(FP8, (codes_OI, kept_OG.unsqueeze(-1).contiguous().view(torch.uint8)))


def pack_mxfp4(values_OI: Tensor) -> StoredRows:
    """Return the nearest MXFP4 weight, as section 6.3 of the specification converts.

    A block's scale is the largest power of two in it, over 4; elements are rounded to the nearest,
    ties to even, and at most 6. A block with a NaN becomes NaN.
    """
    values = values_OI.double().view(*values_OI.shape[:-1], -1, MXFP4.group)
    largest = values.abs().amax(-1)
    exponents = torch.frexp(largest).exponent - 1 - _MXFP4_LARGEST_EXPONENT
    exponents = exponents.clamp(-_E8M0_BIAS, _E8M0_BIAS)
    codes = _element_codes(torch.ldexp(values, -exponents.unsqueeze(-1)))
    blocks = codes[..., 0::2] | codes[..., 1::2] << 4
    scales = torch.where(largest.isnan(), 255, exponents + _E8M0_BIAS).to(torch.uint8)
    return StoredRows(MXFP4, (blocks, scales))


def _element_codes(values: Tensor) -> Tensor:
    """Return the four bits of the nearest elements, as uint8."""
    magnitudes = values.abs()
    steps = torch.where(magnitudes < 2, 0.5, torch.where(magnitudes < 4, 1.0, 2.0))
    rounded = (magnitudes / steps).round() * steps  # round() takes ties to even
    table = torch.tensor(MXFP4.elements[:8], dtype=values.dtype, device=values.device)
    codes = torch.searchsorted(table, rounded.nan_to_num().clamp(max=table[-1]))
    return (codes + 8 * values.signbit()).to(torch.uint8)


@cache
def _pairs(elements: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Tabulate by byte its two elements, as the bits of one integer: together they cost half."""
    pairs = [[elements[byte & 15], elements[byte >> 4]] for byte in range(256)]
    integer = torch.int32 if dtype.itemsize == 2 else torch.int64
    return torch.tensor(pairs, dtype=dtype, device=device).view(integer).squeeze(1)


@cache
def _e8m0(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Tabulate by byte its power of two; 255 is NaN."""
    powers = [2.0 ** (byte - _E8M0_BIAS) for byte in range(255)]
    return torch.tensor([*powers, torch.nan], dtype=dtype, device=device)


def scales_of(format: WeightFormat, scales: Tensor) -> Tensor:
    """Return a packed weight's scales, uint8 bytes in any order, as float32 in the same order."""
    if format.scale is ScaleType.E8M0:
        return _e8m0(torch.float32, scales.device)[scales.int()]
    if format.scale is ScaleType.FLOAT32:
        return scales.view(torch.float32)
    plain = torch.float16 if format.scale is ScaleType.FLOAT16 else torch.bfloat16
    return scales.view(plain).float()


def is_plain(ranges: Sequence[RowRange]) -> bool:
    """Return whether a weight's rows are all floats of one type."""
    return len(ranges) == 1 and ranges[0].format.is_float
