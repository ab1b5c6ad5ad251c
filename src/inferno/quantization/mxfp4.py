"""MXFP4: the microscaling format of OCP MX v1.0 with elements of four bits.

A row of I values is cut into blocks of 32, and value = element * scale.

    element  E2M1, four bits: 3 sign; 2-1 exponent, bias 1; 0 mantissa. By the lower three bits
             0 0.5 1 1.5 2 3 4 6; no infinity, no NaN.
    byte     j of a block's 16 holds element 2j in bits 0-3, element 2j + 1 in bits 4-7.
    scale    E8M0, one byte a block: 2^(byte - 127); byte 255 makes the whole block NaN.
"""

from __future__ import annotations

from inferno.quantization.format import InputRounding, ScaleType, StoredPart, WeightFormat

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

MXFP4 = WeightFormat(
    name="mxfp4",
    code_bits=4,
    panel_inputs=4,
    packing=4,
    elements=(*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES)),
    group=32,
    scale=ScaleType.E8M0,
    inputs=InputRounding.TO_INT8,
    parts=(StoredPart("_blocks", 16), StoredPart("_scales", 1)),
)
