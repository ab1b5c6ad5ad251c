"""The facts of weight formats, and what follows from the table of them."""

from __future__ import annotations

import pytest
import torch

from inferno.errors import InvalidRequest
from inferno.ops import float_format
from inferno.option_table import table
from inferno.options import EngineOptions
from inferno.quantization import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORMATS,
    INT4,
    INT8,
    MXFP4,
    QUANTIZATIONS,
    WeightFormat,
    choose,
)


def test_bits_count_the_scale() -> None:
    bits = {"float32": 32, "bfloat16": 16, "int8": 8.5, "int4": 4.5, "fp8": 8.25, "mxfp4": 4.25}
    assert {name: FORMATS[name].bits for name in bits} == bits


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_float_has_the_name_and_bits_of_its_dtype(dtype: torch.dtype) -> None:
    format = float_format(dtype)
    assert format.is_float
    assert format.bits == torch.finfo(dtype).bits


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_a_code_of_few_bits_has_a_value_each(format: WeightFormat) -> None:
    assert format.is_float or len(format.elements) == 2**format.code_bits
    assert format.row_unit % format.panel_inputs == 0
    assert (format.scale is None) == (format.group == 1)


def test_the_option_offers_what_floats_may_become() -> None:
    assert QUANTIZATIONS == ("int8", "int4", "fp8", "fp8-dynamic")
    assert table(EngineOptions)["quantize"].facts.choices == ("none", *QUANTIZATIONS)
    with pytest.raises(InvalidRequest, match="mxfp4"):
        EngineOptions(model=".", quantize="mxfp4")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "quantize", "expected"),
    [
        ("model.layers.0.self_attn.qkv_proj", "int4", "int4"),
        ("model.layers.0.self_attn.qkv_proj", "int8", "int8"),
        ("lm_head", "int4", "int8"),
        ("model.embed_tokens", "int4", "int8"),
        ("model.layers.0.mlp.router", "int4", None),
        ("model.layers.0.mlp.router", "int8", None),
        ("lm_head", None, None),
    ],
)
def test_some_modules_are_spared(name: str, quantize: str | None, expected: str | None) -> None:
    assert choose(name, quantize) == expected


def test_who_holds_all_values_of_another_takes_it_exactly() -> None:
    assert FLOAT32.takes_exactly(BFLOAT16)
    assert FLOAT64.takes_exactly(FLOAT32)
    assert MXFP4.takes_exactly(MXFP4)
    for format, other in (
        *((BFLOAT16, FLOAT16), (FLOAT16, BFLOAT16), (FLOAT16, FLOAT32)),
        *((INT4, MXFP4), (INT8, INT4), (INT8, FLOAT32)),
    ):
        assert not format.takes_exactly(other)
