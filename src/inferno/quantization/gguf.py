"""GGUF's formats that kernels read as they are: codes of four to eight bits, and their scales.

A value is scale * code + offset, where the format has one. Source: the block structures of ggml.
"""

from __future__ import annotations

from inferno.quantization.format import Block, InputRounding, ScaleType, WeightFormat


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
        inputs=InputRounding.TO_INT8,
        block=block,
    )


GGUF_FORMATS = (
    _format(Block("Q8_0", 32, 34), 5, 8, ScaleType.FLOAT16, zero_point=128),
    _format(Block("Q4_0", 32, 18), 6, 4, ScaleType.FLOAT16, zero_point=8),
    _format(Block("Q4_1", 32, 20), 7, 4, ScaleType.FLOAT16_OFFSET),
    _format(Block("Q5_0", 32, 22), 8, 5, ScaleType.FLOAT16, zero_point=16),
    _format(Block("Q5_1", 32, 24), 9, 5, ScaleType.FLOAT16_OFFSET),
    _format(Block("Q4_K", 256, 144), 10, 4, ScaleType.SIX_BIT_OFFSET),
    _format(Block("Q5_K", 256, 176), 11, 5, ScaleType.SIX_BIT_OFFSET),
    _format(Block("Q6_K", 256, 210), 12, 6, ScaleType.HALVES, zero_point=32),
)
