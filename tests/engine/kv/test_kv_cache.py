"""The cache's layout: groups by window, shared storage, sizes."""

from __future__ import annotations

import pytest
import torch

from inferno.config.decoder import KVSpec
from inferno.engine.kv.kv_cache import KVLayout, allocate, bytes_to_prefault, choose_num_blocks
from inferno.errors import NotEnoughMemory


def layout(*windows: int | None) -> KVLayout:
    return KVLayout(specs=tuple(spec(window) for window in windows), block_size=4)


def spec(window: int | None, *, num_kv_heads: int = 2, head_dim: int = 8) -> KVSpec:
    return KVSpec(num_kv_heads=num_kv_heads, head_dim=head_dim, window=window, dtype=torch.bfloat16)


def test_layers_with_equal_windows_form_a_group() -> None:
    kv = allocate(layout(7, None, 7, None, None), 3, torch.device("cpu"))
    assert [layer.group for layer in kv] == [0, 1, 0, 1, 1]
    assert layout(7, None, 7, None, None).group_windows == (7, None)


def test_groups_share_storage_and_layers_of_a_group_do_not() -> None:
    kv = allocate(layout(7, None, 7, None), 3, torch.device("cpu"))
    assert kv[0].keys_NSKD is kv[1].keys_NSKD
    assert kv[2].keys_NSKD is kv[3].keys_NSKD
    assert kv[0].keys_NSKD is not kv[2].keys_NSKD
    assert kv[0].keys_NSKD.shape == (4, 4, 2, 8)


def test_a_block_costs_keys_and_values_of_the_largest_group() -> None:
    assert layout(None, None, None).block_bytes == 3 * 2 * (4 * 2 * 8) * 2
    assert layout(7, None).block_bytes == 2 * (4 * 2 * 8) * 2


def test_layers_of_other_shapes_live_in_other_storages() -> None:
    wide, narrow = spec(None, num_kv_heads=1, head_dim=16), spec(None)
    mixed = KVLayout(specs=(wide, narrow, wide, spec(7), spec(7, head_dim=16)), block_size=4)
    kv = allocate(mixed, 3, torch.device("cpu"))
    assert mixed.group_windows == (None, 7)
    assert [layer.group for layer in kv] == [0, 0, 0, 1, 1]
    shapes = [tuple(layer.keys_NSKD.shape[2:]) for layer in kv]
    assert shapes == [(1, 16), (2, 8), (1, 16), (2, 8), (2, 16)]
    assert kv[1].keys_NSKD is kv[3].keys_NSKD, "equal shapes of two groups"
    assert len({id(layer.keys_NSKD) for layer in kv}) == 4
    assert mixed.block_bytes == 2 * 4 * (2 * 1 * 16 + 2 * 8 + 2 * 16) * 2


def test_blocks_are_as_many_as_are_useful_or_affordable() -> None:
    plain = layout(None)
    assert choose_num_blocks(plain, None, most_tokens=41) == 11
    assert choose_num_blocks(plain, 2**50, most_tokens=2**50) == 2**18
    assert choose_num_blocks(plain, 10**9, most_tokens=41) == 11
    assert choose_num_blocks(plain, plain.block_bytes * 10, most_tokens=41) == 5
    with pytest.raises(NotEnoughMemory, match="smaller model"):
        choose_num_blocks(plain, plain.block_bytes, most_tokens=41)


def test_what_is_made_ready_is_what_was_asked_for_if_memory_allows() -> None:
    plain = layout(None)
    asked = 11 * plain.block_bytes  # ten blocks and the scratch block
    assert bytes_to_prefault(plain, 10, 1, 2 * asked) == asked
    assert bytes_to_prefault(plain, 10, 1, 2 * asked - 1) == 1
    assert bytes_to_prefault(plain, 10, 1, None) == 1
    assert bytes_to_prefault(plain, None, 7, 2**50) == 7
    assert bytes_to_prefault(plain, None, 2**40, 2**50) == 2**30
