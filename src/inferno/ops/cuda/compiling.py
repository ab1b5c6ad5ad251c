"""Report kernels that are being made ready to somebody who waits.

Triton compiles a kernel at its first launch, which takes seconds, or loads it from its cache
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton import knobs


@contextmanager
def telling_of_kernels(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` with each kernel's name, before it is made ready in this process."""
    before = knobs.runtime.jit_cache_hook

    def hook(**facts: Any) -> Any:
        tell(str(facts["fn"].name))
        return None if before is None else before(**facts)  # True would keep it from compiling

    knobs.runtime.jit_cache_hook = hook
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = before
