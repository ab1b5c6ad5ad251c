"""The kernels compute a weight of several ranges of rows as they do the weights of its ranges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.ops.cpu.native import matrix, vector
from tests.ops.cpu.guarded import aligned

F32, BF16, INT8, INT4, MXFP4 = range(5)  # numbers of packings, by native/contract/packings.h
ALL = (F32, BF16, INT8, INT4, MXFP4)
# Rows of each range: queries, keys and values; every packing, in panels that aren't whole; one.
RANGES = [
    ((INT4, 64), (INT4, 32), (INT8, 32)),
    tuple((packing, 17 + 7 * nth) for nth, packing in enumerate((*ALL, *reversed(ALL)))),
    ((BF16, 48),),
]
INPUTS = 96


class Packed:
    """A weight of random values, whose memory lives as long as it."""

    def __init__(self, packing: int, num_rows: int, num_inputs: int = INPUTS) -> None:
        filled = -(-num_rows // 16) * 16 * num_inputs
        self.num_rows = num_rows
        self.codes = aligned(torch.zeros(filled * 4, dtype=torch.uint8))
        self.scales = aligned(torch.zeros(filled // 16, dtype=torch.uint8))
        self.native = _native.weight(
            packing, self.codes.data_ptr(), self.scales.data_ptr(), num_rows, num_inputs
        )
        generator = torch.Generator().manual_seed(num_rows)
        if packing == MXFP4:
            stored = torch.randint(256, (num_rows, num_inputs // 2), generator=generator)
            scales = torch.randint(120, 130, (num_rows, num_inputs // 32), generator=generator)
            stored, scales = stored.to(torch.uint8), scales.to(torch.uint8)
            _native.pack_stored(stored.data_ptr(), scales.data_ptr(), self.native)
        else:
            values = torch.randn(num_rows, num_inputs, generator=generator)
            _native.pack(matrix(values), 0, self.native)


@pytest.mark.usefixtures("level", "two_threads")
@pytest.mark.parametrize("ranges", RANGES, ids=["qkv", "every packing", "one"])
@pytest.mark.parametrize("num_tokens", [1, 2, 9, 40, 515])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ranges_have_the_bits_of_their_own_products(
    ranges: tuple[tuple[int, int], ...], num_tokens: int, dtype: torch.dtype
) -> None:
    weights = [Packed(*one) for one in ranges]
    generator = torch.Generator().manual_seed(num_tokens)
    x_TI = torch.randn(num_tokens, INPUTS, generator=generator).to(dtype)
    bias_O = torch.randn(sum(num_rows for _, num_rows in ranges), generator=generator)
    for bias in (None, bias_O):
        result = by_ranges(x_TI, weights, bias)
        assert result.isfinite().all()
        assert result.abs().sum() > 0
        assert torch.equal(result, side_by_side(x_TI, weights, bias))


def by_ranges(x_TI: Tensor, weights: list[Packed], bias_O: Tensor | None) -> Tensor:
    weight = _native.weight_of_rows([each.native for each in weights])
    assert (weight.outputs, weight.inputs) == (sum(each.num_rows for each in weights), INPUTS)
    out_TO = torch.empty(len(x_TI), weight.outputs, dtype=x_TI.dtype)
    _native.linear(matrix(x_TI), weight, vector(bias_O), matrix(out_TO))
    return out_TO


def side_by_side(x_TI: Tensor, weights: list[Packed], bias_O: Tensor | None) -> Tensor:
    parts, first = [], 0
    for weight in weights:
        end = first + weight.num_rows
        bias = None if bias_O is None else bias_O[first:end]
        parts.append(torch.empty(len(x_TI), weight.num_rows, dtype=x_TI.dtype))
        _native.linear(matrix(x_TI), weight.native, vector(bias), matrix(parts[-1]))
        first = end
    return torch.cat(parts, dim=1)


def test_a_recorded_call_keeps_its_ranges() -> None:
    packed = Packed(INT8, 32)
    x_TI, out_TO = torch.randn(3, INPUTS), torch.empty(3, 64)
    with _native.KernelContext(2) as context:
        graph = _native.CapturedGraph(context)
        graph.start()
        weight = _native.weight_of_rows([packed.native, packed.native])
        _native.linear(matrix(x_TI), weight, None, matrix(out_TO))
        graph.stop()
        del weight
        expected = out_TO.clone()
        out_TO.zero_()
        graph.run()
    assert torch.equal(out_TO, expected)


@pytest.mark.parametrize("inputs", [(), (32, 64)])
def test_ranges_that_make_no_weight_are_refused(inputs: tuple[int, ...]) -> None:
    weights = [Packed(INT8, 16, num_inputs) for num_inputs in inputs]
    with pytest.raises(ValueError, match="row"):
        _native.weight_of_rows([weight.native for weight in weights])


def test_a_number_that_is_no_packing_is_refused() -> None:
    with pytest.raises(ValueError, match="no packing"):
        Packed(99, 16)
