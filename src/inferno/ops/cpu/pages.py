"""Memory from the system itself, on huge pages where it has them.

A page costs a trap to the system when it is first touched, and a place in the processor's table of
pages while it is used; a huge one holds 2 MiB instead of 4 KiB.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress

HUGE_PAGE = 2 << 20  # bytes


def map_pages(num_bytes: int) -> mmap.mmap:
    """Untouched memory, of zeros; MemoryError where there is no room."""
    try:
        if sys.platform != "linux":
            return mmap.mmap(-1, num_bytes)
        # Private: what is shared has huge pages only by another setting of the system.
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as problem:
        raise MemoryError(f"the system gave no {num_bytes} bytes: {problem}") from None
    with suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
