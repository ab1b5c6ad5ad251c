"""Unpack weights inside kernels: a word of codes becomes floats, one slot at a time.

`packed_weights` says where the bits are. A whole number becomes a float without the conversion
unit, which takes a quarter of a multiplier's rate: its bits are put in the mantissa of a float of
which the lowest such bit counts one, and that float is subtracted. An element of MXFP4 has the bits
of a float but for the exponent's upper six: it is a very small float, which a power of two scales.
All of this is exact.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inferno.ops.cuda.packed_weights import CHUNK_WORDS, GROUP, SLOTS
from inferno.quantization import WeightFormat

CHUNK = tl.constexpr(CHUNK_WORDS)
# A sign, two bits of the exponent and one of the mantissa of a float32; and its two runs of them.
_E2M1 = tl.constexpr(-(1 << 31) | 0b111 << 22)
_SIGN = tl.constexpr(-(1 << 31))
_LOWER_BITS = tl.constexpr(0b11 << 22)
_UPPER_BIT = tl.constexpr(1 << 24)
_TWO_126 = tl.constexpr(2.0**126)
# E4M3's bias is 7 where that of float32 and bfloat16 is 127.
_TWO_120 = tl.constexpr(2.0**120)
_FOUR_SIGNS = tl.constexpr(0x80808080 - (1 << 32))
_TWO_8 = tl.constexpr(2.0**8)
# The same in both halves of a word, for two bfloat16 at once.
_TWO_E2M1 = tl.constexpr(-(1 << 31) | 0b111 << 22 | 1 << 15 | 0b111 << 6)
_TWO_SIGNS = tl.constexpr(-(1 << 31) | 1 << 15)
_TWO_LOWER_BITS = tl.constexpr(0b11 << 22 | 0b11 << 6)
_TWO_UPPER_BITS = tl.constexpr(1 << 24 | 1 << 8)
# Of a bfloat16's eight bits the lowest counts one from 128 on.
_TWO_CODES = tl.constexpr(0b1111 << 16 | 0b1111)
_TWO_EXPONENTS = tl.constexpr(127 + 7 << 23 | 127 + 7 << 7)
_INT4_ZERO = tl.constexpr(128.0 + 8.0)
_TWO_HIGH_BYTES = tl.constexpr(0x7F007F00)
_TWO_LOW_BYTES = tl.constexpr(0x007F007F)
_TWO_LOW_SIGNS = tl.constexpr(0x00800080)


def num_slots(format: WeightFormat) -> int:
    """Return how many codes a word holds."""
    return len(SLOTS[format])


def format_constants(format: WeightFormat) -> dict[str, object]:
    """Return the constants that tell kernels a weight's format."""
    assert format.scale is not None, "floats have no codes"
    groups = 4 // int(format.scale.num_bytes) * (format.group // GROUP)
    return {"FORMAT": format.name, "SLOTS": num_slots(format), "GROUPS_PER_WORD": groups}


@triton.jit
def elements(words, SLOT: tl.constexpr, FORMAT: tl.constexpr):
    """Return the unscaled elements, float32, in one slot of each word of codes (int32).

    FORMAT  the name of a weight format: int8, int4, fp8 or mxfp4.
    """
    if FORMAT == "int8":
        found = _whole_numbers(words, 8 * SLOT, 8)
    elif FORMAT == "int4":
        found = _whole_numbers(words, 4 * SLOT, 4)
    elif FORMAT == "fp8":
        found = _e4m3(words, SLOT)
    else:
        tl.static_assert(FORMAT == "mxfp4")
        found = _e2m1(words, SLOT)
    return found


@triton.jit
def _whole_numbers(words, FIRST: tl.constexpr, BITS: tl.constexpr):
    """Return the numbers around zero whose codes begin at bit FIRST."""
    # A mantissa has 23 bits. The codes that lie too high are shifted, all by the same.
    shift: tl.constexpr = 0 if FIRST + BITS <= 23 else 24 - BITS
    place: tl.constexpr = FIRST - shift
    mask: tl.constexpr = ((1 << BITS) - 1) << place
    one: tl.constexpr = 2.0 ** (23 - place)
    exponent: tl.constexpr = (127 + 23 - place) << 23
    raw = (words >> shift) & mask
    return (raw | exponent).to(tl.float32, bitcast=True) - (one + (1 << (BITS - 1)))


@triton.jit
def _e2m1(words, SLOT: tl.constexpr):
    """Return the elements of MXFP4 in a slot."""
    if SLOT < 3:
        bits = (words << (3 * SLOT)) & _E2M1
    elif SLOT < 6:
        bits = (words << (7 + 3 * SLOT)) & _E2M1
    else:
        upper = words << (16 * (SLOT - 6))
        bits = ((upper >> 4) & _LOWER_BITS) | ((upper >> 5) & _UPPER_BIT) | ((upper << 1) & _SIGN)
    return bits.to(tl.float32, bitcast=True) * _TWO_126


@triton.jit
def _e4m3(words, SLOT: tl.constexpr):
    """Return the elements of FP8 in a slot: sign, four bits of the exponent and the mantissa's."""
    upper = words << (24 - 8 * SLOT)
    bits = (upper & _SIGN) | ((upper >> 4) & (0b1111111 << 20))
    return bits.to(tl.float32, bitcast=True) * _TWO_120


