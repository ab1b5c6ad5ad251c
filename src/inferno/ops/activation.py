"""The gated activations of feed-forward networks: which there are, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PlainSwiGLU:
    """The activation silu(gate) * up (arXiv:2002.05202)."""


@dataclass(frozen=True, slots=True)
class ClampedSwiGLU:
    """The clamped activation (up + 1) * gate * sigmoid(alpha * gate) (gpt-oss, arXiv:2508.10925).

    limit  gate is at most this, up lies between plus and minus this.
    """

    alpha: float = 1.702
    limit: float = 7.0


Activation = PlainSwiGLU | ClampedSwiGLU


def activate(gate_up_NF: Tensor, activation: Activation) -> Tensor:
    """Gate the second half by the first: [N, 2F] -> [N, F]."""
    gate_NF, up_NF = gate_up_NF.chunk(2, dim=-1)
    match activation:
        case PlainSwiGLU():
            return F.silu(gate_NF) * up_NF
        case ClampedSwiGLU(alpha=alpha, limit=limit):
            gate_NF = gate_NF.float().clamp(max=limit)
            up_NF = up_NF.float().clamp(-limit, limit)
            gated_NF = (up_NF + 1) * gate_NF * torch.sigmoid(alpha * gate_NF)
            return gated_NF.to(gate_up_NF.dtype)
