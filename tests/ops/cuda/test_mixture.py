"""The products of a mixture's experts in Triton, against formulas in float64 and the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno import ops
from inferno.config.mixture import Activation, ClampedSwiGLU, MixtureConfig, PlainSwiGLU
from inferno.layers.moe import MixtureOfExperts
from inferno.ops import NotCapturable, StoredRows, cuda, matrices, reference
from inferno.ops.cuda import chips, mixture, products
from inferno.ops.cuda.chips import CHIPS, Chip
from inferno.ops.cuda.dequantize import bfloat16_bits
from inferno.ops.cuda.packed_weights import SLOTS, CodedExperts, CodedWeight, allocate
from inferno.ops.cuda.routing import SORTED_BLOCK
from inferno.quantization import FP8, INT4, INT8, MXFP4, RowRange, WeightFormat
from tests.mxfp4 import random_bytes

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16]
if torch.cuda.is_available():
    DTYPES.append(torch.bfloat16)  # interpreted products of it are wrong
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
NUM_EXPERTS, SIZE, INNER = 5, 52, 20  # no multiples of a tile, nor of what is loaded at once


def random(*shape: int, seed: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to(device, dtype)


def strided(values: Tensor) -> Tensor:
    """Return the same rows with others' NaN between them, as of a fused product's part."""
    wide = torch.full((len(values), values.shape[1] + 12), torch.nan, device=values.device)
    wide = wide.to(values.dtype)
    wide[:, : values.shape[1]] = values
    return wide[:, : values.shape[1]]


# What they compute


@dataclass(frozen=True)
class Weights:
    """The arguments of ops.experts."""

    gate_up: Tensor | CodedExperts | StoredRows
    down: Tensor | CodedExperts | StoredRows
    gate_up_bias: Tensor | None
    down_bias: Tensor | None

    def apply(
        self, x: Tensor, experts: Tensor, weights: Tensor, activation: Activation, **more: Tensor
    ) -> Tensor:
        return cuda.experts(
            *(x, experts, weights, self.gate_up, self.down),
            activation=activation,
            gate_up_bias_XF=self.gate_up_bias,
            down_bias_XE=self.down_bias,
            **more,
        )


def values_of(weight: Tensor | CodedExperts | StoredRows, dtype: torch.dtype) -> Tensor:
    """Return the values [X, O, I] in float64, as rounded to the type of activations."""
    if isinstance(weight, Tensor):
        return weight.double()
    return torch.stack([one.unpack(dtype).double() for one in matrices(weight)])


def packed(format: WeightFormat, *shape: int, device: torch.device, dtype: torch.dtype) -> Any:
    """Return experts in random codes with scales of all sizes that bfloat16 may need."""
    ranges = (RowRange(shape[1], format),)
    with device:
        made = allocate(torch.Size(shape), dtype, ranges)
    assert isinstance(made, CodedExperts)
    for index in range(shape[0]):
        if format is MXFP4:
            parts = format.stored_shapes(shape[1:])
            codes = random_bytes(*parts[0], seed=index)
            scales = random_bytes(*parts[1], seed=index, low=121, high=125)
            made[index].fill(0, StoredRows(format, (codes, scales)))
        else:
            made[index].fill(0, random(*shape[1:], seed=index, device=device, dtype=dtype) / 4)
    return made


def make_weights(
    device: torch.device,
    dtype: torch.dtype,
    format: WeightFormat | None = None,
    *,
    has_bias: bool = True,
    num_experts: int = NUM_EXPERTS,
    size: int = SIZE,
    inner: int = INNER,
) -> Weights:
    shapes = (num_experts, 2 * inner, size), (num_experts, size, inner)
    if format is None:
        gate_up, down = (
            random(*shape, seed=seed, device=device, dtype=dtype) / 4
            for seed, shape in enumerate(shapes)
        )
    else:
        gate_up, down = (packed(format, *shape, device=device, dtype=dtype) for shape in shapes)
    biases = [
        random(*shape[:2], seed=seed + 2, device=device, dtype=dtype) if has_bias else None
        for seed, shape in enumerate(shapes)
    ]
    return Weights(gate_up, down, *biases)


def make_tokens(
    num_tokens: int,
    num_chosen: int,
    device: torch.device,
    dtype: torch.dtype,
    size: int = SIZE,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return activations, and choices among all experts but the second."""
    x = random(num_tokens, size, seed=7, device=device, dtype=dtype)
    logits = random(num_tokens, NUM_EXPERTS, seed=8, device=device, dtype=torch.float32)
    logits[:, 1] = -torch.inf
    return strided(x), *reference.route(logits, num_chosen, renormalize=True)


