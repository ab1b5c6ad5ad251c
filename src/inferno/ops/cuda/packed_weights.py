"""Weights of codes and scales as CUDA's kernels read them: rows of words, in chunks of 16 words.

codes   int32 [O, J]. A word has a slot for each of its codes: four of eight bits, or eight of four.
        Slot p of word j of a chunk holds input 16 p + j of the chunk. So one slot of a chunk is a
        tile of 16 inputs that follow one another, which is what a tensor core takes at a time, and
        no kernel sorts neighbouring codes apart, which would move every value through shared
        memory. Two slots share a scale; in FP8 the eight of two chunks.
scales  int32 [O, S]: two bfloat16 or four E8M0 of neighbouring groups in a word, the first lowest,
        because four bytes are the least that a GPU copies on its own; or a float32.

Inputs beyond the last, up to whole chunks, and groups in FP8, have codes and scales of zeros. A
chunk of a row is 64 bytes, so the 16 bytes that a thread loads at once are aligned. Quantizing to
int8 and int4 takes the scales, and so the codes, that the CPU's kernels take
(native/scalar/quantize.cpp), bit for bit: it is the same model on both.

Shape letters: X experts, O output and I input features, N rows of interest, G groups of 32 inputs,
J words of codes and S of scales of a row, C chunks, M groups of several rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda.chips import chip_of
from inferno.ops.packed import (
    FILL_ROWS,
    PackedExperts,
    PackedWeight,
    RowRanges,
    StoredRows,
    float32_scales,
    is_plain,
    pack_fp8,
    scales_of,
    unpacked,
)
from inferno.ops.reference.stored import UnpackedWeight
from inferno.quantization import (
    BFLOAT16,
    FLOAT16,
    FP8,
    FP8_DYNAMIC,
    INT4,
    INT8,
    MXFP4,
    RowRange,
    WeightFormat,
)

GROUP = 32
CHUNK_WORDS = 16

_WORD_BYTES = 4
_EIGHT_BITS = tuple(tuple(range(first, first + 8)) for first in range(0, 32, 8))
_FOUR_BITS = tuple(tuple(range(first, first + 4)) for first in range(0, 32, 4))
# The sign is 9 bits above the lowest, as in a float of which the other three bits are the lower two
# of the exponent and the first of the mantissa: a shift and a mask make such a float of a code. Six
# codes fit into a word like that; the last two take what is left.
_E2M1_BITS = (
    *((22, 23, 24, 31), (19, 20, 21, 28), (16, 17, 18, 25)),
    *((6, 7, 8, 15), (3, 4, 5, 12), (0, 1, 2, 9)),
    *((26, 27, 29, 30), (10, 11, 13, 14)),
)
# Where in a word the bits of each slot's code are, the lowest first, in the formats that kernels
# read; `dequantize` takes them apart.
SLOTS = {INT8: _EIGHT_BITS, INT4: _FOUR_BITS, FP8: _EIGHT_BITS, MXFP4: _E2M1_BITS}

_QUANTIZED_VALUES = 1 << 24  # at once, which bounds what quantizing needs beside the weight
_E4M3_NAN = 0x7F  # but for the sign
_LEAST_WEIGHT = 1e-30  # groups whose peak is less become zeros, so that 1 / scale is finite


@dataclass(frozen=True, slots=True, eq=False)
class CodedWeight:
    """A weight [O, I] in codes and scales.

    dtype          of activations, and of rows taken out of an embedding.
    rounds_inputs  whether activations are rounded to FP8, like the weight.
    is_invariant   whether a row's product must have the same bits beside any other rows. Where
                   inputs are rounded it has them anyway, and this stays False.
    """

    format: WeightFormat
    shape: torch.Size
    dtype: torch.dtype
    codes: Tensor
    scales: Tensor
    rounds_inputs: bool = False
    is_invariant: bool = False

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weight takes."""
        return self.codes.nbytes + self.scales.nbytes

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Set rows from output `first` on; they are packed on the weight's device."""
        step = max(1, _QUANTIZED_VALUES // (self.shape[1] * FILL_ROWS)) * FILL_ROWS
        for start in range(0, rows_NI.shape[0], step):
            part = rows_NI[start : start + step]
            where = slice(first + start, first + start + part.shape[0])
            codes_NI, scales_NG = self._coded(part)
            self.codes[where] = _packed(self.format, codes_NI)
            self.scales[where] = _words(scales_NG, self.scales.shape[1])

    def _coded(self, rows_NI: Tensor | StoredRows) -> tuple[Tensor, Tensor]:
        """Return codes [N, I'] and scales [N, G'], both uint8, of I' inputs in whole groups."""
        device = self.codes.device
        if isinstance(rows_NI, StoredRows):
            moved = tuple(part.to(device) for part in rows_NI.parts)
            if self.format == rows_NI.format == MXFP4:
                pairs_NGB, scales_NG = moved
                codes = torch.stack((pairs_NGB & 15, pairs_NGB >> 4), dim=-1)
                return codes.flatten(1), scales_NG
            if self.format == rows_NI.format == FP8:
                return _coded_fp8(StoredRows(FP8, moved))
            rows_NI = StoredRows(rows_NI.format, moved).unpack(torch.float32)
        if self.format == FP8:
            return _coded_fp8(pack_fp8(rows_NI.to(device)))
        assert self.format in _TRIED, f"floats do not become {self.format}"
        return quantize(rows_NI.to(device), self.format)

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""
        elements = torch.tensor(self.format.elements, device=self.codes.device)
        codes_OI = _unpacked(self.format, self.codes)[:, : self.shape[1]]
        return (elements[codes_OI.int()] * self._scales_OI()).to(dtype)

    def steps(self) -> Tensor | None:
        """Return the size of each value's scale [O, I], where floats were quantized."""
        if self.format.steps is None:
            return None
        scales_OI = self._scales_OI().abs()
        if self.format != FP8:
            return scales_OI
        codes_OI = _unpacked(self.format, self.codes)[:, : self.shape[1]]
        return scales_OI * _e4m3_steps(codes_OI)

    def _scales_OI(self) -> Tensor:
        """Return the scale of each value, float32."""
        scales_OG = scales_of(self.format, self.scales.view(torch.uint8))
        return scales_OG.repeat_interleave(self.format.group, dim=1)[:, : self.shape[1]]


@dataclass(frozen=True, slots=True, eq=False)
class InvariantFloats:
    """A weight [O, I] of plain floats, by which a row's product has the same bits in any batch.

    With a plain tensor it has not: cuBLAS chooses its order of sums by the number of rows.
    """

    values: Tensor

    @property
    def shape(self) -> torch.Size:
        """Return the shape [O, I]."""
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of activations that are multiplied with the weight."""
        return self.values.dtype

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weight takes."""
        return self.values.nbytes

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Set rows from output `first` on."""
        values_NI = unpacked(rows_NI, self.dtype)
        self.values[first : first + len(values_NI)] = values_NI

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """Return the values [O, I]."""
        return self.values.to(dtype)

    def steps(self) -> None:
        """Return None: floats were not quantized."""


@dataclass(frozen=True, slots=True, eq=False)
class CodedExperts:
    """The weights [X, O, I] of a mixture's experts: codes [X, O, J] and scales [X, O, S]."""

    format: WeightFormat
    shape: torch.Size
    dtype: torch.dtype
    codes: Tensor
    scales: Tensor

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weights take."""
        return self.codes.nbytes + self.scales.nbytes

    def __getitem__(self, index: int) -> CodedWeight:
        shape = self.shape[1:]
        return CodedWeight(self.format, shape, self.dtype, self.codes[index], self.scales[index])


def formats_of(module: str) -> Iterator[WeightFormat]:
    """Yield the formats that a module's weight may be in: those that files have, or floats become.

    module  the last part of its name.
    """
    for format in SLOTS:
        if format.parts or format.choose(module) == format.name:
            yield format


def chunk_inputs(format: WeightFormat) -> int:
    """Return the number of inputs of a chunk."""
    return CHUNK_WORDS * len(SLOTS[format])


def row_words(format: WeightFormat, num_inputs: int) -> tuple[int, int]:
    """Return the number of words of a row's codes and of its scales."""
    assert format.scale is not None, "floats have no codes"
    unit = max(chunk_inputs(format), format.group)
    filled = -(-num_inputs // unit) * unit
    num_chunks, num_groups = filled // chunk_inputs(format), filled // format.group
    return num_chunks * CHUNK_WORDS, num_groups * int(format.scale.num_bytes) // _WORD_BYTES


def has_kernels(format: WeightFormat) -> bool:
    if format == FP8_DYNAMIC:
        if not torch.cuda.is_available():
            return chip_of(torch.device("cpu")).has_fp8
        # By its number, for what a chip can is remembered, and another may be in force next time.
        return chip_of(torch.device("cuda", torch.cuda.current_device())).has_fp8
    return format in SLOTS or format in (FLOAT16, BFLOAT16)


def allocate(
    shape: torch.Size,
    dtype: torch.dtype,
    ranges: Sequence[RowRange],
    *,
    is_invariant: bool = False,
) -> PackedWeight | PackedExperts | None:
    """Return a weight to be filled; None for floats that stay plain tensors.

    Products of experts always sum in one order, so is_invariant doesn't change them.
    """
    if is_plain(ranges) and (len(shape) == 3 or not is_invariant):
        return None
    if len(shape) == 3:
        [one] = ranges
        if one.format == FP8_DYNAMIC:  # experts take activations as they are
            one = RowRange(one.num_rows, FP8)
        if one.format not in SLOTS:
            return reference.allocate(shape, dtype, ranges)
        return CodedExperts(one.format, shape, dtype, *_empty(one.format, shape))
    parts = tuple(_range(one, shape[1], dtype, is_invariant) for one in ranges)
    return parts[0] if len(parts) == 1 else RowRanges(parts)


def _range(one: RowRange, num_inputs: int, dtype: torch.dtype, is_invariant: bool) -> PackedWeight:
    shape = torch.Size((one.num_rows, num_inputs))
    if one.format.is_float:
        values = torch.empty(shape, dtype=dtype)
        return InvariantFloats(values) if is_invariant else UnpackedWeight(values, dtype, None)
    if one.format == FP8_DYNAMIC:
        return CodedWeight(FP8, shape, dtype, *_empty(FP8, shape), rounds_inputs=True)
    if one.format in SLOTS:
        codes, scales = _empty(one.format, shape)
        return CodedWeight(one.format, shape, dtype, codes, scales, is_invariant=is_invariant)
    return StoredRows.empty(one.format, shape, dtype)


def _empty(format: WeightFormat, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Return unfilled codes and scales on the default device."""
    *leading, num_inputs = shape
    code_words, scale_words = row_words(format, num_inputs)
    codes = torch.empty((*leading, code_words), dtype=torch.int32)
    return codes, torch.empty((*leading, scale_words), dtype=torch.int32)


def _packed(format: WeightFormat, codes_NI: Tensor) -> Tensor:
    """Return the words of rows of codes, a byte each: [N, J]."""
    slots = SLOTS[format]
    missing = -codes_NI.shape[1] % chunk_inputs(format)
    zero = format.elements.index(0.0)
    filled_NI = F.pad(codes_NI, (0, missing), value=zero)
    codes_NCPJ = filled_NI.unflatten(1, (-1, len(slots), CHUNK_WORDS))
    words_NCJ = torch.zeros_like(codes_NCPJ[:, :, 0], dtype=torch.int32)
    for slot, (shift, mask, target) in _runs(slots):
        words_NCJ |= (codes_NCPJ[:, :, slot].int() >> shift & mask) << target
    return words_NCJ.flatten(1)


def _unpacked(format: WeightFormat, words_NJ: Tensor) -> Tensor:
    """Return a byte for each code, in the order of inputs: [N, I'] of whole chunks."""
    slots = SLOTS[format]
    words_NCJ = words_NJ.unflatten(1, (-1, CHUNK_WORDS))
    codes_PNCJ = words_NJ.new_zeros((len(slots), *words_NCJ.shape))
    for slot, (shift, mask, target) in _runs(slots):
        codes_PNCJ[slot] |= (words_NCJ >> target & mask) << shift
    return codes_PNCJ.permute(1, 2, 0, 3).flatten(1).to(torch.uint8)


def _runs(slots: Sequence[Sequence[int]]) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield the bits of each slot's code that stay together: where from, a mask, and where to."""
    for slot, places in enumerate(slots):
        first = 0
        for bit in range(1, len(places) + 1):
            if bit == len(places) or places[bit] != places[bit - 1] + 1:
                yield slot, (first, (1 << bit - first) - 1, places[first])
                first = bit


def _coded_fp8(rows_NI: StoredRows) -> tuple[Tensor, Tensor]:
    """Return elements [N, I'] and the bytes of scales [N, G * 4] of whole groups.

    A group with a NaN has a NaN for a scale.
    """
    codes_NI, scale_bytes_NG4 = rows_NI.parts
    missing = -codes_NI.shape[1] % FP8.group
    codes_NGB = F.pad(codes_NI, (0, missing)).unflatten(1, (-1, FP8.group))
    has_nan_NG = ((codes_NGB & _E4M3_NAN) == _E4M3_NAN).any(-1)
    scales_NG = float32_scales(scale_bytes_NG4).masked_fill(has_nan_NG, torch.nan)
    return codes_NGB.flatten(1), scales_NG.view(torch.uint8)


def _e4m3_steps(codes_OI: Tensor) -> Tensor:
    """Return how far each element is from those around it, by its exponent."""
    exponents_OI = (codes_OI >> 3 & 15).int().clamp(min=1)
    return torch.ldexp(torch.ones_like(exponents_OI, dtype=torch.float32), exponents_OI - 10)


def _words(scales_NG: Tensor, num_words: int) -> Tensor:
    """Return the bytes of rows' scales as words [N, S], filled up with zeros."""
    filled = F.pad(scales_NG, (0, num_words * _WORD_BYTES - scales_NG.shape[1]))
    return filled.contiguous().view(torch.int32)


@dataclass(frozen=True, slots=True)
class _Tried:
    """The scales that are tried for a group, and the least of its whole numbers.

    widest      the first scale is the peak over this, rounded up to a bfloat16.
    num_scales  each next one is `stride` bfloat16 numbers above the last.
    signs       of each scale, in the order in which they are tried.
    """

    widest: float
    num_scales: int
    stride: int
    signs: tuple[int, ...]
    lowest: int


# As native/contract/packings.h has them; a test compares all bits.
_TRIED = {
    INT8: _Tried(widest=127.5, num_scales=16, stride=1, signs=(1,), lowest=-127),
    INT4: _Tried(widest=9.25, num_scales=14, stride=6, signs=(1, -1), lowest=-8),
}


def quantize(values_NI: Tensor, format: WeightFormat) -> tuple[Tensor, Tensor]:
    """Return codes [N, I'] and the bytes of scales [N, G * 2], uint8, of I' inputs in whole groups.

    A group takes the scale that leaves the smallest squared error of those tried. All sums go over
    a group's inputs from the first on, each step rounded, as the CPU's kernels sum.
    """
    missing = -values_NI.shape[1] % GROUP
    values_NI = F.pad(values_NI.float(), (0, missing))
    num_rows = len(values_NI)
    # Inputs first: what is added up then lies side by side.
    values_BM = values_NI.view(-1, GROUP).t().contiguous()
    peak_M = values_BM.abs().amax(0)
    is_finite_M = peak_M < torch.inf  # a NaN is the largest of all to torch
    has_values_M = is_finite_M & (peak_M > _LEAST_WEIGHT)
    # Others get values that are harmless to compute with.
    values_BM = torch.where(has_values_M, values_BM, 1.0)
    best_M = _best_scales(values_BM, values_BM.abs().amax(0), format)
    whole_BM = torch.where(has_values_M, _whole(values_BM, best_M, format), 0.0)
    zeros_or_nan_M = torch.where(is_finite_M, 0.0, torch.nan)
    scales_M = torch.where(has_values_M, best_M, zeros_or_nan_M).bfloat16()
    codes_BM = (whole_BM - format.elements[0]).to(torch.uint8)
    scales_NG = scales_M.view(num_rows, -1)
    return codes_BM.t().reshape(num_rows, -1), scales_NG.view(torch.uint8)


def _best_scales(values_BM: Tensor, peak_M: Tensor, format: WeightFormat) -> Tensor:
    """Return the scale of each group that errs least; of equally good ones the first tried."""
    tried = _TRIED[format]
    # Divided by a tensor of the device: a number would be multiplied by its inverse there.
    first_M = peak_M / torch.full_like(peak_M, tried.widest)
    first_bits_M = (first_M.view(torch.int32) + 0xFFFF) & ~0xFFFF
    peak_inverse_M = peak_M.reciprocal()
    error_M = torch.full_like(peak_M, torch.inf)
    scale_M = torch.zeros_like(peak_M)

    def offer(other_M: Tensor, error_M: Tensor, scale_M: Tensor) -> tuple[Tensor, Tensor]:
        exact_BM = values_BM * other_M.reciprocal()
        off_BM = exact_BM - exact_BM.round().clamp(tried.lowest, -format.elements[0] - 1)
        relative_M = other_M * peak_inverse_M
        other_error_M = _sum(off_BM * off_BM) * (relative_M * relative_M)
        is_better_M = other_error_M < error_M
        return (
            torch.where(is_better_M, other_error_M, error_M),
            torch.where(is_better_M, other_M, scale_M),
        )

    for n in range(tried.num_scales):
        magnitude_M = (first_bits_M + (n * tried.stride << 16)).view(torch.float32)
        for sign in tried.signs:
            error_M, scale_M = offer(sign * magnitude_M, error_M, scale_M)
    if tried.stride > 1:  # scales were left out: the least squares' for what was found
        whole_BM = _whole(values_BM, scale_M, format)
        fitted_M = _sum(values_BM * whole_BM) / _sum(whole_BM * whole_BM)
        error_M, scale_M = offer(fitted_M.bfloat16().float(), error_M, scale_M)
    return scale_M


def _whole(values_BM: Tensor, scale_M: Tensor, format: WeightFormat) -> Tensor:
    """Return the whole numbers that values are, in units of their scale."""
    whole_BM = (values_BM * scale_M.reciprocal()).round()
    return whole_BM.clamp(_TRIED[format].lowest, -format.elements[0] - 1)


def _sum(terms_BM: Tensor) -> Tensor:
    """Return the sums over a group's inputs, from the first on."""
    total_M = torch.zeros_like(terms_BM[0])
    for term_M in terms_BM:
        total_M = total_M + term_M
    return total_M
