"""int8: codes of eight bits around zero, and a bfloat16 scale for each 32 inputs."""

from __future__ import annotations

from inferno.quantization.format import InputRounding, ScaleType, Steps, WeightFormat

INT8 = WeightFormat(
    name="int8",
    code_bits=8,
    panel_inputs=4,
    packing=2,
    elements=tuple(map(float, range(-128, 128))),
    group=32,
    scale=ScaleType.BFLOAT16,
    inputs=InputRounding.TO_INT8,
    steps=Steps(last=127, cut_off=0.5001, least_peak=100),
)
