"""The order in which a row is added up, recorded and by its bits, alone and beside many others.

The interpreter's products round by the shape of a tile. Here they are made to go over the inputs in
their order, as on tensor cores a tile's do; or inputs are labels, and it is noted in which order
they meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inferno.ops import AttentionKind, PackedWeight, RowRanges, cuda, reference
from inferno.ops.cuda import mixture, packed_weights, paged_attention, products
from inferno.ops.cuda.attention_kernels import SHORT_SPLIT
from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.packed_weights import SLOTS, CodedWeight, InvariantFloats
from inferno.ops.packed import pack_mxfp4
from inferno.quantization import FLOAT16, INT8, MXFP4, RowRange, WeightFormat
from tests.ops.cuda.interpreted_products import in_order, intercepted, needs_interpreter
from tests.ops.cuda.test_paged_attention import Requests, Shape, half

pytestmark = pytest.mark.gpu
FORMATS = [FLOAT16, *SLOTS]
NUM_ROWS = (1, 8, 17, 64, 200)


def invariant_weight(
    format: WeightFormat, num_outputs: int, num_inputs: int, device: torch.device
) -> PackedWeight:
    ranges = [RowRange(num_outputs, format)]
    shape = torch.Size((num_outputs, num_inputs))
    with device:
        weight = packed_weights.allocate(shape, torch.float16, ranges, is_invariant=True)
    assert isinstance(weight, CodedWeight | InvariantFloats)
    values_OI = torch.randn(shape) / num_inputs**0.5
    weight.fill(0, pack_mxfp4(values_OI) if format is MXFP4 else values_OI)
    return weight


def product(x_TI: Tensor, weight_OI: PackedWeight, *, is_gated: bool) -> Tensor:
    if is_gated:
        return products.gated_linear(x_TI, weight_OI)
    out_TO = torch.empty(len(x_TI), weight_OI.shape[0], device=x_TI.device)
    return products.linear(x_TI, weight_OI, out=out_TO)


@needs_interpreter
@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("is_gated", [False, True])
def test_inputs_meet_in_one_order_beside_any_number_of_rows(
    format: WeightFormat, is_gated: bool
) -> None:
    """A label for each input of each row is recorded where it meets the tensor cores."""
    num_inputs = 160
    weight_OI = invariant_weight(format, 16, num_inputs, torch.device("cpu"))
    orders = {}
    for num_rows in NUM_ROWS:
        labels_TI = np.arange(1, 1 + num_rows * num_inputs, dtype=np.uint16)
        x_TI = torch.from_numpy(labels_TI.view(np.float16).reshape(num_rows, num_inputs))
        met: dict[int, list[tuple[int, ...]]] = defaultdict(list)

        def note(a: Any, b_KM: Any, d: Any, met: dict[int, list[tuple[int, ...]]] = met) -> Any:
            for column in b_KM.view(np.uint16).T.astype(int):
                inputs = column[column > 0] - 1
                if len(inputs):
                    met[int(inputs[0]) // num_inputs].append(tuple(inputs % num_inputs))
            return d

        with intercepted(note):
            product(x_TI, weight_OI, is_gated=is_gated)
        assert sorted(met) == list(range(num_rows))
        orders[num_rows] = set(map(tuple, met.values()))
        assert len(orders[num_rows]) == 1, "one order for all rows"
    assert orders == dict.fromkeys(NUM_ROWS, orders[1])
    [order] = orders[1]
    once = order[:: 1 + is_gated]  # gates and ups meet the same ones
    assert [place for step in once for place in step] == list(range(num_inputs))


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("is_gated", [False, True])
def test_products_have_the_same_bits_beside_any_number_of_rows(
    format: WeightFormat, is_gated: bool, device: torch.device
) -> None:
    torch.manual_seed(2)
    weight_OI = invariant_weight(format, 40, 352, device)
    x_TI = torch.randn(max(NUM_ROWS), 352, dtype=torch.float16, device=device)
    with in_order():
        together = product(x_TI, weight_OI, is_gated=is_gated)
        for num_rows in NUM_ROWS[:-1]:
            alone = product(x_TI[:num_rows], weight_OI, is_gated=is_gated)
            assert torch.equal(alone, together[:num_rows]), num_rows
        last = product(x_TI[-1:], weight_OI, is_gated=is_gated)
        assert torch.equal(last, together[-1:])
    exact_OI = weight_OI.unpack(torch.float32).double()
    expected_TO = x_TI.double() @ exact_OI.T
    if is_gated:
        gate_TF, up_TF = expected_TO.chunk(2, dim=-1)
        expected_TO = torch.nn.functional.silu(gate_TF) * up_TF
    torch.testing.assert_close(together.double(), expected_TO, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("format", SLOTS, ids=str)
def test_without_it_bits_depend_on_the_number_of_rows(
    format: WeightFormat, device: torch.device
) -> None:
    """What the tests above compare would tell two orders apart."""
    torch.manual_seed(2)
    invariant = invariant_weight(format, 40, 352, device)
    assert isinstance(invariant, CodedWeight)
    weight_OI = replace(invariant, is_invariant=False)
    x_TI = torch.randn(17, 352, dtype=torch.float16, device=device)
    with in_order():
        alone = product(x_TI[:1], weight_OI, is_gated=False)
        assert not torch.equal(alone, product(x_TI, weight_OI, is_gated=False)[:1])


def test_ranges_of_rows_are_all_invariant(device: torch.device) -> None:
    ranges = [RowRange(16, FLOAT16), RowRange(16, INT8)]
    shape = torch.Size((32, 96))
    with device:
        weight_OI = packed_weights.allocate(shape, torch.float16, ranges, is_invariant=True)
    assert isinstance(weight_OI, RowRanges)
    weight_OI.fill(0, torch.randn(32, 96).half().to(device))
    x_TI = torch.randn(40, 96, dtype=torch.float16, device=device)
    with in_order():
        for is_gated in (False, True):
            together = product(x_TI, weight_OI, is_gated=is_gated)
            alone = product(x_TI[3:4], weight_OI, is_gated=is_gated)
            assert torch.equal(alone, together[3:4])


def test_rows_of_an_embedding_are_those_of_a_tensor(device: torch.device) -> None:
    weight_VE = invariant_weight(FLOAT16, 48, 96, device)
    ids_T = torch.tensor([5, 0, 47, 5], device=device)
    expected_TE = reference.embedding(ids_T, weight_VE.unpack(torch.float16))
    assert torch.equal(cuda.embedding(ids_T, weight_VE), expected_TE)


def test_all_tiles_of_a_weight_have_one_kind_of_tensor_core_instruction() -> None:
    """From 64 outputs on it is the chip's newest, as compiling every variant shows."""
    for chip in CHIPS:
        for num_rows in range(1, 300):
            for is_gated in (False, True):
                tile = products._choose_tile(chip, num_rows, is_gated=is_gated, is_packed=True)
                assert tile.block_outputs >= 64
                assert tile.num_warps % 4 == 0
            for dtype in (torch.float16, torch.bfloat16):
                rows = mixture._choose_rows(chip, dtype, 4 * num_rows, 4)
                for format in ("", *map(str, SLOTS)):
                    of_experts = mixture._choose(chip, dtype, format, rows)
                    assert of_experts.outputs >= 64
                    assert of_experts.num_warps % 4 == 0


