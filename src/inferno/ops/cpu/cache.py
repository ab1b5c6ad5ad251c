"""The KV cache as the CPU's kernels read it: a head's keys by dimension, its values by position.

Shape letters: N blocks of the pool, S slots of a block, K key/value heads, D head size.
"""

from __future__ import annotations

import torch

from inferno import _native
from inferno.ops.batch import LayerKV
from inferno.ops.cpu.native import TYPES


def empty_cache(shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype) -> LayerKV:
    """Unfilled keys and values, both seen as [N, S, K, D]; in int8 their scales too.

    Keys lie as [N, K, D, S], so that 16 positions of one dimension fill a vector register; values
    as [N, K, S, D]. Untouched pages cost nothing.
    """
    blocks, slots, heads, size = shape_NSKD
    keys_NKDS = torch.empty((blocks, heads, size, slots), dtype=dtype)
    values_NKSD = torch.empty((blocks, heads, slots, size), dtype=dtype)
    keys_NSKD, values_NSKD = keys_NKDS.permute(0, 3, 1, 2), values_NKSD.permute(0, 2, 1, 3)
    if dtype is not torch.int8:
        return LayerKV(keys_NSKD, values_NSKD)
    scales = torch.empty((2, blocks, heads, slots))
    return LayerKV(keys_NSKD, values_NSKD, 0, scales[0], scales[1])


def is_laid_out(kv: LayerKV) -> bool:
    """Whether a layer's cache lies as the kernels want it."""
    _, slots, heads, size = kv.keys_NSKD.shape
    return (
        kv.keys_NSKD.dtype in TYPES
        and kv.keys_NSKD.stride() == (heads * size * slots, 1, size * slots, slots)
        and kv.values_NSKD.stride() == (heads * size * slots, size, slots * size, 1)
    )


def view(kv: LayerKV) -> _native.Cache:
    """A layer's cache for the kernels."""
    blocks, slots, heads, size = kv.keys_NSKD.shape
    return _native.cache(
        kv.keys_NSKD.data_ptr(),
        kv.values_NSKD.data_ptr(),
        0 if kv.key_scales_NKS is None else kv.key_scales_NKS.data_ptr(),
        0 if kv.value_scales_NKS is None else kv.value_scales_NKS.data_ptr(),
        TYPES[kv.keys_NSKD.dtype],
        *(blocks, slots, heads, size),
    )
