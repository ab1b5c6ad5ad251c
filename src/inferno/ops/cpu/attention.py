"""Attention over the cache, and what is stored there, by compiled kernels. Letters as in ops."""

from __future__ import annotations

import torch
from torch import Tensor

from inferno import _native
from inferno.ops import reference
from inferno.ops.batch import AttentionKind, Batch, LayerKV
from inferno.ops.cpu import cache
from inferno.ops.cpu.native import COMPUTED, empty, is_ours, matrix, rows, vector


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
    if not (is_ours(q_THD) and cache.is_laid_out(kv)):
        norms = {"q_norm_D": q_norm_D, "k_norm_D": k_norm_D}
        return reference.rotate_and_store(
            q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv, **norms, eps=eps
        )
    q_THD, k_TKD, v_TKD = rows(q_THD), rows(k_TKD), rows(v_TKD)
    out_THD = empty(q_THD.shape, q_THD.dtype)
    _native.rotate_and_store(
        *(matrix(q_THD), matrix(k_TKD), matrix(v_TKD)),
        cos_sin_TD.data_ptr(),
        *(vector(q_norm_D), vector(k_norm_D), eps),
        q_THD.shape[1],
        *(_view(batch, kv), cache.view(kv)),
        matrix(out_THD),
    )
    return out_THD


def attention(
    q_THD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    scale: float,
    sinks_H: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    if batch.attention.is_by_name or not (is_ours(q_THD) and cache.is_laid_out(kv)):
        return reference.attention(q_THD, batch, kv, scale=scale, sinks_H=sinks_H, out=out)
    q_THD = rows(q_THD)
    out_THD = empty(q_THD.shape, q_THD.dtype) if out is None else out
    _native.attention(
        matrix(q_THD),
        *(q_THD.shape[1], scale, vector(sinks_H)),
        *(_view(batch, kv), cache.view(kv)),
        matrix(out_THD),
    )
    return out_THD


def describe_attention(
    kind: AttentionKind,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
) -> str:
    if not kind.is_by_name and dtype in COMPUTED:
        return f"compiled ({_native.isa()})"
    described = reference.describe_attention(
        kind, dtype, kv_dtype, head_size=head_size, block_size=block_size
    )
    computed = " and ".join(sorted(str(one).removeprefix("torch.") for one in COMPUTED))
    return described if kind.is_by_name else f"{described}, as kernels take {computed}"


def _view(batch: Batch, kv: LayerKV) -> _native.Batch:
    tables = batch.groups[kv.group]
    return _native.batch(
        len(batch.context_lens_R),
        len(batch.positions_T),
        tables.window or 0,
        batch.query_starts_R.data_ptr(),
        batch.context_lens_R.data_ptr(),
        tables.block_tables_RB.data_ptr(),
        tables.block_tables_RB.stride(0),
        tables.slots_T.data_ptr(),
        batch.positions_T.data_ptr(),
        batch.token_ids_T.data_ptr(),
    )