@triton.jit
def scale(words, GROUP: tl.constexpr, FORMAT: tl.constexpr):
    """Return the scales, float32, of a group of a chunk, from the word of scales that holds it.

    GROUP   the number of the group in the chunk, of slots 2 GROUP and 2 GROUP + 1. FP8's words hold
            one scale, which all groups of two chunks share.
    """
    if FORMAT == "mxfp4":
        byte = (words >> (8 * GROUP)) & 255
        # The least is below the normal floats, the largest stands for NaN.
        bits = tl.where(byte == 255, 0x7FC00000, tl.maximum(byte << 23, 1 << 22))
    elif FORMAT == "fp8":
        bits = words
    elif GROUP % 2 == 0:
        bits = words << 16
    else:
        bits = words & -65536
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def bfloat16_elements(words, SLOT: tl.constexpr, FORMAT: tl.constexpr):
    """Return the elements of `elements` as bfloat16, at half the cost where two fit into a word.

    Two slots' codes are 16 bits apart, so both become bfloat16 at once. Neighbouring words' halves
    are then put together as the tensor cores take them, and scaled two at a time.
    """
    if FORMAT == "int8":
        found = elements(words, SLOT, FORMAT).to(tl.bfloat16)
    elif FORMAT == "int4":
        found = bfloat16_bits(words, SLOT, FORMAT).to(tl.bfloat16, bitcast=True) - _INT4_ZERO
    elif FORMAT == "fp8":
        found = bfloat16_bits(words, SLOT, FORMAT).to(tl.bfloat16, bitcast=True) * _TWO_120
    else:
        found = bfloat16_bits(words, SLOT, FORMAT).to(tl.bfloat16, bitcast=True) * _TWO_126
    return found


@triton.jit
def bfloat16_bits(words, SLOT: tl.constexpr, FORMAT: tl.constexpr):
    """Return the bits, int16, of the bfloat16 that a code is made into.

    The values are int4's elements plus _INT4_ZERO, MXFP4's over 2^126, and FP8's over 2^120.
    """
    if FORMAT == "int4":
        pair = (words >> (4 * (SLOT % 4))) & _TWO_CODES | _TWO_EXPONENTS
        half = pair >> 16 if SLOT >= 4 else pair
    elif FORMAT == "fp8":
        if SLOT % 2 == 0:
            pair = ((words & _TWO_LOW_SIGNS) << 8) | ((words & _TWO_LOW_BYTES) << 4)
        else:
            pair = (words & _TWO_SIGNS) | ((words & _TWO_HIGH_BYTES) >> 4)
        half = pair >> 16 if SLOT >= 2 else pair
    else:
        tl.static_assert(FORMAT == "mxfp4")
        if SLOT < 6:
            pair = (words << (3 * (SLOT % 3))) & _TWO_E2M1
        else:
            lower = ((words >> 4) & _TWO_LOWER_BITS) | ((words >> 5) & _TWO_UPPER_BITS)
            pair = lower | ((words << 1) & _TWO_SIGNS)
        half = pair >> 16 if SLOT < 3 or SLOT == 6 else pair
    return half.to(tl.int16)


@triton.jit
def cached_elements(words, SLOT: tl.constexpr, FORMAT: tl.constexpr, dtype: tl.constexpr):
    """Return unscaled values of a KV cache in the type that is computed with.

    FORMAT  "int8" or "float8_e4m3", of which words (int32) hold four or (int16) two, in SLOTs from
            the lowest byte on, or lone bytes hold one; "" for floats.

    The bits of float8_e4m3fn, at their places in a wider float, count 2^-8 or 2^-120 of their
    value, for that float's exponent has a larger bias. So no chip has to know the type.
    """
    if FORMAT == "":
        found = words.to(dtype)
    elif FORMAT == "int8":
        found = _whole_numbers(words.to(tl.int32) ^ _FOUR_SIGNS, 8 * SLOT, 8).to(dtype)
    else:
        tl.static_assert(FORMAT == "float8_e4m3")
        if dtype == tl.float32:
            # The byte goes to the top.
            moved = words.to(tl.int32) << (24 - 8 * SLOT)
            bits = (moved & _SIGN) | ((moved & 0x7F000000) >> 4)
            found = bits.to(tl.float32, bitcast=True) * _TWO_120
        else:
            shift: tl.constexpr = 4 if dtype == tl.bfloat16 else 1
            found = float8_bits(words, SLOT, shift).to(dtype, bitcast=True)
            found *= _TWO_120 if dtype == tl.bfloat16 else _TWO_8
    return found


@triton.jit
def float8_bits(words, SLOT: tl.constexpr, SHIFT: tl.constexpr):
    """Return the bits, int16, of a 16-bit float with SHIFT more exponent bits than float8."""
    # Two bytes at once go to the tops of a word's halves.
    moved = words.to(tl.int32) << (8 if SLOT % 2 == 0 else 0)
    pair = (moved & _TWO_SIGNS) | ((moved & 0x7F007F00) >> SHIFT)
    return (pair >> 16 if SLOT >= 2 else pair).to(tl.int16)
