"""Tensors whose neighbours may not be touched: a page without rights after the last element."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(shape: Sequence[int], dtype: torch.dtype, *, stride: int | None = None) -> Tensor:
    """Memory of ones' bits [.., W] before a page that kills whoever reads or writes it.

    stride  from row to row, if rows are to have gaps.
    """
    *leading, width = shape
    num_rows, stride = math.prod(leading), stride or width
    count = max(0, (num_rows - 1) * stride + width) if num_rows else 0
    flat = _before_a_wall(count * dtype.itemsize).view(dtype)
    return flat.as_strided(tuple(shape), (stride, 1) if leading else (1,))


def copied(values: Tensor, *, stride: int | None = None) -> Tensor:
    """The same values in guarded memory."""
    return guarded(values.shape, values.dtype, stride=stride).copy_(values)


def aligned(values: Tensor) -> Tensor:
    """The same bytes in guarded memory, from a multiple of 64 on: the wall may be up to 63 off."""
    size = values.nbytes
    memory = _before_a_wall(-(-size // 64) * 64)
    return memory[:size].copy_(values.flatten().view(torch.uint8))


def _before_a_wall(size: int) -> Tensor:
    length = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, length + mmap.PAGESIZE)
    memory[:length] = b"\xff" * length
    everything = torch.frombuffer(memory, dtype=torch.uint8)
    wall = ctypes.c_void_p(everything.data_ptr() + length)
    if _libc.mprotect(wall, ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return everything[length - size : length]
