"""Convert data for the compiled kernels: addresses, types, and memory from an arena."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inferno import _native

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int8: 3, torch.int64: 4}
COMPUTED = frozenset({torch.float32, torch.bfloat16})  # what activations may be


def is_ours(x: Tensor) -> bool:
    """Return whether the kernels compute with activations of this dtype and device."""
    return x.dtype in COMPUTED


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return unfilled memory for a result from an arena, so that steps don't ask the system."""
    return _native.empty(list(shape), TYPES[dtype])


def kernel_context(
    num_threads: int, activations: torch.dtype = torch.int8
) -> _native.KernelContext:
    torch.set_num_threads(1)  # two pools that spin on the same cores ruin each other
    return _native.KernelContext(num_threads, TYPES[activations])


def matrix(x: Tensor) -> _native.Matrix:
    """Describe a matrix to the kernels, whose rows have no gaps but may lie apart."""
    count, *sizes = x.shape
    return x.data_ptr(), TYPES[x.dtype], count, math.prod(sizes), x.stride(0)


def rows(x: Tensor) -> Tensor:
    """Return the tensor, or a copy of it where its rows have gaps."""
    has_gaps = x.stride(-1) != 1 or (x.ndim == 3 and x.stride(1) != x.shape[2])
    return x.contiguous() if has_gaps else x


def vector(x: Tensor | None) -> _native.Vector | None:
    """Describe a vector, which may be absent, to the kernels."""
    if x is None:
        return None
    assert x.is_contiguous(), "parameters lie without gaps"
    return x.data_ptr(), TYPES[x.dtype]
