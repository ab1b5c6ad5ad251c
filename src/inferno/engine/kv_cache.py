"""The KV cache's tensors: how layers share blocks, what a block costs, how many fit.

Layers with equal windows form a group with block tables of its own. All groups draw blocks from one
pool, and layer i of every group lives in storage i, so a block belongs to one group at a time and
no memory is set apart for a group that doesn't need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from inferno import ops
from inferno.errors import NotEnoughMemory
from inferno.ops import LayerKV

_MEMORY_SHARE = 0.5  # of what is free after the weights; the rest is for activations and others
_ASSUMED_FREE_BYTES = 8 * 2**30  # where nobody can tell
_MOST_PREFAULTED = 2**30  # bytes of a cache whose size nobody asked for
_MOST_BLOCKS = 2**18  # a config that claims a context of billions must not fill the free list


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """Shape of the cache: windows[i] is layer i's window; sizes are of one token of one layer."""

    windows: tuple[int | None, ...]
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    @property
    def group_windows(self) -> tuple[int | None, ...]:
        """Each group's window, in the order in which layers first use it."""
        return tuple(dict.fromkeys(self.windows))

    @property
    def num_storages(self) -> int:
        """Storages of keys and values: as many as the largest group has layers."""
        return max(self.windows.count(window) for window in self.group_windows)

    @property
    def block_bytes(self) -> int:
        """Return the bytes that one block takes in all storages together."""
        heads = 2 * self.block_size * self.num_kv_heads
        scale_bytes = torch.float32.itemsize if self.dtype is torch.int8 else 0
        return heads * (self.head_dim * self.dtype.itemsize + scale_bytes) * self.num_storages


def allocate(layout: KVLayout, num_blocks: int, device: torch.device) -> list[LayerKV]:
    """Each layer's keys and values: num_blocks usable blocks, and block 0 as scratch."""
    shape = (num_blocks + 1, layout.block_size, layout.num_kv_heads, layout.head_dim)
    try:
        # Not zeroed: untouched pages cost nothing, and no op reads a slot before it was written.
        storages = [
            ops.empty_cache(shape, layout.dtype, device) for _ in range(layout.num_storages)
        ]
    except (RuntimeError, MemoryError):
        raise NotEnoughMemory(
            f"the KV cache of {num_blocks} blocks takes "
            f"{num_blocks * layout.block_bytes / 1e9:.2f} GB, which could not be "
            f"allocated; lower --num-blocks"
        ) from None
    return _share(layout, storages)


def _share(layout: KVLayout, storages: Sequence[LayerKV]) -> list[LayerKV]:
    groups = layout.group_windows
    used = [0] * len(groups)
    layers = []
    for window in layout.windows:
        group = groups.index(window)
        layers.append(replace(storages[used[group]], group=group))
        used[group] += 1
    return layers


def choose_num_blocks(layout: KVLayout, free_bytes: int | None, *, most_tokens: int) -> int:
    """Return how many blocks to make: enough for `most_tokens`, within half of free memory.

    Raises NotEnoughMemory where not even one block fits.
    """
    wanted = -(-most_tokens // layout.block_size) * len(layout.group_windows)
    if free_bytes is None:
        free_bytes = _ASSUMED_FREE_BYTES
    affordable = int(free_bytes * _MEMORY_SHARE) // layout.block_bytes
    if affordable < 1:
        raise NotEnoughMemory(
            f"a KV cache block takes {layout.block_bytes} bytes, and {free_bytes} are free; "
            f"close other programs or choose a smaller model"
        )
    return min(wanted, affordable, _MOST_BLOCKS)


def bytes_to_prefault(
    layout: KVLayout, num_blocks: int | None, weights_bytes: int, free_bytes: int | None
) -> int:
    """Return how much of the cache to make ready before it is used.

    All of num_blocks, where so many were asked for and half of the memory is left for others;
    otherwise a gigabyte, or what the weights take, if that is less.
    """
    asked = (num_blocks + 1) * layout.block_bytes if num_blocks else 0  # and the scratch block
    if asked and free_bytes is not None and asked <= free_bytes * _MEMORY_SHARE:
        return asked
    return min(weights_bytes, _MOST_PREFAULTED)
