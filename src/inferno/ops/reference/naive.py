"""Attention by its definition: all scores of a request at once.

Shape letters as in ops, and: L keys, P keys of one piece of them, G query heads that share a
key/value head (H / K), M rows of queries (G * T).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def naive_attention(
    q_THD: Tensor,
    keys: Iterable[Tensor],
    values: Iterable[Tensor],
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    sinks_H: Tensor | None = None,
    query_start: int = 0,
    key_start: int = 0,
) -> Tensor:
    """Compute softmax(scale * q k) v of one request: [T, H, D] -> [T, H, D] in q's dtype.

    Keys and values come in pieces [P, K, D] that join to L, and are asked for one by one. Query t
    is at position query_start + t, key l at key_start + l; each query must see some key. A window
    hides keys more than window - 1 positions before the query. Sinks as in ops.attention. Computed
    in float32, with H * T * L scores in memory. Vaswani et al., arXiv:1706.03762.
    """
    scores_KML = torch.cat([_scores(q_THD, k_PKD, scale) for k_PKD in keys], dim=-1)
    queries = range(query_start, query_start + q_THD.shape[0])
    positions = range(key_start, key_start + scores_KML.shape[-1])
    hide(scores_KML, queries, positions, window=window, causal=causal)
    weights_KML = _softmax(scores_KML, sinks_H)
    return ungroup_heads(_weighted_sum(weights_KML, values), q_THD)


def _scores(q_THD: Tensor, k_PKD: Tensor, scale: float) -> Tensor:
    q_KMD = group_heads(q_THD.float() * scale, k_PKD.shape[1])
    return torch.bmm(q_KMD, k_PKD.float().permute(1, 2, 0))


def _weighted_sum(weights_KML: Tensor, values: Iterable[Tensor]) -> Tensor:
    sums, start = [], 0
    for v_PKD in values:
        weights_KMP = weights_KML[..., start : (start := start + len(v_PKD))]
        sums.append(torch.bmm(weights_KMP, v_PKD.float().transpose(0, 1)))
    return sum(sums[1:], start=sums[0])


def _softmax(scores_KML: Tensor, sinks_H: Tensor | None) -> Tensor:
    if sinks_H is None:
        return scores_KML.softmax(-1)
    sinks_KM1 = expand_sinks(sinks_H, scores_KML)
    return torch.cat((scores_KML, sinks_KM1), dim=-1).softmax(-1)[..., :-1]


def group_heads(q_THD: Tensor, num_kv_heads: int) -> Tensor:
    """Join the rows that read one key/value head to a matrix: [T, H, D] -> [K, G * T, D]."""
    num_tokens, _, head_size = q_THD.shape
    q_TKGD = q_THD.view(num_tokens, num_kv_heads, -1, head_size)
    return q_TKGD.permute(1, 2, 0, 3).reshape(num_kv_heads, -1, head_size)


def ungroup_heads(x_KMD: Tensor, like_THD: Tensor) -> Tensor:
    """Undo group_heads: [K, G * T, D] -> [T, H, D], with the shape and dtype of `like`."""
    num_kv_heads, _, head_size = x_KMD.shape
    x_KGTD = x_KMD.view(num_kv_heads, -1, like_THD.shape[0], head_size)
    return x_KGTD.permute(2, 0, 1, 3).reshape(like_THD.shape).to(like_THD.dtype)


def expand_sinks(sinks_H: Tensor, rows_KMX: Tensor) -> Tensor:
    """Return the sink of each row's head, in float32: [H] -> [K, G * T, 1]."""
    num_kv_heads, num_rows, _ = rows_KMX.shape
    num_tokens = num_kv_heads * num_rows // len(sinks_H)
    return sinks_H.float().repeat_interleave(num_tokens).view(num_kv_heads, num_rows, 1)


def hide(
    scores_KML: Tensor, queries: range, keys: range, *, window: int | None, causal: bool
) -> None:
    """Set to -inf, in place, the scores of keys that a query must not see."""
    shape = (len(queries), len(keys))
    offset = queries.start - keys.start  # query t and key t + offset are at the same position
    # A mask is added: masked_fill_ with a mask that is broadcast takes 20 times as long on a CPU.
    if causal and offset + 1 < len(keys):
        scores_KML.view(-1, *shape).add_(scores_KML.new_full(shape, -torch.inf).triu_(offset + 1))
    if window is not None and offset + len(queries) > window:
        scores_KML.view(-1, *shape).add_(
            scores_KML.new_full(shape, -torch.inf).tril_(offset - window)
        )