def expected_mixture(
    x: Tensor, experts: Tensor, weights: Tensor, given: Weights, activation: Activation
) -> Tensor:
    """Compute in float64, from the definition: each token, each of its experts."""
    gate_ups, downs = values_of(given.gate_up, x.dtype), values_of(given.down, x.dtype)
    outputs = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for token, chosen in enumerate(experts.tolist()):
        for rank, expert in enumerate(chosen):
            gate_up = gate_ups[expert] @ x[token].double()
            if given.gate_up_bias is not None:
                gate_up += given.gate_up_bias[expert].double()
            gate, up = gate_up.chunk(2)
            if isinstance(activation, ClampedSwiGLU):
                gate = gate.clamp(max=activation.limit)
                up = up.clamp(-activation.limit, activation.limit)
                hidden = (up + 1) * gate / (1 + torch.exp(-activation.alpha * gate))
            else:
                hidden = up * gate / (1 + torch.exp(-gate))
            output = downs[expert] @ hidden
            if given.down_bias is not None:
                output += given.down_bias[expert].double()
            outputs[token] += weights[token, rank].double() * output
    return outputs


def assert_close(found: Tensor, expected: Tensor) -> None:
    bound = TOLERANCE[found.dtype] * expected.abs().max().clamp(min=1)
    assert (found.double() - expected).abs().max() <= bound


@pytest.mark.parametrize(
    ("activation", "has_bias"), [(PlainSwiGLU(), False), (ClampedSwiGLU(limit=1.5), True)]
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "num_chosen"), [(1, 4), (6, 2), (22, 3)])
def test_each_token_gets_the_weighted_sum_of_its_experts(
    num_tokens: int,
    num_chosen: int,
    dtype: torch.dtype,
    has_bias: bool,
    activation: Activation,
    device: torch.device,
) -> None:
    given = make_weights(device, dtype, has_bias=has_bias)
    tokens = make_tokens(num_tokens, num_chosen, device, dtype)
    found = given.apply(*tokens, activation)
    assert (found.dtype, found.shape) == (dtype, tokens[0].shape)
    assert_close(found, expected_mixture(*tokens, given, activation))


@pytest.mark.parametrize(
    ("format", "dtype"),
    [(MXFP4, torch.float32), *product((MXFP4, INT8, INT4, FP8), DTYPES[1:])],
    ids=str,
)
@pytest.mark.parametrize(("num_tokens", "size", "inner"), [(1, 320, 32), (22, 64, 32)])
def test_packed_experts_are_unpacked_on_the_way(
    format: WeightFormat,
    dtype: torch.dtype,
    num_tokens: int,
    size: int,
    inner: int,
    device: torch.device,
) -> None:
    given = make_weights(device, dtype, format, size=size, inner=inner)
    tokens = make_tokens(num_tokens, 3, device, dtype, size=size)
    found = given.apply(*tokens, ClampedSwiGLU())
    assert_close(found, expected_mixture(*tokens, given, ClampedSwiGLU()))


