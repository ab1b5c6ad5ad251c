"""Define the formats of plain floats, in checkpoints and in computations."""

from __future__ import annotations

from inferno.quantization.format import WeightFormat

FLOAT64 = WeightFormat(name="float64", code_bits=64, panel_inputs=1, packing=None)
FLOAT32 = WeightFormat(name="float32", code_bits=32, panel_inputs=1, packing=0)
FLOAT16 = WeightFormat(name="float16", code_bits=16, panel_inputs=1, packing=None)
# Dot products of bfloat16 take pairs of inputs.
BFLOAT16 = WeightFormat(name="bfloat16", code_bits=16, panel_inputs=2, packing=1)
