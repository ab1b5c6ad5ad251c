"""int4: codes of four bits around zero, and a bfloat16 scale for each 32 inputs."""

from __future__ import annotations

from inferno.quantization.format import InputRounding, ScaleType, Steps, WeightFormat
from inferno.quantization.int8 import INT8

INT4 = WeightFormat(
    name="int4",
    code_bits=4,
    panel_inputs=4,
    packing=3,
    elements=tuple(map(float, range(-8, 8))),
    group=32,
    scale=ScaleType.BFLOAT16,
    inputs=InputRounding.BY_POWERS,
    # Read once for every token, so as costly as a layer, but a logit has no later layer to mend it.
    wider={"lm_head": INT8.name, "embed_tokens": INT8.name},
    steps=Steps(last=7, cut_off=2.5, least_peak=5),
)
