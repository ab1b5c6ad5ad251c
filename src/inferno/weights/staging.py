"""Lend memory through which weights pass from files to their device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK_BYTES = 4 << 20  # Ctrl+C is served between chunks; plan/memory.py counts them


class Staging:
    """One piece of memory, lent again and again for as long as weights are loaded.

    Pieces that come and go between lasting ones would leave holes in the heap.
    """

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an unfilled tensor on the CPU, valid until the next one is taken."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes > len(self._bytes):
            self._bytes = torch.empty(max(num_bytes, CHUNK_BYTES), dtype=torch.uint8)
        return self._bytes[:num_bytes].view(dtype).view(tuple(shape))
