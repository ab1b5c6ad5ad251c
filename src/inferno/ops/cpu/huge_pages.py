"""Memory on huge pages, where the system has them: for weights, and for keys and values.

A step reads weights from end to end once. On pages of 4 KiB, of which the processor's tables hold
few thousand, it waits for the place of each page, longer the further apart they lie.
"""

from __future__ import annotations

import mmap
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from inferno import _native
from inferno.ops.reference.stored import ALIGNMENT, aligned_memory

_HUGE_PAGE = 2 << 20
# What is smaller gains nothing.
_LEAST_BYTES = 64 << 10
# Weights share pages with their neighbours, so that at most one page of each slab is not full.
# Untouched ones cost nothing.
_SLAB_BYTES = 256 << 20


# What an administrator allows: always, madvise or never.
_ALLOWED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def map_memory(num_bytes: int) -> mmap.mmap:
    """Return untouched memory on huge pages. Raises MemoryError where there is no room."""
    memory = _map(num_bytes)
    with suppress(OSError, AttributeError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def cache_memory(num_bytes: int) -> mmap.mmap:
    """Return such memory, of which `small_beginning` is on small pages at first."""
    memory = map_memory(num_bytes)
    small_bytes = sum(size for _, size in small_beginning(_address(memory), num_bytes))
    if small_bytes:
        with suppress(OSError, AttributeError):
            memory.madvise(mmap.MADV_NOHUGEPAGE, 0, small_bytes)
    return memory


def small_beginning(address: int, num_bytes: int) -> Sequence[tuple[int, int]]:
    """Return the parts of a cache to be moved to huge pages once it is in use: address and bytes.

    They are all up to the end of its first whole huge page. The system would clear a huge page
    before the first byte is written. For its few bytes of each layer, a prompt's first token would
    wait for two of them a layer: 0.1 s where a virtual machine's host must find the memory.
    Elsewhere, and in small caches, there are none.
    """
    first = -address % _HUGE_PAGE
    if first + _HUGE_PAGE > num_bytes or not _collapses_later():
        return []
    # The first part may lie in a huge page with another cache's end, so it is told of by itself.
    return [(address, first), (address + first, _HUGE_PAGE)]


def weight_memory(num_bytes: int) -> Tensor:
    """Return unfilled memory, [num_bytes] uint8, aligned to 64 bytes, beside other weights."""
    if num_bytes < _LEAST_BYTES:
        return aligned_memory(num_bytes)
    try:
        return _slabs.take(num_bytes)
    except MemoryError:  # a process may be denied what it would not touch
        return aligned_memory(num_bytes)


def on_small_pages() -> Sequence[tuple[int, int]]:
    """Return the memory of weights that is to be moved to huge pages: addresses and bytes.

    The result still has weights that were moved already: to find this out takes no time.
    """
    return _slabs.filled() if _collapses_later() else ()


@cache
def _collapses_later() -> bool:
    """Return whether weights are loaded to small pages, to be moved to huge ones afterwards.

    What is written first to huge pages is written later: of a virtual machine, which gives free
    memory back to its host, a load took up to twice as long.
    """
    try:
        is_allowed = "[never]" not in _ALLOWED.read_text()
    except OSError:
        return False
    return is_allowed and _native.can_collapse()


def _map(num_bytes: int) -> mmap.mmap:
    try:
        if sys.platform != "linux":
            return mmap.mmap(-1, num_bytes)
        # Private: what is shared has huge pages only by another setting of the system.
        return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as problem:
        raise MemoryError(f"no {num_bytes} bytes: {problem}") from None


@dataclass(slots=True)
class _Slab:
    """Memory for weights, as long as some lie in it: from a huge page's beginning on."""

    memory: weakref.ref[mmap.mmap]
    first: int
    num_bytes: int
    used: int = 0


class _Slabs:
    """The slabs in which weights lie; the last one gives the next weight a part."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slabs: list[_Slab] = []
        self._last: _Slab | None = None

    def take(self, num_bytes: int) -> Tensor:
        """Return a part of the last slab, or of a new one. Raises MemoryError."""
        with self._lock:
            if num_bytes > _SLAB_BYTES // 2:
                slab, memory = self._add(num_bytes)
                return _part(slab, memory, num_bytes)
            found = None if self._last is None else self._last.memory()
            if (
                self._last is None
                or found is None
                or self._last.used + num_bytes > self._last.num_bytes
            ):
                self._last, found = self._add(_SLAB_BYTES)
            return _part(self._last, found, num_bytes)

    def filled(self) -> list[tuple[int, int]]:
        """Return each slab's address and bytes, in whole huge pages."""
        with self._lock:
            return [
                (_address(memory) + slab.first, slab.used + -slab.used % _HUGE_PAGE)
                for slab in self._slabs
                if (memory := slab.memory()) is not None
            ]

    def _add(self, num_bytes: int) -> tuple[_Slab, mmap.mmap]:
        """Add a slab, and return its memory too; forget those that are gone. Raises MemoryError."""
        make = _map if _collapses_later() else map_memory
        whole_pages = num_bytes + -num_bytes % _HUGE_PAGE
        memory = make(whole_pages + _HUGE_PAGE)
        slab = _Slab(weakref.ref(memory), -_address(memory) % _HUGE_PAGE, whole_pages)
        self._slabs = [*(each for each in self._slabs if each.memory() is not None), slab]
        return slab, memory


def _part(slab: _Slab, memory: mmap.mmap, num_bytes: int) -> Tensor:
    """Return the next part of a slab."""
    offset = slab.first + slab.used
    slab.used += num_bytes + -num_bytes % ALIGNMENT
    return torch.frombuffer(memory, dtype=torch.uint8, offset=offset, count=num_bytes)


def _address(memory: mmap.mmap) -> int:
    return torch.frombuffer(memory, dtype=torch.uint8).data_ptr()


_slabs = _Slabs()
