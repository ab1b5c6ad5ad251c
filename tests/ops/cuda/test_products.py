"""Products with plain and packed weights, and rows of packed embeddings, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.ops import PackedWeight, RowRanges, reference
from inferno.ops.cuda import packed_weights, products
from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.packed_embedding import embedding
from inferno.ops.cuda.packed_weights import SLOTS, CodedWeight
from inferno.ops.packed import pack_mxfp4
from inferno.quantization import FLOAT16, INT4, INT8, MXFP4, RowRange, WeightFormat

pytestmark = pytest.mark.gpu
FORMATS = [None, *SLOTS]


def random_weight(
    format: WeightFormat | None, num_outputs: int, num_inputs: int, device: torch.device
) -> Tensor | PackedWeight:
    values_OI = torch.randn(num_outputs, num_inputs) / num_inputs**0.5
    if format is None:
        plain_OI: Tensor = values_OI.half().to(device)
        return plain_OI
    shape = torch.Size((num_outputs, num_inputs))
    with device:
        weight = packed_weights.allocate(shape, torch.float16, [RowRange(num_outputs, format)])
    assert isinstance(weight, CodedWeight)
    weight.fill(0, pack_mxfp4(values_OI) if format is MXFP4 else values_OI)
    return weight


def exact(weight_OI: Tensor | PackedWeight) -> Tensor:
    if isinstance(weight_OI, Tensor):
        return weight_OI.double()
    return weight_OI.unpack(torch.float32).double()


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Compare with what float64 gives: float16 rounds results and, in tiles, scaled weights."""
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize(
    ("num_rows", "num_outputs", "num_inputs"),
    [(1, 16, 64), (3, 40, 160), (9, 17, 96), (16, 33, 1120), (33, 70, 160), (70, 130, 96)],
)
def test_products_are_those_of_float64(
    format: WeightFormat | None,
    num_rows: int,
    num_outputs: int,
    num_inputs: int,
    device: torch.device,
) -> None:
    torch.manual_seed(num_rows)
    weight_OI = random_weight(format, num_outputs, num_inputs, device)
    x_TI = torch.randn(num_rows, num_inputs, dtype=torch.float16, device=device)
    bias_O = torch.randn(num_outputs, dtype=torch.float16, device=device)
    expected_TO = x_TI.double() @ exact(weight_OI).T
    assert_close(products.linear(x_TI, weight_OI), expected_TO)
    assert_close(products.linear(x_TI, weight_OI, bias_O), expected_TO + bias_O)


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize(("num_rows", "num_outputs"), [(2, 24), (12, 36), (40, 72), (70, 72)])
def test_gated_products_are_those_of_float64(
    format: WeightFormat | None, num_rows: int, num_outputs: int, device: torch.device
) -> None:
    torch.manual_seed(num_rows)
    weight_OI = random_weight(format, num_outputs, 160, device)
    x_TI = torch.randn(num_rows, 160, dtype=torch.float16, device=device)
    bias_O = torch.randn(num_outputs, dtype=torch.float16, device=device)
    gate_TF, up_TF = (x_TI.double() @ exact(weight_OI).T + bias_O).chunk(2, dim=-1)
    found_TF = products.gated_linear(x_TI, weight_OI, bias_O)
    torch.testing.assert_close(found_TF.double(), F.silu(gate_TF) * up_TF, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("format", SLOTS, ids=str)
def test_gated_products_of_chips_without_warpgroups(
    format: WeightFormat, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tiles have more outputs; the interpreter stands for a chip with warpgroups."""
    monkeypatch.setattr(products, "chip_of", lambda device: CHIPS[0])
    weight_OI = random_weight(format, 280, 160, device)
    x_TI = torch.randn(40, 160, dtype=torch.float16, device=device)
    gate_TF, up_TF = (x_TI.double() @ exact(weight_OI).T).chunk(2, dim=-1)
    found_TF = products.gated_linear(x_TI, weight_OI)
    torch.testing.assert_close(found_TF.double(), F.silu(gate_TF) * up_TF, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("num_rows", [2, 20])
def test_logits_are_not_rounded_to_16_bits(
    format: WeightFormat | None, num_rows: int, device: torch.device
) -> None:
    if format is None and num_rows > products.SPLIT_ROWS and device.type != "cuda":
        pytest.skip("cuBLAS makes it, on a GPU")
    weight_OI = random_weight(format, 32, 128, device)
    x_TI = torch.randn(num_rows, 128, dtype=torch.float16, device=device)
    out_TO = torch.full((num_rows, 32), torch.nan, device=device)
    assert products.linear(x_TI, weight_OI, out=out_TO) is out_TO
    expected_TO = x_TI.double() @ exact(weight_OI).T
    bound = 1e-5 if num_rows <= products.SPLIT_ROWS else 2e-3
    torch.testing.assert_close(out_TO.double(), expected_TO, rtol=bound, atol=bound)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_rows_may_lie_apart_and_what_lies_between_is_not_read(
    format: WeightFormat | None, device: torch.device
) -> None:
    weight_OI = random_weight(format, 20, 96, device)
    wide_TW = torch.full((5, 300), torch.nan, dtype=torch.float16, device=device)
    x_TI = wide_TW[:, 100:196]
    x_TI.copy_(torch.randn(5, 96))
    out_TW = torch.zeros(5, 50, dtype=torch.float16, device=device)
    products.linear(x_TI, weight_OI, out=out_TW[:, 7:27])
    assert_close(out_TW[:, 7:27], x_TI.double() @ exact(weight_OI).T)
    assert not out_TW[:, :7].any()
    assert not out_TW[:, 27:].any()


def test_no_rows_give_no_rows(device: torch.device) -> None:
    x_TI = torch.empty(0, 64, dtype=torch.float16, device=device)
    for format in FORMATS:
        weight_OI = random_weight(format, 32, 64, device)
        assert products.linear(x_TI, weight_OI).shape == (0, 32)
        assert products.gated_linear(x_TI, weight_OI).shape == (0, 16)


def test_ranges_of_rows_are_multiplied_one_by_one(device: torch.device) -> None:
    parts = tuple(random_weight(one, 16, 64, device) for one in (INT8, MXFP4, INT4))
    with device:
        plain = packed_weights.allocate(
            torch.Size((32, 64)), torch.float16, [RowRange(16, FLOAT16), RowRange(16, INT8)]
        )
    assert isinstance(plain, RowRanges)
    plain.fill(0, torch.randn(32, 64).half().to(device))
    coded = [part for part in parts if isinstance(part, CodedWeight)]
    weight_OI = RowRanges((*coded, *plain.parts))
    bias_O = torch.randn(80, dtype=torch.float16, device=device)
    x_TI = torch.randn(4, 64, dtype=torch.float16, device=device)
    expected_TO = x_TI.double() @ exact(weight_OI).T + bias_O
    torch.testing.assert_close(
        products.linear(x_TI, weight_OI, bias_O).double(), expected_TO, rtol=2e-3, atol=1e-2
    )
    gate_TF, up_TF = expected_TO.chunk(2, dim=-1)
    found_TF = products.gated_linear(x_TI, weight_OI, bias_O)
    torch.testing.assert_close(found_TF.double(), F.silu(gate_TF) * up_TF, rtol=1e-2, atol=2e-2)


def test_float32_is_left_to_the_reference(device: torch.device) -> None:
    weight_OI = random_weight(INT8, 32, 64, device)
    x_TI = torch.randn(3, 64, device=device)
    assert torch.equal(products.linear(x_TI, weight_OI), reference.linear(x_TI, weight_OI))


@pytest.mark.parametrize("format", SLOTS, ids=str)
@pytest.mark.parametrize("is_spoiled_row", [False, True])
def test_what_is_not_finite_spoils_its_own_row_or_output_alone(
    format: WeightFormat, is_spoiled_row: bool, device: torch.device
) -> None:
    weight_OI = random_weight(format, 32, 96, device)
    x_TI = torch.randn(5, 96, dtype=torch.float16, device=device)
    expected_TO = products.linear(x_TI, weight_OI)
    if is_spoiled_row:
        x_TI[3, 95] = torch.nan
        expected_TO[3] = torch.nan
    else:
        assert isinstance(weight_OI, CodedWeight)
        stored = torch.full((16, 96), torch.nan)
        weight_OI.fill(16, pack_mxfp4(stored) if format is MXFP4 else stored)
        expected_TO[:, 16:] = torch.nan
    found_TO = products.linear(x_TI, weight_OI)
    torch.testing.assert_close(found_TO, expected_TO, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_row_has_the_same_bits_whatever_comes_with_it(
    format: WeightFormat | None, device: torch.device
) -> None:
    """Inputs of very different sizes, so that another order of sums would give other bits.

    Those that a tensor core takes at once are whole numbers of one size: their sum is exact, since
    the interpreter has an order of its own there.
    """
    torch.manual_seed(1)
    num_rows, num_inputs = products.SPLIT_ROWS, 1216
    weight_OI = random_weight(format, 32, num_inputs, device)
    if isinstance(weight_OI, Tensor):
        weight_OI = torch.randint(-64, 65, (32, num_inputs), device=device).half() / 64
    sizes_I = torch.exp2(torch.randint(-8, 8, (num_inputs // 64,)).float()).repeat_interleave(64)
    x_TI = (torch.randint(-4, 5, (num_rows, num_inputs)) * sizes_I).half().to(device)
    out_TO = torch.empty(len(x_TI), 32, device=device)
    together = products.linear(x_TI, weight_OI, out=out_TO)
    for start, stop in [(0, 1), (15, 16), (4, 12), (3, 14)]:
        alone = torch.empty(stop - start, 32, device=device)
        products.linear(x_TI[start:stop], weight_OI, out=alone)
        assert torch.equal(alone, together[start:stop])


@pytest.mark.parametrize("is_gated", [False, True])
def test_which_inputs_a_warp_takes_does_not_depend_on_the_rows(is_gated: bool) -> None:
    """SPLITS and the chunks give the order of sums; the rest of a tile only groups rows."""
    for chip in CHIPS:
        for format in FORMATS:
            orders = set()
            for num_rows in range(1, products.SPLIT_ROWS + 1):
                split = products._choose_split(chip, format, num_rows, is_gated=is_gated)
                constants = products._split_constants(format, split)
                orders.add(tuple(constants[name] for name in ("SPLITS", "SLOTS", "BLOCK_O")))
                assert split.block_rows >= min(num_rows, products.SPLIT_ROWS)
            assert len(orders) == 1


@pytest.mark.parametrize("format", SLOTS, ids=str)
@pytest.mark.parametrize("width", [96, 1184])
def test_rows_of_an_embedding_are_unpacked(
    format: WeightFormat, width: int, device: torch.device
) -> None:
    weight_VE = random_weight(format, 48, width, device)
    ids_T = torch.tensor([5, 0, 47, 5], device=device)
    found_TE = embedding(ids_T, weight_VE)
    assert torch.equal(found_TE, reference.embedding(ids_T, weight_VE))
    assert embedding(ids_T[:0], weight_VE).shape == (0, width)
    unknown_TE = embedding(torch.tensor([48, -1], device=device), weight_VE)
    assert not unknown_TE.any()
