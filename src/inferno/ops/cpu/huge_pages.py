"""Memory on huge pages, where the system has them: for weights, and for keys and values.

A step reads weights from end to end once. On pages of 4 KiB, of which the processor's tables hold
few thousand, it waits for the place of each page, longer the further apart they lie.
"""

from __future__ import annotations

import mmap
import sys
import weakref
from contextlib import suppress
from threading import Lock

import torch
from torch import Tensor

from inferno.ops.reference.stored import ALIGNMENT, aligned_memory

_HUGE_PAGE = 2 << 20
# What is smaller gains nothing.
_LEAST_BYTES = 64 << 10
# Weights share pages with their neighbours, so that at most one page of each slab is not full.
# Untouched ones cost nothing.
_SLAB_BYTES = 256 << 20


def map_memory(num_bytes: int) -> mmap.mmap:
    """Return untouched memory. Raises MemoryError where there is no room."""
    try:
        if sys.platform != "linux":
            return mmap.mmap(-1, num_bytes)
        # Private: what is shared has huge pages only by another setting of the system.
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as problem:
        raise MemoryError(f"no {num_bytes} bytes: {problem}") from None
    with suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def weight_memory(num_bytes: int) -> Tensor:
    """Return unfilled memory, [num_bytes] uint8, aligned to 64 bytes, beside other weights."""
    if num_bytes < _LEAST_BYTES:
        return aligned_memory(num_bytes)
    try:
        return _slabs.take(num_bytes)
    except MemoryError:  # a process may be denied what it would not touch
        return aligned_memory(num_bytes)


class _Slabs:
    """The slab of which the next weight gets a part, as long as some weight lies in it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slab: weakref.ref[mmap.mmap] | None = None
        self._used = 0

    def take(self, num_bytes: int) -> Tensor:
        """Return a part of the slab, or of a new one. Raises MemoryError."""
        if num_bytes > _SLAB_BYTES // 2:
            memory, first = _new_slab(num_bytes)
            return torch.frombuffer(memory, dtype=torch.uint8, offset=first, count=num_bytes)
        with self._lock:
            slab = None if self._slab is None else self._slab()
            if slab is None or self._used + num_bytes > len(slab):
                slab, self._used = _new_slab(_SLAB_BYTES)
                self._slab = weakref.ref(slab)
            part = torch.frombuffer(slab, dtype=torch.uint8, offset=self._used, count=num_bytes)
            self._used += num_bytes + -num_bytes % ALIGNMENT
        return part


def _new_slab(num_bytes: int) -> tuple[mmap.mmap, int]:
    """Return memory, and the place of its first whole huge page."""
    memory = map_memory(num_bytes + _HUGE_PAGE)
    return memory, -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _HUGE_PAGE


_slabs = _Slabs()
