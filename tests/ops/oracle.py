"""Attention by its definition in float64: no tiles, no blocks, no batch."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(
    q_THD: Tensor,
    k_LKD: Tensor,
    v_LKD: Tensor,
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    sinks_H: Tensor | None = None,
    query_start: int = 0,
) -> Tensor:
    """softmax(scale * q k) v, key l at position l: [T, H, D] -> [T, H, D] in float64."""
    group_size = q_THD.shape[1] // k_LKD.shape[1]
    k_LHD = k_LKD.double().repeat_interleave(group_size, dim=1)
    v_LHD = v_LKD.double().repeat_interleave(group_size, dim=1)
    positions_T1 = query_start + torch.arange(len(q_THD)).unsqueeze(1)
    distance_TL = positions_T1 - torch.arange(len(k_LKD))
    hidden_TL = torch.zeros_like(distance_TL, dtype=torch.bool)
    if causal:
        hidden_TL |= distance_TL < 0
    if window is not None:
        hidden_TL |= distance_TL >= window
    weights_HTL = torch.exp(scale * torch.einsum("thd,lhd->htl", q_THD.double(), k_LHD))
    weights_HTL[:, hidden_TL] = 0
    total_HT = weights_HTL.sum(-1)
    if sinks_H is not None:
        total_HT += sinks_H.double().exp().unsqueeze(1)
    return torch.einsum("htl,lhd->thd", weights_HTL / total_HT.unsqueeze(-1), v_LHD)
