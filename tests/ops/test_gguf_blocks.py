"""The values of GGUF's blocks, bit for bit as the format's own library computes them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from inferno.gguf.tensor_types import BY_NAME
from inferno.ops.gguf_blocks import decode
from inferno.quantization import KEPT_BLOCKS

DECODED = list(KEPT_BLOCKS)
DUE = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "MXFP4"),
)


def test_all_types_that_are_due_are_decoded() -> None:
    assert set(DECODED) == set(DUE)


@pytest.mark.parametrize("name", DECODED)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_random_blocks_have_the_librarys_values(name: str) -> None:
    each = BY_NAME[name]
    blocks = np.random.default_rng(each.number).integers(
        0, 256, (2000, each.block_bytes), dtype=np.uint8
    )
    due = dequantize(blocks, gguf.GGMLQuantizationType[name])
    found = decode(each.name, torch.from_numpy(blocks)).numpy()
    is_nan = np.isnan(due)  # of random bytes some are scales of no number
    assert np.array_equal(np.isnan(found), is_nan)
    assert np.array_equal(found[~is_nan].view(np.uint32), due[~is_nan].view(np.uint32))
    assert is_nan.mean() < 0.1


def test_block_sizes_are_the_librarys() -> None:
    for name, each in BY_NAME.items():
        if name == "Q8_1":  # of which the library adds a field that files never had
            continue
        number = gguf.GGMLQuantizationType[name]
        assert each.number == number
        assert (each.block_values, each.block_bytes) == gguf.GGML_QUANT_SIZES[number]
