"""FP8: 8-bit floats, and a float32 scale for each 128 inputs of an output.

value = element * scale. An element is E4M3 as OCP's 8-bit floats have it (arXiv:2209.05433), which
PyTorch calls float8_e4m3fn: bit 7 is the sign, bits 6-3 are the exponent, whose bias is 7, and bits
2-0 the mantissa. The largest is 448; there is no infinity, and all of bits 6-0 set is NaN.

Checkpoints share a scale among 128 outputs as well, among all inputs of an output, or among the
whole weight. A scale of each output's 128 inputs holds all of these exactly, however weights lie
side by side, and takes 3 % of what the elements take. Of floats it is the one that errs least.
"""

from __future__ import annotations

import math
from dataclasses import replace

from inferno.quantization.format import InputRounding, ScaleType, Steps, StoredPart, WeightFormat
from inferno.quantization.int8 import INT8

E4M3 = "F8_E4M3"  # the type of elements in safetensors
# What follows a weight's name in that of its scales: of blocks of 128 by 128; of outputs, or one.
SCALES_OF_BLOCKS, SCALES_OF_OUTPUTS = "_scale_inv", "_scale"


def _element(code: int) -> float:
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    magnitude = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -magnitude if code & 128 else magnitude


FP8 = WeightFormat(
    name="fp8",
    code_bits=8,
    panel_inputs=1,
    packing=None,
    elements=tuple(map(_element, range(256))),
    group=128,
    scale=ScaleType.FLOAT32,
    # They err a fifth of what elements of three bits of mantissa do, and take as much.
    wider={"lm_head": INT8.name, "embed_tokens": INT8.name},
    # Steps grow with values: the last ones of all binades are 14 and 15 of their own.
    steps=Steps(last=14, cut_off=0.5001, least_peak=8),
    parts=(StoredPart("", None), StoredPart("_scales", 4)),
)

# The recipe of FP8 checkpoints of "dynamic" activations: what meets a weight becomes FP8 too. Head
# and embedding stay what they are, as in those checkpoints.
FP8_DYNAMIC = replace(
    FP8,
    name="fp8-dynamic",
    inputs=InputRounding.TO_FP8,
    wider={"lm_head": None, "embed_tokens": None},
)
