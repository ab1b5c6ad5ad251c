"""List the kernels of all modules, in every configuration that is launched."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from inferno.ops.cuda import (
    elementwise,
    fp8_products,
    logits_processing,
    mixture,
    norms,
    packed_embedding,
    paged_attention,
    products,
    random_numbers,
    rotation,
    routing,
    sampling,
)
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import Variant

# Every module of this folder that has kernels; each has a function variants(chip).
KERNEL_MODULES: tuple[ModuleType, ...] = (
    elementwise,
    fp8_products,
    logits_processing,
    mixture,
    norms,
    packed_embedding,
    paged_attention,
    products,
    random_numbers,
    rotation,
    routing,
    sampling,
)


def shipped_variants(chip: Chip) -> Iterator[Variant]:
    """Yield every kernel in every configuration that is launched on a chip."""
    for module in KERNEL_MODULES:
        yield from module.variants(chip)