def attend(requests: Requests, chunks: list[range | None]) -> list[Tensor]:
    batch = replace(requests.batch(chunks), attention=AttentionKind.INVARIANT)
    out_THD = cuda.attention(requests.queries_of(chunks), batch, requests.kv, scale=requests.scale)
    return list(torch.split(out_THD, [len(chunk) for chunk in chunks if chunk is not None]))


SHAPES = {
    "float16": half(num_heads=2, num_kv_heads=1),
    "window": half(num_heads=1, num_kv_heads=1, window=61),
    "int8": Shape(num_heads=1, num_kv_heads=1, dtype=torch.float16, cached=torch.int8),
}


@pytest.mark.parametrize("name", SHAPES)
def test_attention_has_the_same_bits_in_any_chunk(name: str, device: torch.device) -> None:
    requests = Requests(SHAPES[name], [300, 9], device)
    many = range(233, 300)  # of which all but the last fall into two splits, and more than 64 rows
    with in_order():
        [together, other] = attend(requests, [many, range(2, 9)])
        for chunk in (range(299, 300), range(250, 258)):
            [alone] = attend(requests, [chunk, None])
            assert torch.equal(alone, together[chunk.start - 233 : chunk.stop - 233]), chunk
    expected = requests.expected(1, range(2, 9))
    torch.testing.assert_close(other.cpu().double(), expected, rtol=2e-3, atol=2e-3)


