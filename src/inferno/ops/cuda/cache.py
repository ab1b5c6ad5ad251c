"""The KV cache as CUDA's kernels read it.

Shape letters: N blocks of the pool, S slots of a block, K key/value heads, D head size.
"""

from __future__ import annotations

import torch

from inferno.ops.batch import LayerKV

# What keys and values are quantized to, with a scale in float32 for each head of a token.
QUANTIZED = (torch.int8, torch.float8_e4m3fn)


def is_laid_out(kv: LayerKV) -> bool:
    """Return whether keys and values lie as `empty_cache` makes them, which kernels rely on."""
    _, slots, heads, size = kv.keys_NSKD.shape
    expected = (heads * slots * size, size, slots * size, 1)
    return kv.keys_NSKD.stride() == kv.values_NSKD.stride() == expected


def empty_cache(shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype) -> LayerKV:
    """Return unfilled keys and values, both seen as [N, S, K, D]; with scales where quantized.

    Both lie as [N, K, S, D]: a program of attention reads one head, so a block's positions are
    one run of S * D values for it, 4 KiB at 16 positions of 128 values in bfloat16. Scales lie as
    [N, K, S], beside each other likewise.
    """
    blocks, slots, heads, size = shape_NSKD
    keys_NKSD, values_NKSD = (
        torch.empty((blocks, heads, slots, size), dtype=dtype) for _ in range(2)
    )
    keys_NSKD, values_NSKD = keys_NKSD.transpose(1, 2), values_NKSD.transpose(1, 2)
    if dtype not in QUANTIZED:
        return LayerKV(keys_NSKD, values_NSKD)
    key_scales_NKS, value_scales_NKS = (
        torch.empty((blocks, heads, slots), dtype=torch.float32) for _ in range(2)
    )
    return LayerKV(keys_NSKD, values_NSKD, 0, key_scales_NKS, value_scales_NKS)
