"""The order in which a row is added up, recorded and by its bits, alone and beside many others.

The interpreter's products round by the shape of a tile. Here they are made to go over the inputs in
their order, as on tensor cores a tile's do; or inputs are labels, and it is noted in which order
they meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor

from inferno.config.mixture import ClampedSwiGLU, PlainSwiGLU
from inferno.ops import AttentionKind, PackedWeight, RowRanges, cuda, reference
from inferno.ops.cuda import chips, mixture, packed_weights, paged_attention, products
from inferno.ops.cuda.attention_kernels import SHORT_SPLIT
from inferno.ops.cuda.chips import CHIPS, Chip
from inferno.ops.cuda.packed_weights import SLOTS, CodedExperts, CodedWeight, InvariantFloats
from inferno.ops.packed import pack_mxfp4
from inferno.quantization import FLOAT16, INT8, MXFP4, RowRange, WeightFormat
from tests.ops.cuda.interpreted_products import in_order, intercepted, needs_interpreter
from tests.ops.cuda.test_mixture import assert_close, expected_mixture, make_weights
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


# Mixtures: outputs are the rows of a tile there, and tokens its columns


NUM_EXPERTS, NUM_CHOSEN = 5, 3
# Whether choices are sorted, and the rows of their tiles, with so many tokens.
TILES = {1: (False, 16), 7: (False, 16), 25: (True, 16), 50: (True, 64), 162: (True, 128)}
MOST_TOKENS = max(TILES)
CHAIN = 16  # inputs that a tensor core adds up at once


@pytest.fixture(params=[80, 90], ids="SM{}".format)
def chip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chip]:
    """A chip that launches choose for."""
    found = next(each for each in CHIPS if each.capability == request.param)
    monkeypatch.setattr(chips, "INTERPRETED", found)
    chips.chip_of.cache_clear()
    yield found
    chips.chip_of.cache_clear()


def choices_of(tokens_T: Tensor) -> Tensor:
    """Return the experts of some tokens, the same whoever else is there; many have the third."""
    made = torch.rand(MOST_TOKENS, NUM_EXPERTS, generator=torch.Generator().manual_seed(3))
    made[:, 2] += 0.5
    return made.argsort(dim=1, descending=True)[tokens_T, :NUM_CHOSEN]


def powers_of_two(format: WeightFormat, num_outputs: int, num_inputs: int) -> Any:
    """Return the weights of experts; all values of one are 2 to the power of its index."""
    shape = torch.Size((NUM_EXPERTS, num_outputs, num_inputs))
    values_XOI = (2.0 ** torch.arange(NUM_EXPERTS))[:, None, None].repeat(1, *shape[1:])
    if format is FLOAT16:
        return values_XOI.half()
    made = packed_weights.allocate(shape, torch.float16, [RowRange(num_outputs, format)])
    assert isinstance(made, CodedExperts)
    for index, values_OI in enumerate(values_XOI):
        made[index].fill(0, pack_mxfp4(values_OI) if format is MXFP4 else values_OI)
    return made


def labels_of(tokens_T: Tensor, num_inputs: int) -> Tensor:
    """Return float16 whose bits are a number, from 1 on, for each input of each token."""
    labels_TI = 1 + tokens_T[:, None] * num_inputs + torch.arange(num_inputs)
    assert labels_TI.max() < 1 << 16
    return torch.from_numpy(labels_TI.numpy().astype(np.uint16).view(np.float16))


class Before:
    """A kernel, before each launch of which something is done with its arguments."""

    def __init__(self, kernel: Any, act: Callable[..., None]) -> None:
        self.kernel, self.act = kernel, act

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*arguments: Any, **constants: Any) -> None:
            self.act(*arguments, IS_SORTED=constants["IS_SORTED"], ROWS=constants["ROWS"])
            self.kernel[grid](*arguments, **constants)

        return launch


# For each token and expert, and each program: the chains of inputs that are added up.
Met = dict[tuple[int, int], dict[Any, list[tuple[int, ...]]]]


def meetings(
    gate_up: Any, down: Any, sizes: tuple[int, int], num_tokens: int
) -> tuple[list[Met], set[tuple[bool, int]]]:
    """Return what tokens of labels meet in both products, and of which tiles these were made.

    sizes  inputs of both. The second one's are labels too, in place of the first one's results.

    Only the first tile of outputs is computed, for the others take their inputs by the same lines;
    and nothing is summed by rank.
    """
    tokens_T = torch.arange(MOST_TOKENS - num_tokens, MOST_TOKENS)
    found: list[Met] = []
    tiles = set()

    def begin(*_: Any, IS_SORTED: bool, ROWS: int) -> None:
        found.append(defaultdict(lambda: defaultdict(list)))
        tiles.add((IS_SORTED, ROWS))

    def begin_second(hidden: Tensor, _: Any, order: Tensor, *more: Any, **tile: Any) -> None:
        choices_P = order.long() if tile["IS_SORTED"] else torch.arange(len(hidden))
        hidden.copy_(labels_of(tokens_T[choices_P // NUM_CHOSEN], sizes[1]))
        begin(**tile)

    def note(a_NK: Any, b_KM: Any, d_NM: Any) -> Any:
        num_inputs = sizes[len(found) - 1]
        for column in b_KM.view(np.uint16).T.astype(int):
            for chain in column.reshape(-1, CHAIN):
                if chain.any():
                    expert = round(np.log2(float(a_NK.max())))
                    met = found[-1][(int(chain[0]) - 1) // num_inputs, expert]
                    met[programs[-1]].append(tuple(((chain - 1) % num_inputs).tolist()))
        return d_NM

    with pytest.MonkeyPatch.context() as patch, intercepted(note) as programs:
        patch.setattr(mixture, "_grid", lambda num_slots, *_: (1, num_slots, 1))
        patch.setattr(mixture, "combine_kernel", MagicMock())
        patch.setattr(mixture, "gate_up_kernel", Before(mixture.gate_up_kernel, begin))
        patch.setattr(mixture, "down_kernel", Before(mixture.down_kernel, begin_second))
        cuda.experts(
            *(labels_of(tokens_T, sizes[0]), choices_of(tokens_T), torch.ones(num_tokens, 3)),
            *(gate_up, down),
            activation=PlainSwiGLU(),
        )
    return found, tiles


@needs_interpreter
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_inputs_meet_an_expert_in_one_order_beside_any_number_of_tokens(
    format: WeightFormat, chip: Chip
) -> None:
    sizes = 352, 320  # both more than a step has, of any format
    weights = powers_of_two(format, 2 * sizes[1], sizes[0]), powers_of_two(format, *sizes)
    orders: list[set[tuple[tuple[int, ...], ...]]] = [set(), set()]
    for num_tokens, tile in TILES.items():
        found, tiles = meetings(*weights, sizes, num_tokens)
        assert tiles == {tile}
        tokens_T = torch.arange(MOST_TOKENS - num_tokens, MOST_TOKENS)
        chosen = zip(tokens_T.tolist(), choices_of(tokens_T).tolist(), strict=True)
        choices = {(token, expert) for token, experts in chosen for expert in experts}
        for met, order in zip(found, orders, strict=True):
            assert set(met) == choices
            order |= {tuple(chains) for of in met.values() for chains in of.values()}
            assert len(order) == 1, f"{num_tokens} tokens have another order"
    for [chains], num_inputs in zip(orders, sizes, strict=True):
        assert all(chain == tuple(range(chain[0], chain[0] + CHAIN)) for chain in chains)
        firsts = [chain[0] for chain in chains]
        assert sorted(firsts) == list(range(0, num_inputs, CHAIN)), "each once"
        assert firsts[0] == 0
        assert format is not FLOAT16 or firsts == sorted(firsts)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_mixtures_have_the_same_bits_beside_any_number_of_tokens(
    format: WeightFormat, device: torch.device
) -> None:
    stored = None if format is FLOAT16 else format
    size = 272
    given = make_weights(device, torch.float16, stored, size=size, inner=32)
    tokens_T = torch.arange(MOST_TOKENS)
    experts_TA = choices_of(tokens_T).to(device)
    generator = torch.Generator().manual_seed(5)
    x_TE = torch.randn(MOST_TOKENS, size, generator=generator).half().to(device)
    weights_TA = torch.rand(MOST_TOKENS, NUM_CHOSEN, generator=generator).to(device)
    with in_order():
        together = given.apply(x_TE, experts_TA, weights_TA, ClampedSwiGLU())
        for num_tokens in TILES:
            some = slice(MOST_TOKENS - num_tokens, None)
            apart = x_TE[some], experts_TA[some], weights_TA[some]
            found = given.apply(*apart, ClampedSwiGLU())
            assert torch.equal(found, together[some]), num_tokens
    few = x_TE[:4], experts_TA[:4], weights_TA[:4]
    assert_close(together[:4], expected_mixture(*few, given, ClampedSwiGLU()))


@pytest.mark.parametrize("num_tokens", [1, 40])
def test_experts_are_summed_from_rank_0_on(num_tokens: int, device: torch.device) -> None:
    """Products are biases, so that each rank's is known bit for bit."""
    generator = torch.Generator().manual_seed(6)
    num_chosen, size = 8, 40
    bias_XE = torch.randn(16, size, generator=generator).to(device)
    experts_TA = torch.rand(num_tokens, 16, generator=generator).argsort(1)[:, :num_chosen]
    experts_TA = experts_TA.to(device)
    weights_TA = torch.rand(num_tokens, num_chosen, generator=generator).to(device)
    found = cuda.experts(
        *(torch.ones(num_tokens, size, device=device), experts_TA, weights_TA),
        *(torch.zeros(16, 32, size, device=device), torch.zeros(16, size, 16, device=device)),
        activation=PlainSwiGLU(),
        down_bias_XE=bias_XE,
    )
    expected = torch.zeros(num_tokens, size, device=device)
    for rank in range(num_chosen):
        expected += weights_TA[:, rank, None] * bias_XE[experts_TA[:, rank]]
    assert torch.equal(found, expected)


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
