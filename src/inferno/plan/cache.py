"""Compute the bytes of a block of the KV cache, and how many blocks a request needs.

Layers with equal windows form a group with blocks of its own, and all groups draw from one pool
(engine/kv/kv_cache.py), so a block has room for as many layers as the largest group.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from inferno.plan.shape import LayerCache

_VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "float8_e4m3fn": 1}
_SCALE_BYTES = 4  # of the values of a head, where they are codes of one byte


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The shape of the KV cache: the layers' keys and values, in blocks of block_size tokens."""

    layers: tuple[LayerCache, ...]
    dtype: str
    block_size: int

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Return the window of each group of layers."""
        return tuple(dict.fromkeys(layer.window for layer in self.layers))

    @property
    def token_bytes(self) -> int:
        """Return the bytes that a token takes in all layers."""
        return sum(self._bytes_of(layer) for layer in self.layers)

    @property
    def block_bytes(self) -> int:
        """Return the bytes of one block in all storages together."""
        shapes: dict[tuple[int, int], int] = {}
        counts = Counter(self.layers)
        for layer, count in counts.items():
            shape = (layer.num_kv_heads, layer.head_dim)
            shapes[shape] = max(shapes.get(shape, 0), count)
        sizes = (self._bytes_of(LayerCache(*one, None)) * count for one, count in shapes.items())
        return self.block_size * sum(sizes)

    def num_blocks(self, context: int, max_chunk: int) -> int:
        """Return the blocks that a request of so many tokens holds at most.

        max_chunk  the most tokens of the request that a step computes.
        """
        return sum(self._num_blocks(window, context, max_chunk) for window in self.windows)

    def _num_blocks(self, window: int | None, context: int, max_chunk: int) -> int:
        whole = math.ceil(context / self.block_size)
        if window is None:
            return whole
        span = window - 1 + min(max_chunk, context)  # what a chunk sees, wherever it starts
        return min(whole, math.ceil((span - 1) / self.block_size) + 1)

    def _bytes_of(self, layer: LayerCache) -> int:
        scales = _SCALE_BYTES if _VALUE_BYTES[self.dtype] == 1 else 0
        return 2 * layer.num_kv_heads * (layer.head_dim * _VALUE_BYTES[self.dtype] + scales)
