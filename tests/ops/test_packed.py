"""MXFP4 against the specification's formula in float64, byte by byte; packing to the nearest."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno.ops.packed import RowRanges, StoredRows, pack_mxfp4, unpack
from inferno.quantization import MXFP4
from tests.mxfp4 import decode, random_bytes


def every_byte() -> StoredRows:
    """Each scale with each byte at each place of a block: [256 scales, 256 bytes, 32]."""
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 256, 1, 1).expand(256, 256, 1, 16)
    scales = torch.arange(256, dtype=torch.uint8).view(256, 1, 1).expand(256, 256, 1)
    return StoredRows(MXFP4, (blocks, scales))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_byte_under_every_scale_has_the_value_of_the_formula(dtype: torch.dtype) -> None:
    weight = every_byte()
    exact = torch.from_numpy(decode(*weight.parts))
    expected = exact.float().to(dtype)  # rounds to float16, and overflows as the type does
    found = unpack(weight, dtype)
    assert found.dtype == dtype
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(found.isnan(), expected.isnan())
    is_finite = expected.isfinite()
    if dtype is not torch.float16:
        assert torch.equal(found[is_finite].double(), exact[is_finite]), "nothing was rounded"


def test_values_lie_in_the_order_of_the_bytes() -> None:
    weight = StoredRows(
        MXFP4, (random_bytes(3, 5, 4, 16, seed=0), random_bytes(3, 5, 4, seed=1, high=200))
    )
    found = unpack(weight, torch.float32)
    assert found.shape == weight.shape == (3, 5, 128)
    np.testing.assert_array_equal(found.double().numpy(), decode(*weight.parts))
    first = weight.parts[0][0, 0, 0, 0].item()  # low nibble first
    low = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[int(first) & 7]
    assert found[0, 0, 0].abs() == low * 2.0 ** (int(weight.parts[1][0, 0, 0]) - 127)


def test_a_part_is_a_view_with_the_same_values() -> None:
    weight = StoredRows(
        MXFP4, (random_bytes(3, 8, 2, 16, seed=2), random_bytes(3, 8, 2, seed=3, high=200))
    )
    part = weight[2][3:6]
    assert part.shape == (3, 64)
    assert part.parts[0].data_ptr() == weight.parts[0][2, 3].data_ptr()
    whole = unpack(weight, torch.float32)
    assert torch.equal(unpack(part, torch.float32), whole[2, 3:6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_unpacked_packs_to_the_same_values(dtype: torch.dtype) -> None:
    weight = StoredRows(
        MXFP4, (random_bytes(40, 3, 16, seed=4), random_bytes(40, 3, seed=5, high=250))
    )
    values = unpack(weight, dtype)
    assert torch.equal(unpack(pack_mxfp4(values), dtype), values)


ELEMENTS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def nearest(value: float, exponent: int) -> float:
    """The nearest element times the scale; a tie goes to the even code, too large a value to 6."""
    sizes = [element * 2.0**exponent for element in ELEMENTS]
    code = min(range(8), key=lambda code: (abs(sizes[code] - abs(value)), code % 2))
    return math.copysign(sizes[code], value)


VALUES = st.one_of(
    st.floats(-8, 8, width=32),
    st.floats(-(2.0**100), 2.0**100, width=32),
    st.sampled_from([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 7.5, 0.0, -0.0, 1e-40, -0.25]),
)


@settings(max_examples=200, deadline=None)
@given(values=st.lists(VALUES, min_size=32, max_size=32))
def test_packing_takes_the_nearest_under_the_scale_of_the_largest(values: list[float]) -> None:
    found = unpack(pack_mxfp4(torch.tensor([values])), torch.float32)[0].double()
    largest = max(map(abs, values))
    exponent = max(math.floor(math.log2(largest)) - 2, -127) if largest else -127
    assert found.tolist() == [nearest(value, exponent) for value in values]


@pytest.mark.parametrize("exponent", [-20, 0, 9])
def test_ties_go_to_the_even_code(exponent: int) -> None:
    """Halfway between neighbours, under a largest value that makes the scale 2^exponent."""
    halfway = {0.25: 0.0, 0.75: 1.0, 1.25: 1.0, 1.75: 2.0, 2.5: 2.0, 3.5: 4.0, 5.0: 4.0, 7.0: 6.0}
    values = [*halfway, *(-value for value in halfway)] * 2
    expected = [*halfway.values(), *(-value for value in halfway.values())] * 2
    scale = 2.0**exponent
    found = unpack(pack_mxfp4(torch.tensor([values]) * scale), torch.float32)[0]
    assert (found / scale).tolist() == expected


def test_a_nan_makes_its_block_nan_and_no_other() -> None:
    values = torch.ones(2, 64)
    values[1, 40] = torch.nan
    found = unpack(pack_mxfp4(values), torch.float32)
    assert found[1, 32:].isnan().all()
    assert found[0].isfinite().all()
    assert found[1, :32].isfinite().all()


def test_random_weights_err_by_a_quarter_of_a_blocks_largest_at_most() -> None:
    values: Tensor = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    error = (unpack(pack_mxfp4(values), torch.float32) - values).abs().view(64, 3, 32)
    largest = values.abs().view(64, 3, 32).amax(-1, keepdim=True)
    assert (error <= largest / 4).all()
    assert error.mean() < values.abs().mean() / 8


def test_steps_of_ranges_lie_on_one_device() -> None:
    """A GPU's, too, beside rows that were never quantized."""
    far, shape = torch.empty(2, 3, device="meta"), torch.Size((2, 3))
    parts: Any = (
        SimpleNamespace(shape=shape, steps=steps) for steps in (lambda: None, lambda: far)
    )
    steps = RowRanges(tuple(parts)).steps()
    assert steps is not None
    assert (steps.device.type, steps.shape) == ("meta", (4, 3))
