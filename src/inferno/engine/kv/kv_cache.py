"""The KV cache's tensors: how layers share blocks, what a block costs, how many blocks fit.

Layers with equal windows form a group with block tables of its own. All groups draw blocks from one
pool, and layer i of every group lives in storage i, so a block belongs to one group at a time and
no memory is set apart for a group that doesn't need it. Where layers keep keys and values of
several shapes, layer i of a group and of a shape lives in storage i of that shape.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inferno import ops
from inferno.config.decoder import KVSpec
from inferno.engine.step_plan import BlockCopies
from inferno.errors import NotEnoughMemory
from inferno.ops import LayerKV
from inferno.plan import choices

_MOST_PREFAULTED_SHARE = (
    0.5  # of what is free: a cache of an asked size that takes more is not prefaulted
)
_MOST_PREFAULTED = 2**30  # bytes of a cache whose size nobody asked for
_MEASURED_BLOCKS, _MEASURED_ROUNDS = 32, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """The shape of the cache: what each layer keeps of a token, and how many tokens a block has."""

    specs: tuple[KVSpec, ...]
    block_size: int

    @property
    def group_windows(self) -> tuple[int | None, ...]:
        """Return the window of each group of layers, in the order of their first layers."""
        return tuple(dict.fromkeys(spec.window for spec in self.specs))

    @property
    def block_bytes(self) -> int:
        """Return the bytes that one block takes in all storages together."""
        return self.block_size * sum(token_bytes(shape) for shape, _ in self.storages())

    def storages(self) -> tuple[tuple[KVSpec, int], ...]:
        """Return the storages: for each its shape, and its number among those of that shape.

        Of each shape there are as many storages as the group with most layers of that shape has.
        """
        return tuple(dict.fromkeys(self.places()))

    def places(self) -> Iterator[tuple[KVSpec, int]]:
        """Yield, for each layer, the storage of `storages` in which it lies."""
        used: Counter[KVSpec] = Counter()
        for spec in self.specs:
            yield replace(spec, window=None), used[spec]
            used[spec] += 1


def token_bytes(spec: KVSpec) -> int:
    """Return the bytes of a token's keys and values in one layer."""
    are_codes = spec.dtype.itemsize == 1
    scale_bytes = torch.float32.itemsize if are_codes else 0
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

    That is all of it, where num_blocks was asked for and half of the memory is left for others;
    otherwise a gigabyte, or what the weights take, if that is less.
    """
    asked = (num_blocks + 1) * layout.block_bytes if num_blocks else 0  # and the scratch block
    if asked and free_bytes is not None and asked <= free_bytes * _MOST_PREFAULTED_SHARE:
        return asked
    return min(weights_bytes, _MOST_PREFAULTED)


class HostCache:
    """Blocks of keys and values in host memory, and the copies between them and a device.

    A block is copied as the bytes of all storages, scales included. For a GPU the memory is pinned,
    and copies are made in the order of its stream, so the host never waits.
    """

    def __init__(self, kv: Sequence[LayerKV], num_blocks: int) -> None:
        parts = [_bytes_of_blocks(tensor) for tensor in tensors_of(kv)]
        sizes = [part.shape[1] for part in parts]
        device = parts[0].device
        try:
            # In one piece, for pinned memory comes in powers of two.
            memory = torch.empty(
                num_blocks * sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda"
            )
        except (RuntimeError, MemoryError):
            raise NotEnoughMemory(
                f"swap_space: {num_blocks * sum(sizes) / 2**30:.2f} GiB of host memory for keys "
                "and values could not be allocated; lower --swap-space",
                is_of_host=True,
            ) from None
        pieces = torch.split(memory, [num_blocks * size for size in sizes])
        self.num_blocks = num_blocks
        self._parts = [
            (part, piece.view(num_blocks, size))
            for part, piece, size in zip(parts, pieces, sizes, strict=True)
        ]

    def copy(self, copies: BlockCopies) -> None:
        """Make a plan's copies, those to the host first."""
        for block, host, count in _runs(copies.out):
            for on_device, on_host in self._parts:
                source = on_device[block : block + count]
                on_host[host : host + count].copy_(source, non_blocking=True)
        for host, block, count in _runs(copies.back):
            for on_device, on_host in self._parts:
                source = on_host[host : host + count]
                on_device[block : block + count].copy_(source, non_blocking=True)

    def measure_seconds_per_block(self) -> float:
        """Return the seconds in which a block is copied, in either direction, among several.

        The device's blocks are unchanged afterwards.
        """
        count = min(_MEASURED_BLOCKS, self.num_blocks, len(self._parts[0][0]))
        out = tuple((block, block) for block in range(count))
        best = float("inf")
        for _ in range(_MEASURED_ROUNDS):
            self._wait()
            began = time.perf_counter()
            self.copy(BlockCopies(out, out))
            self._wait()
            best = min(best, time.perf_counter() - began)
        return best / (2 * count)

    def _wait(self) -> None:
        """Wait until the device has made all copies."""
        self._parts[-1][0][0, 0].item()


def tensors_of(kv: Sequence[LayerKV]) -> list[Tensor]:
    """Return the tensors of all storages, each of them once."""
    tensors = (
        tensor
        for layer in kv
        for tensor in (
            *(layer.keys_NSKD, layer.values_NSKD),
            *(layer.key_scales_NKS, layer.value_scales_NKS),
        )
        if tensor is not None
    )
    return list({tensor.data_ptr(): tensor for tensor in tensors}.values())


def _bytes_of_blocks(tensor: Tensor) -> Tensor:
    """Return a storage as bytes, [N, size of a block]; a block's lie together in any backend."""
    num_values = tensor[0].numel()
    spans = (
        (length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    is_dense = tensor.stride(0) == num_values and sum(spans) + 1 == tensor.numel()
    assert is_dense, "the bytes of a block lie together"
    return tensor.as_strided((len(tensor), num_values), (num_values, 1)).view(torch.uint8)


def _runs(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield sources and targets that follow one another together: the first of each, how many."""
    start = 0
    for end in range(1, len(pairs) + 1):
        source, target = pairs[start]
        if end < len(pairs) and pairs[end] == (source + end - start, target + end - start):
            continue
        yield source, target, end - start
        start = end
