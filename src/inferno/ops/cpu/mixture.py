"""Mixture of experts by compiled kernels. Letters as in ops."""

from __future__ import annotations

import torch
from torch import Tensor

from inferno import _native
from inferno.config.mixture import Activation, PlainSwiGLU
from inferno.ops import reference
from inferno.ops.cpu.native import empty, is_ours, matrix, rows, vector
from inferno.ops.cpu.panels import PanelExperts
from inferno.ops.packed import PackedExperts


def route(logits_TX: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    if not is_ours(logits_TX):
        return reference.route(logits_TX, num_chosen, renormalize=renormalize)
    logits_TX = rows(logits_TX)
    shape = (len(logits_TX), num_chosen)
    experts_TA, weights_TA = empty(shape, torch.int64), empty(shape, torch.float32)
    _native.route(
        matrix(logits_TX), num_chosen, renormalize, experts_TA.data_ptr(), weights_TA.data_ptr()
    )
    return experts_TA, weights_TA


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
    if not (
        is_ours(x_TE)
        and isinstance(gate_up_XFE, PanelExperts)
        and isinstance(down_XEF, PanelExperts)
    ):
        return reference.experts(
            *(x_TE, experts_TA, weights_TA, gate_up_XFE, down_XEF),
            activation=activation,
            gate_up_bias_XF=gate_up_bias_XF,
            down_bias_XE=down_bias_XE,
            out=out,
        )
    x_TE = rows(x_TE)
    experts_TA, weights_TA = experts_TA.contiguous(), weights_TA.contiguous()
    out_TE = empty(x_TE.shape, x_TE.dtype) if out is None else out
    _native.experts(
        matrix(x_TE),
        *(experts_TA.data_ptr(), weights_TA.data_ptr(), experts_TA.shape[1]),
        *(gate_up_XFE.native, down_XEF.native),
        *(vector(gate_up_bias_XF), vector(down_bias_XE)),
        _native_activation(activation),
        matrix(out_TE),
    )
    return out_TE


def _native_activation(activation: Activation) -> _native.Activation:
    if isinstance(activation, PlainSwiGLU):
        return _native.activation(0, 0.0, 0.0)
    return _native.activation(1, activation.alpha, activation.limit)
