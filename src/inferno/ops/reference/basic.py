"""The ops of every model in plain torch. Letters as in ops."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.ops.batch import Batch, LayerKV
from inferno.ops.packed import PackedWeight, unpacked


def embedding(ids_T: Tensor, weight_VE: Tensor | PackedWeight) -> Tensor:
    return F.embedding(ids_T, unpacked(weight_VE, weight_VE.dtype))


def linear(
    x_TI: Tensor,
    weight_OI: Tensor | PackedWeight,
    bias_O: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return _into(out, F.linear(x_TI, unpacked(weight_OI, x_TI.dtype), bias_O))


def gated_linear(
    x_TI: Tensor, weight_OI: Tensor | PackedWeight, bias_O: Tensor | None = None
) -> Tensor:
    return silu_mul(linear(x_TI, weight_OI, bias_O))


def silu_mul(gate_up_TF: Tensor) -> Tensor:
    """Compute silu(first half) * second half: [T, 2F] -> [T, F]."""
    gate_TF, up_TF = gate_up_TF.chunk(2, dim=-1)
    return F.silu(gate_TF) * up_TF


def cos_sin(positions_T: Tensor, frequencies_D: Tensor, factor: float) -> Tensor:
    angles_TD = positions_T.float().unsqueeze(1) * frequencies_D
    return torch.cat((angles_TD.cos(), angles_TD.sin()), dim=-1) * factor


def rms_norm(x_TE: Tensor, weight_E: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    x32_TE = x_TE.float()
    scale_T1 = torch.rsqrt(x32_TE.pow(2).mean(-1, keepdim=True) + eps)
    return _into(out, weight_E * (x32_TE * scale_T1).to(x_TE.dtype))


def add_rms_norm(
    x_TE: Tensor, residual_TE: Tensor | None, weight_E: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    summed_TE = x_TE if residual_TE is None else x_TE + residual_TE
    return rms_norm(summed_TE, weight_E, eps), summed_TE


def rotate_and_store(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    cos_sin_TD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    q_norm_D: Tensor | None = None,
    k_norm_D: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    if q_norm_D is not None:
        q_THD = rms_norm(q_THD, q_norm_D, eps)
    if k_norm_D is not None:
        k_TKD = rms_norm(k_TKD, k_norm_D, eps)
    store(rotate(k_TKD, cos_sin_TD), v_TKD, batch, kv)
    return rotate(q_THD, cos_sin_TD)


def rotate(x_THD: Tensor, cos_sin_TD: Tensor) -> Tensor:
    """Turn pair (i, i + D/2) of every head by its token's angle (RoPE, arXiv:2104.09864)."""
    cos_T1D, sin_T1D = cos_sin_TD.unsqueeze(1).chunk(2, dim=-1)
    low_THD, high_THD = x_THD.float().chunk(2, dim=-1)
    turned = (low_THD * cos_T1D - high_THD * sin_T1D, high_THD * cos_T1D + low_THD * sin_T1D)
    return torch.cat(turned, dim=-1).to(x_THD.dtype)


def store(k_TKD: Tensor, v_TKD: Tensor, batch: Batch, kv: LayerKV) -> None:
    """Write each token's key and value to its slot."""
    slots_T, block_size = batch.groups[kv.group].slots_T, kv.keys_NSKD.shape[1]
    where = (slots_T // block_size, slots_T % block_size)
    kv.keys_NSKD[where] = k_TKD.to(kv.keys_NSKD.dtype)
    kv.values_NSKD[where] = v_TKD.to(kv.values_NSKD.dtype)


def _into(out: Tensor | None, result: Tensor) -> Tensor:
    return result if out is None else out.copy_(result)
