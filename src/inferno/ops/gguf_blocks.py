"""Decode GGUF's quantized tensors: the float32 values of the blocks of each type.

A block holds codes, and for each group of its values a scale and perhaps a minimum:
value = scale * code - minimum. The K-types' own scales are codes of six or four bits, beside a
float16 for the whole block. Source: the block structures of ggml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1_HALVES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # in halves
_E8M0_BIAS_OF_HALVES = 128


class _Blocks(NamedTuple):
    """N blocks of V values in G groups each: codes [N, V], scales and minimums [N, G] float32."""

    codes: Tensor
    scales: Tensor
    minimums: Tensor | None = None


def decode(type_name: str, blocks_NB: Tensor) -> Tensor:
    """Return the values float32 [N, V] of N blocks, given as uint8 [N, block_bytes]."""
    blocks = _DECODERS[type_name](blocks_NB)
    num_blocks, num_groups = blocks.scales.shape
    values = blocks.codes.float().view(num_blocks, num_groups, -1)
    values *= blocks.scales[:, :, None]
    if blocks.minimums is not None:
        values -= blocks.minimums[:, :, None]
    return values.view(num_blocks, -1)


def _q4_0(blocks: Tensor) -> _Blocks:
    scale, codes = _split(blocks, 2, 16)
    return _Blocks(_unpack(codes, 4, 16).to(torch.int8) - 8, _float16(scale))


def _q4_1(blocks: Tensor) -> _Blocks:
    scale, minimum, codes = _split(blocks, 2, 2, 16)
    return _Blocks(_unpack(codes, 4, 16), _float16(scale), -_float16(minimum))


def _q5_0(blocks: Tensor) -> _Blocks:
    scale, fifth, codes = _split(blocks, 2, 4, 16)
    return _Blocks(_five_bits(codes, 16, fifth, 1).to(torch.int8) - 16, _float16(scale))


def _q5_1(blocks: Tensor) -> _Blocks:
    scale, minimum, fifth, codes = _split(blocks, 2, 2, 4, 16)
    return _Blocks(_five_bits(codes, 16, fifth, 1), _float16(scale), -_float16(minimum))


def _q8_0(blocks: Tensor) -> _Blocks:
    scale, codes = _split(blocks, 2, 32)
    return _Blocks(codes.view(torch.int8), _float16(scale))


def _q2_k(blocks: Tensor) -> _Blocks:
    both, codes, scale, minimum = _split(blocks, 16, 64, 2, 2)
    return _Blocks(
        _unpack(codes, 2, 32), _float16(scale) * (both & 15), _float16(minimum) * (both >> 4)
    )


def q3_k_codes(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes [N, 256] and the scales [N, 16] of blocks of Q3_K, int8 around zero."""
    third, codes, scales, _ = _split(blocks, 32, 64, 12, 2)
    low, high = _split(scales, 8, 4)
    six_bits = _unpack(low, 4, 8) | (_unpack(high, 2, 4) << 4)
    three_bits = _unpack(codes, 2, 32) | (_unpack(third, 1, 32) << 2)
    return three_bits.to(torch.int8) - 4, six_bits.to(torch.int8) - 32


def _q3_k(blocks: Tensor) -> _Blocks:
    codes, scales = q3_k_codes(blocks)
    return _Blocks(codes, _float16(blocks[:, 108:].contiguous()) * scales)


def _q4_k(blocks: Tensor) -> _Blocks:
    scale, minimum, both, codes = _split(blocks, 2, 2, 12, 128)
    scales, minimums = _six_bits(both)
    return _Blocks(_unpack(codes, 4, 32), _float16(scale) * scales, _float16(minimum) * minimums)


def _q5_k(blocks: Tensor) -> _Blocks:
    scale, minimum, both, fifth, codes = _split(blocks, 2, 2, 12, 32, 128)
    scales, minimums = _six_bits(both)
    return _Blocks(
        _five_bits(codes, 32, fifth, 32), _float16(scale) * scales, _float16(minimum) * minimums
    )


def _q6_k(blocks: Tensor) -> _Blocks:
    low, high, scales, scale = _split(blocks, 128, 64, 16, 2)
    six_bits = _unpack(low, 4, 64) | (_unpack(high, 2, 32) << 4)
    return _Blocks(six_bits.to(torch.int8) - 32, _float16(scale) * scales.view(torch.int8))


def _iq4_nl(blocks: Tensor) -> _Blocks:
    scale, codes = _split(blocks, 2, 16)
    return _Blocks(_looked_up(IQ4_VALUES, _unpack(codes, 4, 16)), _float16(scale))


def iq4_xs_scales(blocks: Tensor) -> Tensor:
    """Return the scales of blocks of IQ4_XS, float32 [N, 8]."""
    scale, high, low, _ = _split(blocks, 2, 2, 4, 128)
    six_bits = _unpack(low, 4, 1) | (_unpack(high, 2, 1) << 4)
    return _float16(scale) * (six_bits.to(torch.int8) - 32)


def _iq4_xs(blocks: Tensor) -> _Blocks:
    codes = _unpack(blocks[:, 8:].contiguous(), 4, 16)
    return _Blocks(_looked_up(IQ4_VALUES, codes), iq4_xs_scales(blocks))


def _mxfp4(blocks: Tensor) -> _Blocks:
    exponent, codes = _split(blocks, 1, 16)
    power = torch.ldexp(torch.ones(exponent.shape), exponent.int() - _E8M0_BIAS_OF_HALVES)
    return _Blocks(_looked_up(_E2M1_HALVES, _unpack(codes, 4, 16)), power)


_DECODERS: Mapping[str, Callable[[Tensor], _Blocks]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}


def _split(blocks: Tensor, *sizes: int) -> list[Tensor]:
    """Return the fields of each block, of so many bytes."""
    return [field.contiguous() for field in torch.split(blocks, list(sizes), 1)]


def _float16(field_N2: Tensor) -> Tensor:
    return field_N2.view(torch.float16).float()


def _unpack(field_NB: Tensor, num_bits: int, run: int) -> Tensor:
    """Return codes that share bytes, uint8 [N, values].

    The lowest bits of `run` bytes come first, then the next ones of the same bytes, and so on.
    """
    shifts = torch.arange(0, 8, num_bits, dtype=torch.uint8)[:, None]
    runs = field_NB.view(len(field_NB), -1, 1, run) >> shifts
    return (runs & ((1 << num_bits) - 1)).flatten(1)


def _five_bits(codes: Tensor, run: int, fifth: Tensor, fifth_run: int) -> Tensor:
    """Return codes of which the fifth bit stands apart."""
    return _unpack(codes, 4, run) | (_unpack(fifth, 1, fifth_run) << 4)


def _six_bits(field_N12: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scales and the minimums of a K-type's eight groups.

    The first four of each lie in the lower bits of four bytes; of the others, the lower four bits
    share the last four bytes, and the upper two are the upper bits of the first ones.
    """
    scales, minimums, rest = _split(field_N12, 4, 4, 4)
    return (
        torch.cat([scales & 63, (rest & 15) | (scales >> 6 << 4)], 1),
        torch.cat([minimums & 63, (rest >> 4) | (minimums >> 6 << 4)], 1),
    )


def _looked_up(values: tuple[int, ...], codes: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.int8)[codes.int()]