def test_splits_are_merged_at_fixed_positions(device: torch.device) -> None:
    """A window that reaches over more splits than are merged at once, from two of them on."""
    short = SHORT_SPLIT.value
    window = 17 * short
    # In float32, so that no result is rounded to bits that two orders share.
    shape = Shape(num_heads=1, num_kv_heads=1, window=window, block_size=64)
    last = window + short + 3
    requests = Requests(shape, [last + 1], device)
    assert paged_attention.num_splits(last) > 17
    with in_order():
        [alone] = attend(requests, [range(last, last + 1)])
        [together] = attend(requests, [range(last - 8, last + 1)])
    assert torch.equal(alone, together[-1:])


@needs_interpreter
def test_keys_meet_a_query_in_one_order_in_any_chunk() -> None:
    """Labels for queries and keys are recorded where they meet, program by program."""
    shape = half(num_heads=1, num_kv_heads=1)
    stop = max(NUM_ROWS) + 90
    requests = Requests(shape, [stop], torch.device("cpu"))
    requests.queries[0][:] = 1 + torch.arange(stop)[:, None, None]
    position = torch.arange(stop)
    block = torch.tensor(requests.tables[0])[position // shape.block_size]
    slot = position % shape.block_size
    requests.kv.keys_NSKD[block, slot] = (1 + position.half())[:, None, None]
    requests.kv.values_NSKD[block, slot] = 0
    found = {}
    for num_rows in NUM_ROWS:
        met: dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]] = defaultdict(list)

        def note(a_MD: Any, b_DN: Any, d: Any, met: Any = met) -> Any:
            keys = b_DN[0].astype(int) - 1
            if keys.max() >= 0:  # it's not the product with values
                for row in {int(label) - 1 for label in a_MD[:, 0] if label}:
                    seen = tuple(key for key in keys if 0 <= key <= row)
                    met[row] += [(programs[-1], seen)] if seen else []
            return d

        with intercepted(note) as programs:
            attend(requests, [range(stop - num_rows, stop)])
        assert sorted(met) == list(range(stop - num_rows, stop))
        found[num_rows] = {row: splits_of(steps) for row, steps in met.items()}
    for rows in found.values():
        for row, splits in rows.items():
            assert splits == found[max(NUM_ROWS)][row]
            walked = [key for split in splits for keys in split for key in keys]
            assert walked == list(range(row + 1))
            starts = [split[0][0] for split in splits]
            assert starts == list(range(0, row + 1, SHORT_SPLIT.value))


def splits_of(steps: list[tuple[Any, Any]]) -> list[list[Any]]:
    """The tiles of keys that each program walked, programs by their first key."""
    by_program = defaultdict(list)
    for program, keys in steps:
        by_program[program].append(keys)
    return sorted(by_program.values(), key=lambda keys: keys[0][0])


Reason = Callable[..., str | None]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"kv_dtype": torch.float8_e4m3fn}, None),
        ({"dtype": torch.float32}, "--dtype bfloat16 or float16"),
        ({"kv_dtype": torch.float16}, "keys and values are in float16"),
        ({"head_size": 24}, "heads have 24 values"),
        ({"block_size": 24}, "--block-size is 24"),
        ({"width": 20480}, "20480 wide"),
    ],
)
def test_what_kernels_do_not_take_is_told(changed: dict[str, Any], reason: str | None) -> None:
    given = {"dtype": torch.bfloat16, "kv_dtype": torch.bfloat16, "head_size": 128}
    told = cuda.why_not_invariant(**{**given, "block_size": 16, "width": 4096, **changed})
    assert told is None if reason is None else reason in str(told)
