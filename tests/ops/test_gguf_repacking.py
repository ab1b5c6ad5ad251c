"""Blocks of GGUF that are kept in another format: the same values, or nearly, as the library's."""

from __future__ import annotations

import itertools
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from torch import Tensor

from inferno.gguf.tensor_types import BY_NAME
from inferno.ops import StoredRows
from inferno.ops.gguf_repacking import repack
from inferno.quantization import BLOCK_FORMATS, KEPT_BLOCKS

REPACKED = sorted(KEPT_BLOCKS.keys() - BLOCK_FORMATS.keys())
EXACT = [name for name in REPACKED if not KEPT_BLOCKS[name].error]
Array = np.ndarray[Any, np.dtype[Any]]


def test_every_type_that_is_decoded_is_kept_packed_and_never_smaller() -> None:
    for name, kept in KEPT_BLOCKS.items():
        each = BY_NAME[name]
        assert kept.format.bits >= 8 * each.block_bytes / each.block_values, name
        if name in BLOCK_FORMATS:
            assert not kept.error


@pytest.mark.parametrize("name", EXACT)
def test_random_blocks_keep_their_values(name: str) -> None:
    each = BY_NAME[name]
    blocks = np.random.default_rng(each.number).integers(
        0, 256, (2000, each.block_bytes), dtype=np.uint8
    )
    _set_units(name, blocks, 0.01)
    if name == "MXFP4":
        blocks[:, 0] = np.arange(2000) % 252 + 1  # beyond these, values overflow
    assert np.array_equal(_kept(name, blocks), _due(name, blocks))


def test_all_pairs_of_a_scale_and_a_code_of_q3_k_are_in_q6_k() -> None:
    """Put each scale of six bits in each place, with all codes beside it, under all signs."""
    scales, codes = np.arange(64), np.arange(8)
    blocks = np.concatenate([_q3_k_block(int(scale), codes) for scale in scales])
    for unit in (1.0, -0.37, 2.0**-24, 65504.0):  # the least and the largest float16
        _set_units("Q3_K", blocks, unit)
        found, due = _kept("Q3_K", blocks), _due("Q3_K", blocks)
        assert np.array_equal(found, due)
        assert len(np.unique(due / np.float16(unit))) == len(_products(scales - 32, codes - 4))


def test_all_codes_of_iq4_nl_under_all_scales_are_in_q8_0() -> None:
    scales = np.arange(1 << 16, dtype=np.uint16)
    scales = scales[np.isfinite(scales.view(np.float16))]
    codes = np.arange(16, dtype=np.uint8)
    row = codes | codes[::-1] << 4
    blocks = np.concatenate((scales[:, None].view(np.uint8), np.tile(row, (len(scales), 1))), 1)
    assert np.array_equal(_kept("IQ4_NL", blocks), _due("IQ4_NL", blocks))


@pytest.mark.parametrize("deviation", [0.02, 1.0])
def test_the_error_of_the_others_is_as_the_table_says(deviation: float) -> None:
    torch.manual_seed(0)
    values = deviation * torch.randn(500, 256)
    for name, blocks in (("IQ4_XS", _iq4_xs(values)), ("Q2_K", _q2_k(values))):
        own = np.linalg.norm(_due(name, blocks) - values.numpy()) / values.norm()
        assert own < 0.4, "it isn't of that type"
        due = _due(name, blocks)
        error = np.linalg.norm(_kept(name, blocks) - due) / np.linalg.norm(due)
        assert 0.5 * KEPT_BLOCKS[name].error < error < 1.1 * KEPT_BLOCKS[name].error, name


