"""The steps of a decoder layer by their definitions; they share no code with ops or layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return a tensor in float32 at least, in which sums and roots are made."""
    return x if x.dtype is torch.float64 else x.float()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    mean_square = wide(x).square().mean(dim=-1, keepdim=True)
    return weight * (wide(x) / (mean_square + eps).sqrt()).to(x.dtype)


def rotate(x_THD: Tensor, cos_sin_TD: Tensor) -> Tensor:
    """Turn each pair (i, i + D/2) by its position's angle."""
    half = x_THD.shape[-1] // 2
    cos, sin = (part[:, None, :].to(x_THD.dtype) for part in cos_sin_TD.chunk(2, dim=-1))
    a, b = x_THD[..., :half], x_THD[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def can_see(num_tokens: int, window: int | None) -> Tensor:
    """Return whether the query of a row sees the key of a column: [T, T]."""
    back = torch.arange(num_tokens)[:, None] - torch.arange(num_tokens)
    return (back >= 0) & (back < (window or num_tokens))


def attention_scores(
    q_THD: Tensor, k_TKD: Tensor, *, scale: float, is_visible: Tensor | None
) -> Tensor:
    """Return scale * q k, -inf where nothing is to be seen: [H, T, L]."""
    group = q_THD.shape[1] // k_TKD.shape[1]
    k_LHD = k_TKD.repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,lhd->htl", q_THD, k_LHD) * scale
    return scores if is_visible is None else scores.masked_fill(~is_visible, -math.inf)


def mix(scores_HTL: Tensor, v_LKD: Tensor, sinks_H: Tensor | None = None) -> Tensor:
    """Return softmax(scores) v: [T, H*D]. A sink is one more score per head, with no value."""
    scores = wide(scores_HTL)
    if sinks_H is not None:
        sink = wide(sinks_H)[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat((scores, sink), dim=-1)
    weights = scores.softmax(dim=-1)[..., : v_LKD.shape[0]].to(v_LKD.dtype)
    v_LHD = v_LKD.repeat_interleave(len(scores) // v_LKD.shape[1], dim=1)
    return torch.einsum("htl,lhd->thd", weights, v_LHD).flatten(1)


def swiglu(gate_TF: Tensor, up_TF: Tensor) -> Tensor:
    return gate_TF * torch.sigmoid(gate_TF) * up_TF


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = x @ weight.T
    return product if bias is None else product + bias
