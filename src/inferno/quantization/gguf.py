"""GGUF's formats that kernels read as they are: codes of four to eight bits, and their scales.

A value is scale * code + offset, where the format has one. Source: the block structures of ggml.
Blocks of other types are kept in one of these formats, or in MXFP4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inferno.quantization.format import Block, InputRounding, ScaleType, WeightFormat
from inferno.quantization.mxfp4 import MXFP4


def _format(
    block: Block, packing: int, code_bits: int, scale: ScaleType, *, zero_point: int = 0
) -> WeightFormat:
    return WeightFormat(
        name=block.type.lower(),
        code_bits=code_bits,
        panel_inputs=4,
        packing=packing,
        elements=tuple(float(code - zero_point) for code in range(1 << code_bits)),
        group=32,
        scale=scale,
        inputs=InputRounding.BY_POWERS if code_bits == 4 else InputRounding.TO_INT8,
        block=block,
    )


_Q8_0 = _format(Block("Q8_0", 32, 34), 5, 8, ScaleType.FLOAT16, zero_point=128)
_Q6_K = _format(Block("Q6_K", 256, 210), 12, 6, ScaleType.HALVES, zero_point=32)

GGUF_FORMATS = (
    _Q8_0,
    _format(Block("Q4_0", 32, 18), 6, 4, ScaleType.FLOAT16, zero_point=8),
    _format(Block("Q4_1", 32, 20), 7, 4, ScaleType.FLOAT16_OFFSET),
    _format(Block("Q5_0", 32, 22), 8, 5, ScaleType.FLOAT16, zero_point=16),
    _format(Block("Q5_1", 32, 24), 9, 5, ScaleType.FLOAT16_OFFSET),
    _format(Block("Q4_K", 256, 144), 10, 4, ScaleType.SIX_BIT_OFFSET),
    _format(Block("Q5_K", 256, 176), 11, 5, ScaleType.SIX_BIT_OFFSET),
    _Q6_K,
)


@dataclass(frozen=True, slots=True)
class KeptBlocks:
    """The format in which blocks of one of GGUF's types are kept where kernels run.

    error  what that changes, as a share of the values, both as the root of their mean square; 0:
           nothing. Measured on blocks made of normally distributed weights.
    """

    format: WeightFormat
    error: float = 0.0


# By GGUF's names of the types; others, of which there are none that we decode, become floats. A new
# type is decoded in ops/gguf_blocks.py and, if it stays packed, repacked in ops/gguf_repacking.py.
#
# IQ4_NL   codes stand for integers of 8 bits, beside a float16 scale: Q8_0's as well.
# Q3_K     codes of 3 bits and scales of 6, around zero: some of Q6_K's, beside the same float16.
# IQ4_XS   the codes of IQ4_NL, but a scale is a float16 times an integer, which Q8_0 rounds to
#          float16. bfloat16 would round each value, which errs nine times as much.
# Q2_K     each 16 values have a scale and a minimum, which no format here can hold. Q8_0 errs least
#          of all but floats: Q6_K by 1.8 %, Q5_1 by 3.6 %. bfloat16 errs by 0.17 % and takes
#          twice the memory; the codes of two bits were off by 30 % to begin with.
KEPT_BLOCKS: Mapping[str, KeptBlocks] = {
    **{format.block.type: KeptBlocks(format) for format in GGUF_FORMATS if format.block},
    "MXFP4": KeptBlocks(MXFP4),
    "IQ4_NL": KeptBlocks(_Q8_0),
    "Q3_K": KeptBlocks(_Q6_K),
    "IQ4_XS": KeptBlocks(_Q8_0, error=0.0002),
    "Q2_K": KeptBlocks(_Q8_0, error=0.005),
}

# What rounding to these floats changes, as KeptBlocks.error has it; measured in the same way.
_ROUNDING = {"bfloat16": 0.0017, "float16": 0.0002}


def error_of(type_name: str, kept: WeightFormat) -> float | None:
    """Return what blocks of a type change by in a format; None where they are quantized anew."""
    known = KEPT_BLOCKS.get(type_name)
    if known is not None and known.format == kept:
        return known.error
    return _ROUNDING.get(kept.name, 0.0) if kept.is_float else None


def error_in_words(error: float | None) -> str:
    """Return an error of `error_of` in brackets, to stand behind the format's name."""
    if error is None:
        return ""
    return f" (off by {error:.2%})" if error else " (exactly)"