@pytest.mark.parametrize("name", REPACKED)
def test_scales_that_are_no_numbers_make_none_of_other_blocks(name: str) -> None:
    each = BY_NAME[name]
    blocks = np.random.default_rng(0).integers(0, 256, (3, each.block_bytes), dtype=np.uint8)
    _set_units(name, blocks, 0.01)
    _set_units(name, blocks[1:2], np.nan)
    if name == "MXFP4":
        blocks[:, 0] = (120, 255, 120)
    found = _kept(name, blocks)
    assert np.isfinite(found[[0, 2]]).all()
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("name", REPACKED)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_no_finite_value_becomes_infinite(name: str) -> None:
    each = BY_NAME[name]
    blocks = np.random.default_rng(1).integers(0, 256, (50, each.block_bytes), dtype=np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = 252
    for unit in (2000.0, 4000.0, -65504.0):
        _set_units(name, blocks, unit)
        due = _due(name, blocks)
        assert np.isfinite(due).all()
        try:
            found = _kept(name, blocks)
        except OverflowError:
            assert name == "IQ4_XS"
            assert abs(unit) * 32 > np.finfo(np.float16).max
        else:
            error = np.linalg.norm(found / 1e6 - due / 1e6) / np.linalg.norm(due / 1e6)
            assert error < 0.01


def _kept(name: str, blocks: Array) -> Array:
    format = KEPT_BLOCKS[name].format
    parts = repack(name, torch.from_numpy(blocks.copy()))
    shapes = format.stored_shapes((len(blocks), BY_NAME[name].block_values))
    rows = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
    return StoredRows(format, tuple(rows)).unpack(torch.float32).numpy()


def _due(name: str, blocks: Array) -> Array:
    values: Array = dequantize(blocks, gguf.GGMLQuantizationType[name])
    return values


def _set_units(name: str, blocks: Array, unit: float) -> None:
    """Set the float16 units of all blocks."""
    raw = np.array([unit], dtype=np.float16).view(np.uint8)
    place = {"Q3_K": 108, "Q2_K": 80, "IQ4_NL": 0, "IQ4_XS": 0}.get(name)
    if place is not None:
        blocks[:, place : place + 2] = raw
    if name == "Q2_K":
        blocks[:, 82:84] = raw


def _products(scales: Array, codes: Array) -> set[int]:
    return {int(scale) * int(code) for scale, code in itertools.product(scales, codes)}


def _q3_k_block(scale: int, codes: Array) -> Array:
    """Return a block of Q3_K, by ggml's layout, with one scale in all places and codes in turn."""
    of_values = np.resize(codes, 256).astype(np.uint8)
    low = of_values.reshape(2, 4, 32) & 3
    low_bytes = (low[:, 0] | low[:, 1] << 2 | low[:, 2] << 4 | low[:, 3] << 6).reshape(64)
    high = (of_values >> 2).reshape(8, 32)
    high_bytes = np.bitwise_or.reduce(high << np.arange(8, dtype=np.uint8)[:, None], 0)
    nibble, upper = scale & 15, scale >> 4
    scale_bytes = [nibble | nibble << 4] * 8 + [upper * 0b01010101] * 4
    rest = np.array([*scale_bytes, 0, 0], dtype=np.uint8)
    return np.concatenate((high_bytes, low_bytes, rest))[None]


def _iq4_xs(values: Tensor) -> Array:
    """Quantize values to IQ4_XS, simply: a group's largest value is the code of -127."""
    groups = values.view(-1, 8, 32)
    peak = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
    wanted = -peak / 127
    unit = (wanted.abs().amax(1) / 31).half()
    scales = (wanted / unit.float()[:, None]).round().clamp(-32, 31).int()
    table = torch.tensor([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
    steps = unit.float()[:, None] * scales
    codes = (groups / steps[..., None]).nan_to_num().unsqueeze(-1).sub(table).abs().argmin(-1)
    six = (scales + 32).numpy().astype(np.uint8)
    low = six[:, 0::2] & 15 | (six[:, 1::2] & 15) << 4
    high = np.bitwise_or.reduce((six >> 4).astype(np.uint16) << np.arange(0, 16, 2), 1)
    four = codes.numpy().astype(np.uint8)
    nibbles = (four[..., :16] | four[..., 16:] << 4).reshape(len(four), -1)
    high_bytes = high.astype(np.uint16)[:, None].view(np.uint8)
    return np.concatenate((_raw(unit), high_bytes, low, nibbles), 1)


def _q2_k(values: Tensor) -> Array:
    """Quantize values to Q2_K, simply: each 16 from their least, or 0, to their largest."""
    groups = values.view(-1, 16, 16)
    minimum = (-groups.amin(2)).clamp(min=0)
    wanted = (groups.amax(2) + minimum) / 3
    units = [(one.amax(1) / 15).half() for one in (wanted, minimum)]
    scale, offset = (
        (one / unit.float()[:, None]).round().clamp(0, 15)
        for one, unit in zip((wanted, minimum), units, strict=True)
    )
    step, least = (
        one * unit.float()[:, None] for one, unit in zip((scale, offset), units, strict=True)
    )
    codes = ((groups + least[..., None]) / step[..., None]).nan_to_num().round().clamp(0, 3)
    four = codes.view(-1, 2, 4, 32).numpy().astype(np.uint8)
    packed = four[:, :, 0] | four[:, :, 1] << 2 | four[:, :, 2] << 4 | four[:, :, 3] << 6
    both = scale.numpy().astype(np.uint8) | offset.numpy().astype(np.uint8) << 4
    return np.concatenate((both, packed.reshape(-1, 64), *map(_raw, units)), 1)


def _raw(units: Tensor) -> Array:
    return units[:, None].numpy().view(np.uint8)
