"""The KV cache as the CPU's kernels read it, and the memory that it lies in.

Shape letters: N blocks of the pool, S slots of a block, K key/value heads, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inferno import _native
from inferno.ops.batch import LayerKV
from inferno.ops.cpu.huge_pages import cache_memory, on_small_pages, small_beginning
from inferno.ops.cpu.native import TYPES


def empty_cache(shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype) -> LayerKV:
    """Return unfilled keys and values, both seen as [N, S, K, D]; in int8 their scales too.

    Values lie as [N, K, S, D]. So do keys of bfloat16, of which attention makes pairs for dot
    products; others lie as [N, K, D, S], so that 16 positions of one dimension fill a vector
    register. Untouched pages cost nothing. MemoryError where there is no room.
    """
    blocks, slots, heads, size = shape_NSKD
    values_NKSD = _memory((blocks, heads, slots, size), dtype)
    if dtype is torch.bfloat16:
        keys_NSKD = _memory((blocks, heads, slots, size), dtype).transpose(1, 2)
    else:
        keys_NSKD = _memory((blocks, heads, size, slots), dtype).permute(0, 3, 1, 2)
    if dtype is not torch.int8:
        return LayerKV(keys_NSKD, values_NKSD.transpose(1, 2))
    scales = torch.empty((2, blocks, heads, slots))
    return LayerKV(keys_NSKD, values_NKSD.transpose(1, 2), 0, scales[0], scales[1])


def is_laid_out(kv: LayerKV) -> bool:
    """Return whether a layer's cache has the layout that the kernels read."""
    _, slots, heads, size = kv.keys_NSKD.shape
    whole = (heads * size * slots, size, slots * size, 1)
    transposed = (heads * size * slots, 1, size * slots, slots)
    dtype = kv.keys_NSKD.dtype
    return (
        dtype in TYPES
        and kv.keys_NSKD.stride() == (whole if dtype is torch.bfloat16 else transposed)
        and kv.values_NSKD.stride() == whole
    )


def prefault(kv: Sequence[LayerKV], num_bytes: int) -> _native.Prefault:
    """Move weights to huge pages, and make the caches' beginnings ready, in the background."""
    tensors = {t.data_ptr(): t for layer in kv for t in (layer.keys_NSKD, layer.values_NSKD)}
    share = num_bytes // len(tensors)
    parts = [(begin, min(tensor.nbytes, share)) for begin, tensor in tensors.items()]
    small = [
        part for begin, tensor in tensors.items() for part in small_beginning(begin, tensor.nbytes)
    ]
    # Weights that are gone before it has come to them are no harm: it changes no memory's content.
    return _native.Prefault(parts, [*small, *on_small_pages()], list(tensors.values()))


def view(kv: LayerKV) -> _native.Cache:
    """Describe a layer's cache to the kernels."""
    blocks, slots, heads, size = kv.keys_NSKD.shape
    return _native.cache(
        kv.keys_NSKD.data_ptr(),
        kv.values_NSKD.data_ptr(),
        0 if kv.key_scales_NKS is None else kv.key_scales_NKS.data_ptr(),
        0 if kv.value_scales_NKS is None else kv.value_scales_NKS.data_ptr(),
        TYPES[kv.keys_NSKD.dtype],
        *(blocks, slots, heads, size),
    )


def _memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return untouched memory, on huge pages where the system has them, soon or at once.

    A long prompt's keys and values touch new pages in every layer; of 4 KiB each, they would take
    longer than what is written.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    return torch.frombuffer(cache_memory(num_bytes), dtype=dtype, count=math.prod(shape)).view(
        shape
    )
