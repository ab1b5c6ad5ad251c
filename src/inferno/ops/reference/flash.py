"""FlashAttention-2 in plain torch: attention tile by tile, with an online softmax.

Shape letters as in ops, and: L keys, G query heads that share a key/value head (H / K), M rows of
queries (G * T).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.errors import InvalidRequest
from inferno.ops.reference.naive import expand_sinks, group_heads, hide, ungroup_heads

LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class FlashAttentionConfig:
    """The tiles and choices of flash attention. Bad values raise InvalidRequest.

    block_size_q, block_size_kv  queries and keys of a tile: H * block_size_q * block_size_kv scores
                                 lie in memory at once.
    causal                       a query sees no key after its own position.
    softmax_scale                the factor of q k; None is 1/sqrt(D).
    """

    block_size_q: int = 128
    block_size_kv: int = 128
    causal: bool = True
    softmax_scale: float | None = None

    def __post_init__(self) -> None:
        for name in ("block_size_q", "block_size_kv"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise _refuse(name, value, "a positive integer")
        if type(self.causal) is not bool:
            raise _refuse("causal", self.causal, "true or false")
        scale = self.softmax_scale
        if scale is not None and not (type(scale) in (int, float) and math.isfinite(scale)):
            raise _refuse("softmax_scale", scale, "a finite number or None")


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {expected}, not {value!r}", param=name)


def flash_attention(
    q_THD: Tensor,
    k_LKD: Tensor,
    v_LKD: Tensor,
    config: FlashAttentionConfig,
    *,
    window: int | None = None,
    sinks_H: Tensor | None = None,
    query_start: int = 0,
    key_start: int = 0,
) -> Tensor:
    """Compute naive_attention in O(T + L) memory: [T, H, D] -> [T, H, D] in q's dtype.

    Query t is at position query_start + t, key l at key_start + l; each query must see some key. A
    window hides keys more than window - 1 positions before the query. Sinks as in ops.attention.
    Computed in float32. Tiles of keys begin at multiples of block_size_kv, so a query's sums run in
    one order however its prompt was cut. Dao, "FlashAttention-2", arXiv:2307.08691, algorithm 1.
    """
    scale = q_THD.shape[-1] ** -0.5 if config.softmax_scale is None else config.softmax_scale
    queries = range(query_start, query_start + q_THD.shape[0])
    keys = range(key_start, key_start + k_LKD.shape[0])
    out_THD = torch.empty_like(q_THD)
    for start in range(0, q_THD.shape[0], config.block_size_q):
        rows = slice(start, start + config.block_size_q)
        q_KMD = group_heads(q_THD[rows].float() * (scale * LOG2_E), k_LKD.shape[1])
        softmax = _OnlineSoftmax(q_KMD, sinks_H)
        for tile in visible_tiles(queries[rows], keys, window, config):
            here = slice(tile.start - key_start, tile.stop - key_start)
            scores_KML = torch.bmm(q_KMD, k_LKD[here].float().permute(1, 2, 0))
            hide(scores_KML, queries[rows], tile, window=window, causal=config.causal)
            softmax.add(scores_KML, v_LKD[here].float().transpose(0, 1))
        out_THD[rows] = ungroup_heads(softmax.result(), q_THD[rows])
    return out_THD


def visible_tiles(
    queries: range, keys: range, window: int | None, config: FlashAttentionConfig
) -> Iterator[range]:
    """Yield ranges of the keys that some query sees, cut at multiples of block_size_kv."""
    first = keys.start if window is None else max(keys.start, queries.start - window + 1)
    last = min(keys.stop, queries.stop) if config.causal else keys.stop
    size = config.block_size_kv
    for start in range(first - first % size, last, size):
        yield range(max(start, first), min(start + size, last))


class _OnlineSoftmax:
    """The sums of values weighted by 2^score, rescaled when a tile of scores raises the maximum.

    In base 2 as in GPU kernels; and on a CPU torch.exp takes 40 times as long where it underflows.
    """

    def __init__(self, q_KMD: Tensor, sinks_H: Tensor | None) -> None:
        rows_KM1 = q_KMD[..., :1]
        self.sum_KMD = torch.zeros_like(q_KMD)
        if sinks_H is None:
            # Finite: a row that sees nothing in its first tile needs exp(-inf), not exp(inf - inf).
            self.maximum_KM1 = torch.full_like(rows_KM1, torch.finfo(torch.float32).min)
            self.total_KM1 = torch.zeros_like(rows_KM1)
        else:  # a sink is a score that came before all keys, and brought no value
            self.maximum_KM1 = expand_sinks(sinks_H, q_KMD) * LOG2_E
            self.total_KM1 = torch.ones_like(rows_KM1)

    def add(self, scores_KML: Tensor, v_KLD: Tensor) -> None:
        """Take in one tile; its scores are overwritten."""
        maximum_KM1 = torch.maximum(self.maximum_KM1, scores_KML.amax(-1, keepdim=True))
        weights_KML = scores_KML.sub_(maximum_KM1).exp2_()
        shrink_KM1 = (self.maximum_KM1 - maximum_KM1).exp2_()
        self.maximum_KM1 = maximum_KM1
        self.total_KM1 = self.total_KM1 * shrink_KM1 + weights_KML.sum(-1, keepdim=True)
        self.sum_KMD.mul_(shrink_KM1).baddbmm_(weights_KML, v_KLD)

    def result(self) -> Tensor:
        """Return the weighted mean of the values: [K, M, D]."""
        return self.sum_KMD / self.total_KM1
