"""What the compiled kernels take and give: addresses, types, and memory from an arena."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from inferno import _native

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int8: 3, torch.int64: 4}
_COMPUTED = frozenset({torch.float32, torch.bfloat16})  # what activations may be

_arenas = [_native.Arena()]  # the last one lends what ops return


def is_ours(x: Tensor) -> bool:
    """Whether the kernels compute with such activations."""
    return x.dtype in _COMPUTED


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Unfilled memory for a result, from the arena: nothing is asked of the system in a step."""
    return _native.empty(_arenas[-1], list(shape), TYPES[dtype])


@contextmanager
def allocating_from(arena: _native.Arena) -> Iterator[None]:
    """Results lie in this arena."""
    _arenas.append(arena)
    try:
        yield
    finally:
        _arenas.remove(arena)


def matrix(x: Tensor) -> _native.Matrix:
    """A tensor whose first axis has rows that lie without gaps, though not side by side."""
    count, *sizes = x.shape
    return x.data_ptr(), TYPES[x.dtype], count, math.prod(sizes), x.stride(0)


def rows(x: Tensor) -> Tensor:
    """The tensor, or a copy of it where its rows have gaps."""
    has_gaps = x.stride(-1) != 1 or (x.ndim == 3 and x.stride(1) != x.shape[2])
    return x.contiguous() if has_gaps else x


def vector(x: Tensor | None) -> _native.Vector | None:
    """A vector that may be absent."""
    if x is None:
        return None
    assert x.is_contiguous(), "parameters lie without gaps"
    return x.data_ptr(), TYPES[x.dtype]
