"""Rows out of packed weights."""

from __future__ import annotations

import pytest
import torch

from inferno import _native
from inferno.ops.cpu.native import matrix
from inferno.quantization import INT8, WeightFormat
from tests.ops.cpu.guarded import guarded
from tests.ops.cpu.packed_weights import KERNEL_FORMATS, random_weight

pytestmark = pytest.mark.usefixtures("level")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("format", KERNEL_FORMATS, ids=str)
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(1, 1), (16, 16), (35, 95), (50, 129)])
def test_rows_have_their_values(
    format: WeightFormat, dtype: torch.dtype, num_outputs: int, num_inputs: int
) -> None:
    weight, values_OI = random_weight(format, num_outputs, num_inputs)
    ids = torch.tensor([num_outputs - 1, 0, num_outputs // 2, 0])
    out = guarded((4, num_inputs), dtype, stride=num_inputs + 3)
    _native.embedding(ids.data_ptr(), weight.native, matrix(out))
    assert torch.equal(out, values_OI[ids].float().to(dtype))
    gaps = out.as_strided((3, 3), out.stride(), out.storage_offset() + num_inputs)
    assert torch.all(gaps.contiguous().view(torch.uint8) == 255)


def test_of_no_rows_nothing_is_made() -> None:
    weight, _ = random_weight(INT8, 20, 40)
    ids, out = torch.empty(0, dtype=torch.int64), torch.empty(0, 40)
    _native.embedding(ids.data_ptr(), weight.native, matrix(out))
