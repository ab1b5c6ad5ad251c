"""Compute a mixture of experts in plain torch: choose, run each expert on its tokens, sum by rank.

Shape letters as in ops, and: P choices of all tokens (T * A), N choices of one expert.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.config.mixture import Activation, ClampedSwiGLU, PlainSwiGLU
from inferno.ops.packed import PackedExperts, PackedWeight, StoredRows, unpack, unpacked

_TILE_VALUES = 1 << 18  # unpacked at a time: a megabyte of float32 stays in a core's cache


def route(logits_TX: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    logits_TX = logits_TX.float()
    ranked = logits_TX.sort(dim=-1, descending=True, stable=True)  # topk would break ties anyhow
    experts_TA = ranked.indices[:, :num_chosen]
    if renormalize:
        return experts_TA, ranked.values[:, :num_chosen].softmax(-1)
    return experts_TA, logits_TX.softmax(-1).gather(1, experts_TA)


def experts(
    x_TE: Tensor,
    experts_TA: Tensor,
    weights_TA: Tensor,
    gate_up_XFE: Tensor | PackedExperts,
    down_XEF: Tensor | PackedExperts,
    *,
    activation: Activation,
    gate_up_bias_XF: Tensor | None = None,
    down_bias_XE: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    num_chosen = experts_TA.shape[1]
    outputs_PE = x_TE.new_empty(experts_TA.numel(), x_TE.shape[1])
    for expert, choices_N in choices_by_expert(experts_TA):
        x_NE = x_TE[choices_N // num_chosen]
        gate_up_NF = multiply(x_NE, gate_up_XFE[expert], _row(gate_up_bias_XF, expert))
        hidden_NF = activate(gate_up_NF, activation)
        outputs_PE[choices_N] = multiply(hidden_NF, down_XEF[expert], _row(down_bias_XE, expert))
    combined_TE = combine(outputs_PE.view(*experts_TA.shape, -1), weights_TA)
    return combined_TE if out is None else out.copy_(combined_TE)


def choices_by_expert(experts_TA: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield each chosen expert with its choices, ascending: t * A + a for rank a of token t.

    This waits for the device once, to learn how many choices each expert has.
    """
    experts_P = experts_TA.flatten()
    counts = experts_P.bincount().tolist()
    for expert, choices_N in enumerate(torch.split(experts_P.argsort(stable=True), counts)):
        if len(choices_N):
            yield expert, choices_N


def multiply(x_NI: Tensor, weight_OI: Tensor | PackedWeight, bias_O: Tensor | None) -> Tensor:
    """Compute x @ weight.T + bias, where stored rows are unpacked a few at a time."""
    if not isinstance(weight_OI, StoredRows):
        return F.linear(x_NI, unpacked(weight_OI, x_NI.dtype), bias_O)
    num_rows, row_size = weight_OI.shape
    step = max(1, _TILE_VALUES // row_size)
    tiles = (weight_OI[start : start + step] for start in range(0, num_rows, step))
    product_NO = torch.cat([F.linear(x_NI, unpack(tile, x_NI.dtype)) for tile in tiles], dim=-1)
    return product_NO if bias_O is None else product_NO.add_(bias_O)


def combine(outputs_TAE: Tensor, weights_TA: Tensor) -> Tensor:
    """Return the weighted sum of each token's experts in float32, from rank 0 on."""
    sum_TE = torch.zeros_like(outputs_TAE[:, 0], dtype=torch.float32)
    for rank in range(weights_TA.shape[1]):
        sum_TE += outputs_TAE[:, rank].float() * weights_TA[:, rank, None]
    return sum_TE.to(outputs_TAE.dtype)


def _row(bias_XO: Tensor | None, expert: int) -> Tensor | None:
    return None if bias_XO is None else bias_XO[expert]


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
