"""Make blocks of GGUF's quantized types of floats: the inverse of `ops.gguf_blocks`.

Q8_0, Q4_0, Q5_0 and MXFP4 follow the rules of ggml, bit for bit as its `gguf` package has them;
k_blocks.py has types whose scales are searched.

Shape letters: N blocks, V values of a block, B bytes of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from inferno.convert.k_blocks import q4_k, q6_k
from inferno.quantization import MXFP4

_LARGEST_EXPONENT = 254  # of E8M0; 255 is NaN
_EXPONENT_OF_ONE = 127
_EXPONENT_OF_LARGEST_ELEMENT = 2  # 4 = 2^2, the power of two in 6


def can_encode(type_name: str) -> bool:
    """Return whether `encode` knows a type, by its name in GGUF."""
    return type_name in _ENCODERS


def encode(type_name: str, values_NV: Tensor) -> Tensor:
    """Return uint8 [N, B] of N blocks' values, float32 [N, V].

    Raises ValueError where a value is not finite, or too large for the type's scales.
    """
    if not values_NV.isfinite().all():
        raise ValueError("some are not finite")
    return _ENCODERS[type_name](values_NV)


def _q8_0(values: Tensor) -> Tensor:
    scales = values.abs().amax(1, keepdim=True) / 127
    magnitudes = (values * _inverse(scales)).abs()
    floor = magnitudes.floor()
    rounded = (floor + (2 * (magnitudes - floor)).floor()) * values.sign()  # ties away from zero
    return torch.cat([_float16(scales), rounded.to(torch.int8).view(torch.uint8)], 1)


def _q4_0(values: Tensor) -> Tensor:
    scales, codes = _by_signed_peak(values, 8)
    return torch.cat([_float16(scales), _halves(codes)], 1)


def _q5_0(values: Tensor) -> Tensor:
    scales, codes = _by_signed_peak(values, 16)
    fifth = (codes >> 4).view(len(codes), 4, 8) << torch.arange(8, dtype=torch.uint8)
    fifth_bits = fifth.sum(2, dtype=torch.uint8)
    return torch.cat([_float16(scales), fifth_bits, _halves(codes & 15)], 1)


def _mxfp4(values: Tensor) -> Tensor:
    """Take the power of two of the largest value for a scale, and for each the nearest element.

    Of two that are as near, the one that stands first in the table is taken.
    """
    largest = values.abs().amax(1, keepdim=True)
    # ggml's logarithm is one of float32, which rounds up to a whole number just below it.
    exponents = torch.log2(largest.double()).float().floor()
    bytes_N1 = exponents - _EXPONENT_OF_LARGEST_ELEMENT + _EXPONENT_OF_ONE
    bytes_N1 = torch.where(largest > 0, bytes_N1.clamp(0, _LARGEST_EXPONENT), 0).to(torch.uint8)
    scales = torch.ldexp(torch.ones_like(largest), bytes_N1.int() - _EXPONENT_OF_ONE)
    codes = torch.zeros_like(values, dtype=torch.uint8)
    least = values.abs()
    for code, element in enumerate(MXFP4.elements):
        error = (scales * element - values).abs()
        is_nearer = error < least
        codes = torch.where(is_nearer, code, codes)
        least = torch.where(is_nearer, error, least)
    return torch.cat([bytes_N1, _halves(codes.to(torch.uint8))], 1)


_ENCODERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q5_0": _q5_0,
    "Q4_K": q4_k,
    "Q6_K": q6_k,
    "MXFP4": _mxfp4,
}


def _by_signed_peak(values: Tensor, zero_point: int) -> tuple[Tensor, Tensor]:
    """Return scales by which the largest value is the lowest code, which has the most room."""
    peaks = values.gather(1, values.abs().argmax(1, keepdim=True))
    scales = peaks / -zero_point
    shifted = values * _inverse(scales) + (zero_point + 0.5)
    return scales, shifted.trunc().clamp(0, 2 * zero_point - 1).to(torch.uint8)


def _inverse(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 0.0, 1 / scales)


def _float16(scales_N1: Tensor) -> Tensor:
    halves = scales_N1.half()
    if not halves.isfinite().all():
        raise ValueError("some are too large")
    return halves.view(torch.uint8)


def _halves(codes_NV: Tensor) -> Tensor:
    """Return codes of four bits, two in a byte: those of the first half are the lower ones."""
    first, second = codes_NV.chunk(2, 1)
    return first | second << 4