@pytest.mark.parametrize("rows", [64, 128])
def test_tiles_of_many_rows_compute_the_same(
    rows: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = torch.float16
    given, tokens = make_weights(device, dtype), make_tokens(33, 2, device, dtype)
    usual = given.apply(*tokens, PlainSwiGLU())
    monkeypatch.setattr(mixture, "_choose_rows", lambda *_: rows)
    found = given.apply(*tokens, PlainSwiGLU())
    assert_close(found, usual.double())


@pytest.mark.parametrize("num_experts", [160, 300])
def test_more_experts_than_a_program_looks_through_at_once(
    num_experts: int, device: torch.device
) -> None:
    dtype = torch.float16
    assert num_experts > SORTED_BLOCK
    given = make_weights(device, dtype, num_experts=num_experts, size=36, inner=8)
    x, _, weights = make_tokens(40, 3, device, dtype, size=36)
    # At the ends of the blocks that are looked through; all other experts have no rows.
    used = torch.tensor([0, 5, 127, 128, 129, num_experts - 1], device=device)
    place = torch.arange(120, device=device).view(40, 3)
    experts = used[place * place // 7 % 6]
    assert {*used.tolist()} == {*experts.flatten().tolist()}
    found = given.apply(x, experts, weights, PlainSwiGLU())
    expected = expected_mixture(x, experts, weights, given, PlainSwiGLU())
    assert_close(found, expected)


@pytest.mark.parametrize("num_tokens", [20, 66])
def test_all_tokens_may_choose_one_expert(num_tokens: int, device: torch.device) -> None:
    dtype = torch.float32
    given, (x, _, weights) = (
        make_weights(device, dtype),
        make_tokens(num_tokens, 1, device, dtype),
    )
    experts = torch.full((num_tokens, 1), 3, device=device)
    found = given.apply(x, experts, weights, PlainSwiGLU())
    assert_close(found, expected_mixture(x, experts, weights, given, PlainSwiGLU()))


def test_more_rows_than_a_grid_has_are_computed_some_at_a_time(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, tokens = make_weights(device, torch.float32), make_tokens(96, 2, device, torch.float32)
    num_slots = []

    def grid(slots: int, num_outputs: int, tile: Any) -> tuple[int, int, int]:
        num_slots.append(slots)
        return own_grid(slots, num_outputs, tile)

    own_grid = mixture._grid
    monkeypatch.setattr(mixture, "_grid", grid)
    usual = given.apply(*tokens, PlainSwiGLU())
    monkeypatch.setattr(mixture, "_MOST_SLOTS", given.down.shape[0] + 6)
    assert torch.equal(given.apply(*tokens, PlainSwiGLU()), usual)
    assert max(num_slots[2:]) <= mixture._MOST_SLOTS < min(num_slots[:2])
    assert len(num_slots) == 2 * (1 + 2)


def test_no_tokens_have_no_outputs(device: torch.device) -> None:
    given = make_weights(device, torch.float32)
    found = given.apply(*make_tokens(0, 2, device, torch.float32), PlainSwiGLU())
    assert found.shape == (0, SIZE)


def test_the_result_is_written_where_asked(device: torch.device) -> None:
    given, tokens = make_weights(device, torch.float16), make_tokens(3, 2, device, torch.float16)
    wide = torch.full((3, SIZE + 5), 7.0, dtype=torch.float16, device=device)
    out = wide[:, :SIZE]
    assert given.apply(*tokens, PlainSwiGLU(), out=out) is out
    assert torch.equal(out, given.apply(*tokens, PlainSwiGLU()))
    assert torch.all(wide[:, SIZE:] == 7)


def test_what_kernels_do_not_take_goes_to_the_reference(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = (NUM_EXPERTS, 64, 64), (NUM_EXPERTS, 64, 32)
    gate_up, down = (
        StoredRows(
            MXFP4,
            tuple(random_bytes(*part, seed=1, low=121, high=125).to(device) for part in parts),
        )
        for parts in map(MXFP4.stored_shapes, shapes)
    )
    given = Weights(gate_up, down, None, None)
    tokens = make_tokens(2, 2, device, torch.float32, size=64)
    found = given.apply(*tokens, PlainSwiGLU())
    assert_close(found, expected_mixture(*tokens, given, PlainSwiGLU()))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(NotCapturable, match="counted by the host"):
        given.apply(*tokens, PlainSwiGLU())


# What they don't touch


def poison(weight: Tensor | CodedExperts | StoredRows, expert: int) -> None:
    if isinstance(weight, Tensor):
        weight[expert] = torch.nan
    else:
        assert isinstance(weight, CodedExperts)
        weight.scales[expert] = -1  # all bits set: NaN in E8M0


@pytest.mark.parametrize(("format", "num_tokens"), [(None, 2), (None, 33), (MXFP4, 2)], ids=str)
def test_an_expert_that_nobody_chose_is_not_read(
    format: WeightFormat | None, num_tokens: int, device: torch.device
) -> None:
    given = make_weights(device, torch.float16, format, size=64, inner=32)
    tokens = make_tokens(num_tokens, 2, device, torch.float16, size=64)
    clean = given.apply(*tokens, ClampedSwiGLU())
    for weight in (given.gate_up, given.down):
        poison(weight, 1)
    for bias in (given.gate_up_bias, given.down_bias):
        assert bias is not None
        bias[1] = torch.nan
    assert torch.equal(given.apply(*tokens, ClampedSwiGLU()), clean)
    poison(given.down, 2)
    is_nan = given.apply(*tokens, ClampedSwiGLU()).isnan()
    assert torch.equal(is_nan.all(-1), (tokens[1] == 2).any(-1))
    assert torch.equal(is_nan.any(-1), (tokens[1] == 2).any(-1))


@pytest.mark.parametrize("activation", [PlainSwiGLU(), ClampedSwiGLU()])
@pytest.mark.parametrize("num_tokens", [9, 22])
def test_a_token_that_is_no_number_harms_no_other(
    num_tokens: int, activation: Activation, device: torch.device
) -> None:
    """A captured graph's padding may hold anything, and chooses the experts of lowest index."""
    given = make_weights(device, torch.float16)
    x, experts, weights = make_tokens(num_tokens, 3, device, torch.float16)
    clean = given.apply(x, experts, weights, activation)
    others = torch.arange(num_tokens, device=device) != 4
    x[4], weights[4] = torch.nan, torch.nan
    found = given.apply(x, experts, weights, activation)
    assert torch.equal(found[others], clean[others])
    assert found[4].isnan().all(), "it stays NaN, though what is clamped might hide it"


@pytest.mark.parametrize("part", [slice(0, INNER), slice(INNER, None)], ids=["gates", "ups"])
def test_clamping_hides_no_nan(part: slice, device: torch.device) -> None:
    given, tokens = make_weights(device, torch.float32), make_tokens(1, 2, device, torch.float32)
    assert given.gate_up_bias is not None
    given.gate_up_bias[:, part] = torch.nan
    assert given.apply(*tokens, ClampedSwiGLU()).isnan().all()


# In which order things are added up


@pytest.mark.parametrize("num_others", [0, 20])
def test_outputs_are_summed_by_rank_whoever_shares_the_batch(
    num_others: int, device: torch.device
) -> None:
    """1e8 + 1 - 1e8 is 0 in float32, 1e8 - 1e8 + 1 is 1: the sum shows its order."""
    given = make_weights(device, torch.float32, has_bias=False)
    outputs = torch.tensor([1e8, 1.0, -1e8, 0.0, 0.0], device=device).unsqueeze(1)
    given = replace(
        given,
        down=torch.zeros(NUM_EXPERTS, SIZE, INNER, device=device),
        down_bias=outputs.repeat(1, SIZE),
    )
    ranked = torch.tensor([[0, 1, 2], [0, 2, 1], [2, 0, 1], [1, 0, 2]])
    others = torch.randint(5, (num_others, 3), generator=torch.Generator().manual_seed(0))
    experts = torch.cat((ranked, others)).to(device)
    x = torch.zeros(len(experts), SIZE, device=device)
    found = given.apply(x, experts, torch.ones(experts.shape, device=device), PlainSwiGLU())
    assert found[:4, 0].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_what_an_old_triton_makes_empty_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chips, "_IS_OLD_TRITON", True)
    for chip in CHIPS:
        tile = products._choose_tile(chip, 4096, is_gated=False, is_packed=True)
        assert tile.block_rows == (32 if chip.capability == 100 else 128)
        assert products._choose_tile(chip, 4096, is_gated=False, is_packed=False).block_rows == 128
    rows = {
        (chip.capability, format): mixture._choose_rows(chip, torch.bfloat16, 1 << 20, 8, format)
        for chip in CHIPS
        for format in ("", "mxfp4")
    }
    assert rows[100, "mxfp4"] == 16
    assert rows[100, ""] == rows[90, "mxfp4"] == 128
    assert rows[120, "mxfp4"] == rows[89, "mxfp4"] == 64


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("format", ["", *(format.name for format in SLOTS)])
def test_inputs_are_added_in_one_order_whatever_the_batch(
    format: str, dtype: torch.dtype, chip: Chip
) -> None:
    """A step's inputs are in order but for packed ones, where the order is that of the step."""
    tiles = {
        mixture._choose(
            chip, dtype, format, mixture._choose_rows(chip, dtype, num_choices, 32, format)
        )
        for num_choices in (1, 4, 64, 65, 512, 513, 4000, 100_000)
    }
    if dtype is not torch.float32 and (not format or chip.has_tall_packed_tiles):
        assert len(tiles) >= 2, "there is a choice"
    if format:
        assert len({tile.inputs for tile in tiles}) == 1
    # From 64 outputs on all tiles are computed by the same instructions, with fewer by others.
    assert len({tile.outputs >= 64 for tile in tiles}) == 1


@triton.jit
def _write_bits_kernel(words: Any, out: Any, FORMAT: tl.constexpr, SLOT: tl.constexpr) -> None:
    i = tl.arange(0, 16)
    tl.store(out + i, bfloat16_bits(tl.load(words + i), SLOT, FORMAT))


@pytest.mark.parametrize("format", [MXFP4, INT4, FP8], ids=str)
def test_two_codes_become_bfloat16_at_once(format: WeightFormat, device: torch.device) -> None:
    """The kernels' product of bfloat16 can't be interpreted: what it is made of is compared."""
    weight: CodedWeight = packed(format, 1, 1, 128, device=device, dtype=torch.bfloat16)[0]
    if format is FP8:  # whose scales are no bfloat16
        weight.scales.view(torch.float32).fill_(0.5)
    scales = scales_of_groups(weight).repeat_interleave(format.group // 32)
    expected = weight.unpack(torch.bfloat16).view(8, 16)
    for slot in range(8):
        bits = torch.empty(16, dtype=torch.int16, device=device)
        per_word = len(SLOTS[format])
        words = weight.codes[0, slot // per_word * 16 :]
        _write_bits_kernel[(1,)](words, bits, FORMAT=format.name, SLOT=slot % per_word)
        raw = bits.view(torch.bfloat16)
        elements = raw - 136 if format is INT4 else raw * 2.0 ** (120 if format is FP8 else 126)
        assert elements.dtype == torch.bfloat16
        assert {*elements.tolist()} <= {*format.elements}
        assert torch.equal(elements * scales[slot // 2], expected[slot])


def scales_of_groups(weight: CodedWeight) -> Tensor:
    parts = weight.scales.flatten().view(torch.uint8)
    return ops.packed.scales_of(weight.format, parts).to(torch.bfloat16)


# Beside the kernels


def test_a_layer_runs_on_them_and_can_be_observed(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ops.BACKENDS, device.type, cuda)
    config = MixtureConfig(
        layers=(True,),
        num_experts=6,
        num_chosen=2,
        size=16,
        renormalize=True,
        activation=PlainSwiGLU(),
    )
    with device:
        layer = MixtureOfExperts(config, 24)
    for seed, parameter in enumerate(layer.parameters()):
        parameter.data = random(*parameter.shape, seed=seed, device=device, dtype=torch.float32)
    x = random(3, 24, seed=0, device=device, dtype=torch.float32)
    seen: dict[str, dict[str, Any]] = {}

    class Observer:
        def wants(self, op: str) -> bool:
            return op in ("route", "experts")

        def see(self, op: str, arguments: dict[str, Any], result: Any) -> None:
            seen[op] = {**arguments, "result": result}

    with torch.no_grad(), ops.observing(Observer()):
        found = layer(x)
    assert torch.equal(seen["experts"]["result"], found)
    assert torch.equal(seen["experts"]["experts_TA"], seen["route"]["result"][0])
    arguments = {key: value for key, value in seen["experts"].items() if key != "result"}
    torch.testing.assert_close(found, reference.experts(**arguments), atol=1e-4, rtol=1e-4)
