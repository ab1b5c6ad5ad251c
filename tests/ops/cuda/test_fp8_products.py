"""Products of FP8 with FP8, against float64: what is quantized, and what comes out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.ops import StoredRows
from inferno.ops.cuda import fp8_products, packed_weights, products
from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.packed_weights import CodedWeight
from inferno.quantization import FP8, FP8_DYNAMIC, RowRange
from tests import fp8

pytestmark = pytest.mark.gpu
SHAPES = [(1, 40, 128), (3, 17, 64), (16, 70, 200), (20, 64, 320), (70, 130, 256)]


def random_weight(num_outputs: int, num_inputs: int, device: torch.device) -> CodedWeight:
    shape = torch.Size((num_outputs, num_inputs))
    with device:
        ranges = [RowRange(num_outputs, FP8_DYNAMIC)]
        weight = packed_weights.allocate(shape, torch.float16, ranges)
    assert isinstance(weight, CodedWeight)
    codes = fp8.random_codes(num_outputs, num_inputs, seed=num_outputs).view(torch.uint8)
    scales = (0.5 + torch.rand(num_outputs, -(-num_inputs // 128), 1)) / 100 / num_inputs**0.5
    weight.fill(0, StoredRows(FP8, (codes, scales.view(torch.uint8))))
    return weight


def quantized(x_TI: Tensor) -> Tensor:
    """Rows as the kernels should see them: each 128 inputs by their largest value over 448."""
    values_TI = F.pad(x_TI.double().cpu(), (0, -x_TI.shape[1] % 128))
    values_TGB = values_TI.unflatten(1, (-1, 128))  # type: ignore[no-untyped-call]
    scales_TG1 = (values_TGB.abs().amax(2, keepdim=True).float() / 448).double()
    table = torch.from_numpy(fp8.elements(torch.arange(127, dtype=torch.uint8)))
    scaled = (values_TGB / scales_TG1.clamp(min=1e-300)).float().double()
    middles = (table[1:] + table[:-1]) / 2
    below = torch.bucketize(scaled.abs(), middles)
    # Of a tie the even code is due: bucketize gives the lower one.
    is_tie = (middles[below.clamp(max=len(middles) - 1)] == scaled.abs()) & (below % 2 == 1)
    elements = table[below + is_tie.long()] * scaled.sign()
    found_TI: Tensor = (elements * scales_TG1).flatten(1)
    return found_TI[:, : x_TI.shape[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_inputs", [64, 128, 200, 1100])
def test_rows_become_the_nearest_elements(
    num_inputs: int, dtype: torch.dtype, device: torch.device
) -> None:
    torch.manual_seed(num_inputs)
    x_TI = torch.randn(5, num_inputs).mul(torch.rand(5, 1).exp()).to(device, dtype)
    x_TI[3] = 0
    codes_TI, scales_GT = fp8_products.quantize_rows(x_TI)
    places = torch.arange(codes_TI.shape[1])
    # Byte p of word j of 16 is input 16 p + j of a chunk.
    inputs = places // 64 * 64 + places % 4 * 16 + places % 64 // 4
    found_TI = torch.from_numpy(fp8.elements(codes_TI.cpu()))[:, inputs.argsort()]
    found_TI *= scales_GT.cpu().double().T.repeat_interleave(128, 1)
    assert not found_TI[:, num_inputs:].any()
    torch.testing.assert_close(found_TI[:, :num_inputs], quantized(x_TI), rtol=1e-6, atol=0)


def test_what_is_no_number_is_told_by_its_scale(device: torch.device) -> None:
    x_TI = torch.randn(4, 256, device=device)
    x_TI[1, 130], x_TI[2, 3], x_TI[3, 255] = torch.nan, torch.inf, -torch.inf
    _, scales_GT = fp8_products.quantize_rows(x_TI)
    assert scales_GT.isnan().cpu().T.tolist() == [
        [False, False],
        [False, True],
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize(("num_rows", "num_outputs", "num_inputs"), SHAPES)
def test_products_are_those_of_quantized_rows(
    num_rows: int, num_outputs: int, num_inputs: int, device: torch.device
) -> None:
    torch.manual_seed(num_rows)
    weight_OI = random_weight(num_outputs, num_inputs, device)
    x_TI = torch.randn(num_rows, num_inputs, device=device).half()
    bias_O = torch.randn(num_outputs, device=device).half()
    expected_TO = quantized(x_TI) @ weight_OI.unpack(torch.float32).cpu().double().T
    wide_TO = torch.empty(num_rows, num_outputs, device=device)
    products.linear(x_TI, weight_OI, out=wide_TO)
    torch.testing.assert_close(wide_TO.cpu().double(), expected_TO, rtol=1e-5, atol=1e-5)
    found_TO = products.linear(x_TI, weight_OI, bias_O)
    assert found_TO.dtype == torch.float16
    torch.testing.assert_close(
        found_TO.cpu().double(), expected_TO + bias_O.cpu(), rtol=2e-3, atol=2e-3
    )
    float32_TO = products.linear(x_TI.float(), weight_OI)
    assert torch.equal(float32_TO, wide_TO)


def test_a_rows_bits_do_not_depend_on_the_others(device: torch.device) -> None:
    weight_OI = random_weight(40, 320, device)
    x_TI = torch.randn(70, 320, device=device).half()
    # The interpreter multiplies by BLAS, which rounds by a tile's width: tiles of one width.
    together = products.linear(x_TI[:9], weight_OI)
    for row in range(9):
        assert torch.equal(products.linear(x_TI[row : row + 1], weight_OI)[0], together[row])
    # On a GPU outputs are the rows of a tensor core's tile, and rows its columns, for any number.
    tiles = [fp8_products._choose(chip, n) for chip in CHIPS for n in (1, 16, 17, 64, 65, 4096)]
    assert {tile.block_outputs % 64 for tile in tiles} == {0}


def test_rows_may_lie_apart_and_gated_products_are_joined(device: torch.device) -> None:
    weight_OI = random_weight(48, 192, device)
    wide_TW = torch.full((5, 300), torch.nan, device=device).half()
    x_TI = wide_TW[:, 100:292]
    x_TI.copy_(torch.randn(5, 192))
    expected_TO = quantized(x_TI) @ weight_OI.unpack(torch.float32).cpu().double().T
    out_TW = torch.zeros(5, 100, device=device).half()
    products.linear(x_TI, weight_OI, out=out_TW[:, 7:55])
    torch.testing.assert_close(out_TW[:, 7:55].cpu().double(), expected_TO, rtol=2e-3, atol=2e-3)
    assert not out_TW[:, :7].any()
    assert not out_TW[:, 55:].any()
    gate_TF, up_TF = expected_TO.chunk(2, dim=-1)
    found_TF = products.gated_linear(x_TI, weight_OI).cpu().double()
    torch.testing.assert_close(found_TF, F.silu(gate_TF) * up_TF, rtol=4e-3, atol=4e-3)


def test_no_rows_give_no_rows(device: torch.device) -> None:
    weight_OI = random_weight(32, 64, device)
    x_TI = torch.empty(0, 64, device=device).half()
    assert products.linear(x_TI, weight_OI).shape == (0, 32)
    assert products.gated_linear(x_TI, weight_OI).shape == (0, 16)
