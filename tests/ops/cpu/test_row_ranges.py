"""A weight whose rows are in several formats computes what the weights side by side do, as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from inferno import _native, ops
from inferno.layers.linear import Linear, split_heads
from inferno.ops import PackedWeight, RowRanges, StoredRows, cpu, reference
from inferno.ops.cpu.panels import PanelWeight
from inferno.ops.packed import pack_mxfp4
from inferno.quantization import BFLOAT16, FLOAT16, INT4, INT8, MXFP4, RowRange, WeightFormat
from tests.ops.cpu.guarded import copied, guarded
from tests.ops.cpu.packed_weights import quantized

pytestmark = pytest.mark.usefixtures("level")

CPU = torch.device("cpu")
FLOATS = [torch.float32, torch.bfloat16]
FORMATS = (BFLOAT16, INT8, INT4)
NUM_INPUTS = 70
# Rows of each format: whole panels; ranges that end amid one; queries, keys and values.
SPLITS = [(32, 16, 16), (20, 33, 11), (40, 10, 10)]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def pack(values_OI: Tensor, format: WeightFormat) -> PanelWeight:
    packed = ops.pack(values_OI, format)
    assert isinstance(packed, PanelWeight)
    return packed


def pack_ranges(values_OI: Tensor, counts: Sequence[int]) -> RowRanges:
    ranges = [RowRange(*one) for one in zip(counts, FORMATS, strict=True)]
    packed = ops.allocate(values_OI.shape, values_OI.dtype, CPU, ranges)
    assert isinstance(packed, RowRanges)
    packed.fill(0, values_OI)
    return packed


def side_by_side(
    x_TI: Tensor, values_OI: Tensor, counts: Sequence[int], bias_O: Tensor | None = None
) -> Tensor:
    """The products of weights of one format each."""
    parts = torch.split(values_OI, list(counts))
    biases = [None] * 3 if bias_O is None else torch.split(bias_O, list(counts))
    return torch.cat(
        [
            cpu.linear(x_TI, pack(part_OI, format), bias)
            for part_OI, format, bias in zip(parts, FORMATS, biases, strict=True)
        ],
        dim=1,
    )


@pytest.mark.parametrize("num_rows", [0, 1, 5, 16, 40])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("counts", SPLITS, ids=str)
def test_a_product_has_the_bits_of_its_ranges(
    counts: tuple[int, int, int], dtype: torch.dtype, num_rows: int
) -> None:
    values_OI = random(sum(counts), NUM_INPUTS, dtype=dtype)
    weight, bias_O = pack_ranges(values_OI, counts), random(sum(counts), dtype=dtype)
    x_TI = copied(random(num_rows, NUM_INPUTS, dtype=dtype))
    for bias in (None, bias_O):
        expected_TO = side_by_side(x_TI, values_OI, counts, bias)
        assert torch.equal(cpu.linear(x_TI, weight, bias), expected_TO)
        out_TO = guarded(expected_TO.shape, dtype, stride=sum(counts) + 3)
        cpu.linear(x_TI, weight, bias, out=out_TO)
        assert torch.equal(out_TO, expected_TO)


@pytest.mark.parametrize("num_rows", [1, 16, 33])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("counts", SPLITS, ids=str)
def test_a_gated_product_has_the_bits_of_its_ranges(
    counts: tuple[int, int, int], dtype: torch.dtype, num_rows: int
) -> None:
    values_OI = random(sum(counts), NUM_INPUTS, dtype=dtype)
    layer = Linear(NUM_INPUTS, sum(counts), is_gated=True)
    del layer.weight
    vars(layer)["weight"] = pack_ranges(values_OI, counts)
    x_TI = random(num_rows, NUM_INPUTS, dtype=dtype)
    expected_TF = cpu.silu_mul(side_by_side(x_TI, values_OI, counts))
    assert torch.equal(layer(x_TI), expected_TF)


@pytest.mark.parametrize("num_rows", [1, 9])
def test_queries_keys_and_values_may_each_have_a_format(num_rows: int) -> None:
    counts, head_dim = (4, 1, 1), 10
    rows = [count * head_dim for count in counts]
    values_OI = random(sum(rows), NUM_INPUTS)
    layer = Linear(NUM_INPUTS, sum(rows))
    del layer.weight
    vars(layer)["weight"] = pack_ranges(values_OI, rows)
    x_TI = random(num_rows, NUM_INPUTS)
    heads = split_heads(layer(x_TI), counts, head_dim)
    for found_THD, part_OI, format in zip(
        heads, torch.split(values_OI, rows), FORMATS, strict=True
    ):
        assert torch.equal(found_THD.flatten(1), cpu.linear(x_TI, pack(part_OI, format)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_recorded_step_has_the_same_bits(dtype: torch.dtype) -> None:
    counts = SPLITS[1]
    values_OI = random(sum(counts), NUM_INPUTS, dtype=dtype)
    weight, x_TI = pack_ranges(values_OI, counts), random(3, NUM_INPUTS, dtype=dtype)
    context = ops.kernel_context(1)
    graph_capture = ops.graph_capture(CPU, context)
    assert graph_capture is not None
    with context:
        graph, first_TF = graph_capture.capture(lambda: ops.gated_linear(x_TI, weight))
        assert torch.equal(first_TF, cpu.silu_mul(side_by_side(x_TI, values_OI, counts)))
        x_TI.copy_(random(3, NUM_INPUTS + 1, dtype=dtype)[:, 1:])
        expected_TF = cpu.silu_mul(side_by_side(x_TI, values_OI, counts))
        assert torch.equal(graph.replay(), expected_TF)


def test_the_reference_computes_with_the_same_values() -> None:
    counts = SPLITS[1]
    weight = pack_ranges(random(sum(counts), NUM_INPUTS), counts)
    theirs = reference.deserialize(weight.serialize())
    values_OI = theirs.unpack(torch.float32)
    assert torch.equal(values_OI, weight.unpack(torch.float32))
    x_TI = random(9, NUM_INPUTS)
    torch.testing.assert_close(reference.linear(x_TI, theirs), x_TI @ values_OI.T)
    seen = [x_TI.bfloat16().double(), quantized(x_TI, INT8), quantized(x_TI, INT4)]
    parts = torch.split(values_OI.double(), list(counts))
    expected_TO = torch.cat([x @ part.T for x, part in zip(seen, parts, strict=True)], dim=1)
    torch.testing.assert_close(cpu.linear(x_TI, weight).double(), expected_TO, rtol=1e-5, atol=1e-4)


def test_rows_come_out_of_every_range() -> None:
    counts = SPLITS[1]
    weight = pack_ranges(random(sum(counts), NUM_INPUTS), counts)
    ids = torch.tensor([63, 0, 20, 19, 53])
    assert torch.equal(cpu.embedding(ids, weight), weight.unpack(torch.float32)[ids])


def test_a_weight_is_filled_across_its_ranges() -> None:
    counts = (32, 16, 16)
    values_OI = random(64, NUM_INPUTS)
    whole, parts = pack_ranges(values_OI, counts), pack_ranges(values_OI * 0, counts)
    for first in (16, 48, 0):
        last = {16: 48, 48: 64, 0: 16}[first]
        parts.fill(first, values_OI[first:last])
    assert torch.equal(parts.unpack(torch.float32), whole.unpack(torch.float32))


def test_what_is_serialized_comes_back() -> None:
    counts = SPLITS[1]
    weight = pack_ranges(random(64, NUM_INPUTS), counts)
    again = cpu.deserialize(weight.serialize())
    assert isinstance(again, RowRanges)
    assert (again.shape, again.dtype, again.num_bytes) == (
        *(weight.shape, weight.dtype),
        weight.num_bytes,
    )
    x_TI = random(4, NUM_INPUTS)
    assert torch.equal(cpu.linear(x_TI, again), cpu.linear(x_TI, weight))


def test_steps_are_those_of_what_was_quantized() -> None:
    weight = pack_ranges(random(64, NUM_INPUTS), SPLITS[1])
    steps = weight.steps()
    assert steps is not None
    ends = [0, *accumulate(SPLITS[1])]
    assert steps[: ends[1]].count_nonzero() == 0
    for part, first, last in zip(weight.parts[1:], ends[1:], ends[2:], strict=False):
        expected = part.steps()
        assert expected is not None
        assert torch.equal(steps[first:last], expected)


def test_ranges_that_do_not_fit_together_are_refused() -> None:
    serialized = pack_ranges(random(64, NUM_INPUTS), SPLITS[1]).serialize()
    first, *others = serialized.meta["ranges"]
    for meta, parts in (
        ({"ranges": [first, *others[:1]]}, serialized.parts),
        ({"ranges": []}, ()),
        ({"ranges": [{**first, "dtype": "bfloat16"}, *others]}, serialized.parts),
    ):
        with pytest.raises(ValueError, match="ranges"):
            cpu.deserialize(ops.SerializedWeight(meta, parts))


def test_a_format_that_no_kernel_reads_is_refused() -> None:
    meta = {"format": "float16", "shape": [16, 2], "dtype": "float32"}
    codes, scales = ops.aligned_memory(64), ops.aligned_memory(0)
    with pytest.raises(ValueError, match="no kernel reads float16"):
        cpu.deserialize(ops.SerializedWeight(meta, (codes, scales)))


def test_ranges_that_meet_float16_give_float16() -> None:
    ranges = [RowRange(16, MXFP4), RowRange(32, FLOAT16)]
    weight = ops.allocate(torch.Size((48, 64)), torch.float16, CPU, ranges)
    assert isinstance(weight, RowRanges)
    weight.parts[0].fill(0, stored_rows(16))
    weight.parts[1].fill(0, random(32, 64, dtype=torch.float16))
    x_TI = random(3, 64, dtype=torch.float16)
    found_TO = cpu.linear(x_TI, weight)
    assert found_TO.dtype is torch.float16
    expected_TO = x_TI.float() @ weight.unpack(torch.float32).T
    torch.testing.assert_close(found_TO.float(), expected_TO, rtol=1e-2, atol=1e-2)


# Rows as checkpoints hold them


def stored_rows(num_rows: int) -> StoredRows:
    return pack_mxfp4(random(num_rows, 64))


@pytest.mark.parametrize("num_rows", [16, 35])
def test_a_weight_takes_the_bytes_of_its_own_format_as_they_are(num_rows: int) -> None:
    stored = stored_rows(num_rows)
    ranges = [RowRange(num_rows, MXFP4)]
    whole, parts = (
        ops.allocate(stored.shape, torch.float32, CPU, ranges),
        ops.allocate(stored.shape, torch.float32, CPU, ranges),
    )
    assert isinstance(whole, PanelWeight)
    assert isinstance(parts, PanelWeight)
    whole.fill(0, stored)
    for first in range(0, num_rows, 16):
        parts.fill(first, stored[first : first + 16])
    assert torch.equal(whole.unpack(), stored.unpack(torch.float32))
    assert torch.equal(parts.codes, whole.codes)
    assert torch.equal(parts.scales, whole.scales)


@pytest.mark.parametrize("format", [BFLOAT16, INT8, INT4], ids=str)
def test_other_formats_are_packed_of_its_values(format: WeightFormat) -> None:
    stored = stored_rows(35)
    packed = ops.allocate(stored.shape, torch.float32, CPU, [RowRange(35, format)])
    assert isinstance(packed, PanelWeight)
    packed.fill(0, stored)
    expected = pack(stored.unpack(torch.float32), format)
    assert torch.equal(packed.codes, expected.codes)
    assert torch.equal(packed.scales, expected.scales)


def test_the_reference_keeps_them_beside_floats() -> None:
    stored, values = stored_rows(16), random(8, 64)
    ranges = [RowRange(8, BFLOAT16), RowRange(16, MXFP4)]
    weight = reference.allocate(torch.Size((24, 64)), torch.float32, ranges)
    assert isinstance(weight, RowRanges)
    first, second = weight.parts
    first.fill(0, values)
    second.fill(0, stored)
    both = torch.cat((values, stored.unpack(torch.float32)))
    assert torch.equal(weight.unpack(torch.float32), both)
    x_TI = random(3, 64)
    assert torch.equal(reference.linear(x_TI, weight), x_TI @ both.T)
    assert first.num_bytes == 8 * 64 * 4


def test_of_a_single_range_nothing_is_wrapped() -> None:
    packed: PackedWeight | object = ops.allocate(
        torch.Size((20, 64)), torch.float32, CPU, [RowRange(20, INT4)]
    )
    assert isinstance(packed, PanelWeight)
    assert isinstance(packed.native, _native.Weight)
