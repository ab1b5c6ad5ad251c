"""The contract: every op's signature, shapes and meaning; a tensor's device decides the backend.

Shape letters: T tokens of all requests in one row, E model width, I input and O output features,
F feed-forward width, H query heads, K key/value heads, D head size, V vocabulary, X experts,
A experts that a token chooses.

The ops stand where kernels want to be fused. `reference` is the specification, in plain torch.
Where `out` is given the result is written there and returned.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from inferno.ops import reference
from inferno.ops.activation import Activation, ClampedSwiGLU, PlainSwiGLU
from inferno.ops.batch import AttentionKind, Batch, GroupTables, LayerKV
from inferno.ops.packed import MXFP4Weight

__all__ = [
    "Activation",
    "AttentionKind",
    "Batch",
    "ClampedSwiGLU",
    "GroupTables",
    "LayerKV",
    "MXFP4Weight",
    "PlainSwiGLU",
    "add_rms_norm",
    "attention",
    "embedding",
    "experts",
    "linear",
    "rms_norm",
    "rotate_and_store",
    "route",
    "silu_mul",
]

BACKENDS: dict[str, ModuleType] = {"cpu": reference, "cuda": reference, "mps": reference}


def embedding(ids_T: Tensor, weight_VE: Tensor) -> Tensor:
    """Rows of the embedding table: [T] int64 -> [T, E]."""
    result: Tensor = _backend(ids_T).embedding(ids_T, weight_VE)
    return result


def linear(
    x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """x @ weight.T + bias: [T, I] -> [T, O], in x's dtype."""
    result: Tensor = _backend(x_TI).linear(x_TI, weight_OI, bias_O, out=out)
    return result


def rms_norm(x_TE: Tensor, weight_E: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight over the last axis, computed in float32 (arXiv:1910.07467).

    The normalized value is rounded to x's dtype before it meets the weight, as checkpoints expect.
    """
    result: Tensor = _backend(x_TE).rms_norm(x_TE, weight_E, eps, out=out)
    return result


def add_rms_norm(
    x_TE: Tensor, residual_TE: Tensor, weight_E: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """(rms_norm(x + residual), x + residual): a block's output joins the residual stream."""
    result: tuple[Tensor, Tensor] = _backend(x_TE).add_rms_norm(x_TE, residual_TE, weight_E, eps)
    return result


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
    """Normalize q and k per head where weights are given, rotate both, store k and v in the cache.

    cos_sin_TD  float32: D/2 cosines, then D/2 sines, of each token's position, scaled as YaRN asks.
                Pair i of a head is (i, i + D/2), as Hugging Face checkpoints lay them out.
    Returns the rotated q_THD. Stages: rms_norm, rotate, store.
    """
    result: Tensor = _backend(q_THD).rotate_and_store(
        q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv, q_norm_D=q_norm_D, k_norm_D=k_norm_D, eps=eps
    )
    return result


def attention(
    q_THD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    scale: float,
    sinks_H: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Causal attention over the cache, this step's tokens included: [T, H, D] -> [T, H, D].

    A token at position p sees positions max(0, p - window + 1) to p of its own request, read from
    the cache as stored. Query head h reads key/value head h // (H / K). softmax(scale * q k) in
    float32; a sink is one more logit per head that takes probability and gives no value.
    """
    result: Tensor = _backend(q_THD).attention(
        q_THD, batch, kv, scale=scale, sinks_H=sinks_H, out=out
    )
    return result


def silu_mul(gate_up_TF: Tensor, *, out: Tensor | None = None) -> Tensor:
    """silu(first half) * second half: [T, 2F] -> [T, F] (SwiGLU, arXiv:2002.05202)."""
    result: Tensor = _backend(gate_up_TF).silu_mul(gate_up_TF, out=out)
    return result


def route(logits_TX: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """Each token's experts by rank, and their weights: ([T, A] int64, [T, A] float32).

    The highest logits are chosen; of equal ones, the expert of lower index. Weights are the softmax
    over the chosen logits where renormalized, else those of the softmax over all; in float32.
    """
    result: tuple[Tensor, Tensor] = _backend(logits_TX).route(
        logits_TX, num_chosen, renormalize=renormalize
    )
    return result


def experts(
    x_TE: Tensor,
    experts_TA: Tensor,
    weights_TA: Tensor,
    gate_up_XFE: Tensor | MXFP4Weight,
    down_XEF: Tensor | MXFP4Weight,
    *,
    activation: Activation,
    gate_up_bias_XF: Tensor | None = None,
    down_bias_XE: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The weighted sum of each token's experts, which are feed-forward networks: [T, E] -> [T, E].

    gate_up_XFE   [X, 2F, E]: F rows of gates, then F rows of ups.
    down_XEF      [X, E, F].
    An expert is computed for its tokens together, one without tokens not at all; products are
    rounded to x's dtype. Each token's sum is made in float32, from rank 0 on. A packed weight is
    unpacked a tile at a time, never as a whole. Stages: multiply, activate, multiply, combine.
    """
    result: Tensor = _backend(x_TE).experts(
        x_TE,
        experts_TA,
        weights_TA,
        gate_up_XFE,
        down_XEF,
        activation=activation,
        gate_up_bias_XF=gate_up_bias_XF,
        down_bias_XE=down_bias_XE,
        out=out,
    )
    return result


def _backend(x: Tensor) -> ModuleType:
    return BACKENDS[x.device.type]
