"""The KV cache's tensors: how layers share blocks, what a block costs, how many fit.

Layers with equal windows form a group with block tables of its own. All groups draw blocks from one
pool, and layer i of every group lives in storage i, so a block belongs to one group at a time and
no memory is set apart for a group that doesn't need it. Where layers keep keys and values of
several shapes, layer i of a group and of a shape lives in storage i of that shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from inferno import ops
from inferno.config.decoder import KVSpec
from inferno.errors import NotEnoughMemory
from inferno.ops import LayerKV
from inferno.plan import choices

_MOST_PREFAULTED_SHARE = (
    0.5  # of what is free: a cache of an asked size that takes more is not prefaulted
)
_MOST_PREFAULTED = 2**30  # bytes of a cache whose size nobody asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """The shape of the cache: what each layer keeps of a token, and how many tokens a block has."""

    specs: tuple[KVSpec, ...]
    block_size: int

    @property
    def group_windows(self) -> tuple[int | None, ...]:
        """Return each group's window, in the order in which layers first use it."""
        return tuple(dict.fromkeys(spec.window for spec in self.specs))

    @property
    def block_bytes(self) -> int:
        """Return the bytes that one block takes in all storages together."""
        return self.block_size * sum(token_bytes(shape) for shape, _ in self.storages())

    def storages(self) -> tuple[tuple[KVSpec, int], ...]:
        """Return the storages: a spec of its shape, and its number among those of that shape.

        They are as many of a shape as the group has layers that has most of it.
        """
        return tuple(dict.fromkeys(self.places()))

    def places(self) -> Iterator[tuple[KVSpec, int]]:
        """Yield for each layer the storage that it lives in, as `storages` has it."""
        used: Counter[KVSpec] = Counter()
        for spec in self.specs:
            yield replace(spec, window=None), used[spec]
            used[spec] += 1


def token_bytes(spec: KVSpec) -> int:
    """Return the bytes of a token's keys and values in one layer."""
    scale_bytes = torch.float32.itemsize if spec.dtype is torch.int8 else 0
    return 2 * spec.num_kv_heads * (spec.head_dim * spec.dtype.itemsize + scale_bytes)


def allocate(layout: KVLayout, num_blocks: int, device: torch.device) -> list[LayerKV]:
    """Return each layer's keys and values: num_blocks usable blocks, and block 0 as scratch."""
    slots = (num_blocks + 1, layout.block_size)
    try:
        # Not zeroed: untouched pages cost nothing, and no op reads a slot before it was written.
        storages = {
            (shape, number): ops.empty_cache(
                (*slots, shape.num_kv_heads, shape.head_dim), shape.dtype, device
            )
            for shape, number in layout.storages()
        }
    except (RuntimeError, MemoryError):
        raise NotEnoughMemory(
            f"the KV cache of {num_blocks} blocks takes "
            f"{num_blocks * layout.block_bytes / 1e9:.2f} GB, which could not be "
            f"allocated; lower --num-blocks"
        ) from None
    groups = layout.group_windows
    return [
        replace(storages[place], group=groups.index(spec.window))
        for spec, place in zip(layout.specs, layout.places(), strict=True)
    ]


def choose_num_blocks(layout: KVLayout, free_bytes: int | None, *, most_tokens: int) -> int:
    """Return how many blocks to make: enough for `most_tokens`, within half of free memory.

    Raises NotEnoughMemory where not even one block fits.
    """
    return choices.choose_num_blocks(
        layout.block_bytes,
        free_bytes,
        block_size=layout.block_size,
        num_groups=len(layout.group_windows),
        most_tokens=most_tokens,
    )


def bytes_to_prefault(
    layout: KVLayout, num_blocks: int | None, weights_bytes: int, free_bytes: int | None
) -> int:
    """Return how much of the cache to make ready before it is used.

    All of num_blocks, where so many were asked for and half of the memory is left for others;
    otherwise a gigabyte, or what the weights take, if that is less.
    """
    asked = (num_blocks + 1) * layout.block_bytes if num_blocks else 0  # and the scratch block
    if asked and free_bytes is not None and asked <= free_bytes * _MOST_PREFAULTED_SHARE:
        return asked
    return min(weights_bytes, _MOST_PREFAULTED)
