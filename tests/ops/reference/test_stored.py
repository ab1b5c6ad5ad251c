"""The reference reads what is stored: checksums as published, weights as kernels read them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.ops import SerializedWeight, reference

# The first three by xxHash's own sanity tests, the last by the Python package's documentation.
PUBLISHED = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}


def as_tensor(data: bytes) -> Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


@pytest.mark.parametrize("data", PUBLISHED)
def test_checksums_are_xxh64(data: bytes) -> None:
    assert reference.checksum(as_tensor(data)) == PUBLISHED[data]
    assert ops.checksum(as_tensor(data)) == PUBLISHED[data]


def test_memory_begins_where_kernels_can_read_it() -> None:
    for num_bytes in (0, 1, 1000):
        memory = reference.aligned_memory(num_bytes)
        assert memory.data_ptr() % 64 == 0
        assert (memory.shape, memory.dtype) == ((num_bytes,), torch.uint8)


def one_panel(format: str, codes: Tensor, scales: Tensor, num_inputs: int) -> SerializedWeight:
    meta = {"format": format, "shape": [2, num_inputs], "dtype": "bfloat16"}
    return SerializedWeight(
        meta, (codes.view(-1).view(torch.uint8), scales.view(-1).view(torch.uint8))
    )


def test_floats_of_a_panel_lie_input_after_input() -> None:
    codes_IL = torch.arange(48.0).view(3, 16)
    weight = reference.deserialize(one_panel("float32", codes_IL, torch.empty(0), 3))
    assert weight.unpack(torch.float32).tolist() == [[0, 16, 32], [1, 17, 33]]
    assert weight.steps() is None


def test_an_integer_is_its_code_less_the_middle_times_its_groups_scale() -> None:
    codes_SLC = torch.full((8, 16, 4), 128, dtype=torch.uint8)
    codes_SLC[2, 1, 3] = 128 - 5  # output 1, input 4 * 2 + 3
    scales_L = torch.full((16,), -0.5, dtype=torch.bfloat16)
    weight = reference.deserialize(one_panel("int8", codes_SLC, scales_L, 30))
    assert weight.unpack(torch.float32).count_nonzero() == 1
    assert weight.unpack(torch.float32)[1, 11] == 2.5
    steps = weight.steps()
    assert steps is not None
    assert torch.equal(steps, torch.full((2, 30), 0.5))


def test_of_a_byte_the_low_half_comes_first() -> None:
    codes_SLC = torch.full((4, 16, 4), 0x88, dtype=torch.uint8)
    codes_SLC[1, 0, 2] = 0x9F  # output 0: 15 - 8 at input 8 + 2, 9 - 8 at input 8 + 4 + 2
    weight = reference.deserialize(
        one_panel("int4", codes_SLC, torch.ones(16, dtype=torch.bfloat16), 32)
    )
    values = weight.unpack(torch.float32)
    assert values[0, [10, 14]].tolist() == [7, 1]
    assert values.count_nonzero() == 2


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"format": "int3"}, KeyError),
        ({"dtype": "float16"}, ValueError),
        ({"dtype": "float7"}, AttributeError),
        ({"shape": [2, 64]}, ValueError),
        ({"shape": [2]}, ValueError),
        ({"shape": None}, TypeError),
    ],
)
def test_what_describes_no_weight_is_refused(
    changed: dict[str, object], problem: type[Exception]
) -> None:
    codes, scales = torch.zeros(512, dtype=torch.uint8), torch.zeros(16, dtype=torch.bfloat16)
    right = one_panel("int8", codes, scales, 32)
    assert reference.deserialize(right).shape == (2, 32)
    with pytest.raises(problem):
        reference.deserialize(SerializedWeight({**right.meta, **changed}, right.parts))
