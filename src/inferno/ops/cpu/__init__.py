"""The CPU's backend: compiled kernels, and the reference for what they don't take.

Kernels take activations in float32 and bfloat16, weights in panels, and a cache that lies as
`empty_cache` makes it; float16, plain weights and attention by name are the reference's. Shape
letters as in ops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inferno import _native
from inferno.ops import reference
from inferno.ops.cpu.attention import attention, describe_attention, rotate_and_store
from inferno.ops.cpu.cache import empty_cache, prefault
from inferno.ops.cpu.captured_graph import graph_capture
from inferno.ops.cpu.huge_pages import weight_memory as aligned_memory
from inferno.ops.cpu.mixture import experts, route
from inferno.ops.cpu.native import (
    COMPUTED,
    TYPES,
    empty,
    is_ours,
    kernel_context,
    matrix,
    rows,
    vector,
)
from inferno.ops.cpu.panels import (
    PanelWeight,
    allocate,
    deserialize,
)
from inferno.ops.cpu.sampling import (
    argmax,
    draw,
    log_probabilities,
    sampling_specs,
    top_tokens,
    uniform,
)
from inferno.ops.packed import PackedWeight, RowRanges
from inferno.ops.reference import (
    all_gather,
    all_reduce,
    fill_pending,
    is_asynchronous,
    new_download,
    new_upload,
    sent,
)
from inferno.ops.reference.sampling import penalize
from inferno.quantization import WeightFormat

__all__ = [
    "add_rms_norm",
    "aligned_memory",
    "all_gather",
    "all_reduce",
    "allocate",
    "argmax",
    "attention",
    "checksum",
    "cos_sin",
    "describe_attention",
    "deserialize",
    "draw",
    "embedding",
    "empty_cache",
    "experts",
    "fill_pending",
    "gated_linear",
    "graph_capture",
    "has_kernels",
    "is_asynchronous",
    "isa",
    "kernel_context",
    "linear",
    "log_probabilities",
    "new_download",
    "new_upload",
    "penalize",
    "prefault",
    "rms_norm",
    "rotate_and_store",
    "route",
    "sampling_specs",
    "sent",
    "top_tokens",
    "uniform",
    "why_no_bfloat16_activations",
    "why_not_invariant",
]

_SILU = _native.activation(0, 0.0, 0.0)
# A choice: the product of fewer rows, with both halves, stays in the caches anyway.
_GATED_FROM_ROWS = 16
_GATED_OUTPUTS = 32  # whose two halves are whole panels


def has_kernels(format: WeightFormat) -> bool:
    return format.packing is not None


def why_not_invariant(
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
    width: int,
) -> str | None:
    """Return None where kernels compute, which sum in one order, else the reference's answer."""
    if dtype in COMPUTED and kv_dtype in TYPES:
        return None
    return reference.why_not_invariant(
        dtype, kv_dtype, head_size=head_size, block_size=block_size, width=width
    )


def why_no_bfloat16_activations(dtype: torch.dtype) -> str | None:
    if dtype not in COMPUTED:
        return reference.why_no_bfloat16_activations(dtype)
    return None if _native.has_matrix_registers() else f"the kernels that run are {_native.isa()}"


def isa(dtype: torch.dtype | None = None) -> str:
    return _native.isa() if dtype is None or dtype in COMPUTED else reference.isa()


def checksum(part: Tensor) -> int:
    return _native.xxh64(part.data_ptr(), part.nbytes)


def embedding(ids_T: Tensor, weight_VE: Tensor | PackedWeight) -> Tensor:
    if not isinstance(weight_VE, PanelWeight):
        return reference.embedding(ids_T, weight_VE)
    out_TE = empty((len(ids_T), weight_VE.shape[1]), weight_VE.dtype)
    _native.embedding(ids_T.data_ptr(), weight_VE.native, matrix(out_TE))
    return out_TE


def linear(
    x_TI: Tensor,
    weight_OI: Tensor | PackedWeight,
    bias_O: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    if not isinstance(weight_OI, PanelWeight):
        if isinstance(weight_OI, RowRanges):
            return _linear_by_range(x_TI, weight_OI, bias_O, out)
        return reference.linear(x_TI, weight_OI, bias_O, out=out)
    out_TO = empty((len(x_TI), weight_OI.shape[0]), x_TI.dtype) if out is None else out
    x_TI = rows(x_TI)
    _native.linear(matrix(x_TI), weight_OI.native, vector(bias_O), matrix(out_TO))
    return out_TO


def _linear_by_range(
    x_TI: Tensor, weight_OI: RowRanges, bias_O: Tensor | None, out: Tensor | None
) -> Tensor:
    """Compute each range's outputs into their columns of one result."""
    out_TO = empty((len(x_TI), weight_OI.shape[0]), x_TI.dtype) if out is None else out
    x_TI = rows(x_TI)
    for part, outputs in zip(weight_OI.parts, weight_OI.rows(), strict=True):
        part_bias_O = None if bias_O is None else bias_O[outputs]
        linear(x_TI, part, part_bias_O, out=out_TO[:, outputs])
    return out_TO


def gated_linear(
    x_TI: Tensor, weight_OI: Tensor | PackedWeight, bias_O: Tensor | None = None
) -> Tensor:
    is_small = len(x_TI) < _GATED_FROM_ROWS
    if not isinstance(weight_OI, PanelWeight) or is_small or weight_OI.shape[0] % _GATED_OUTPUTS:
        return silu_mul(linear(x_TI, weight_OI, bias_O))
    out_TF = empty((len(x_TI), weight_OI.shape[0] // 2), x_TI.dtype)
    x_TI = rows(x_TI)
    _native.gated_linear(matrix(x_TI), weight_OI.native, vector(bias_O), _SILU, matrix(out_TF))
    return out_TF


def cos_sin(positions_T: Tensor, frequencies_D: Tensor, factor: float) -> Tensor:
    num_tokens, half = len(positions_T), len(frequencies_D)
    out_TD = empty((num_tokens, 2 * half), frequencies_D.dtype)
    batch = _native.batch(0, num_tokens, 0, 0, 0, 0, 0, 0, positions_T.data_ptr(), 0)
    _native.cos_sin(batch, frequencies_D.data_ptr(), half, factor, out_TD.data_ptr())
    return out_TD


def rms_norm(x_TE: Tensor, weight_E: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    if not is_ours(x_TE) or x_TE.ndim != 2:
        return reference.rms_norm(x_TE, weight_E, eps, out=out)
    x_TE = rows(x_TE)
    out_TE = empty(x_TE.shape, x_TE.dtype) if out is None else out
    _native.rms_norm(matrix(x_TE), 0, 0, vector(weight_E), eps, matrix(out_TE))
    return out_TE


def add_rms_norm(
    x_TE: Tensor, residual_TE: Tensor | None, weight_E: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    if residual_TE is None:
        return rms_norm(x_TE, weight_E, eps), x_TE
    if not is_ours(x_TE):
        return reference.add_rms_norm(x_TE, residual_TE, weight_E, eps)
    x_TE, residual_TE = rows(x_TE), residual_TE.contiguous()
    normed_TE, summed_TE = empty(x_TE.shape, x_TE.dtype), empty(x_TE.shape, x_TE.dtype)
    _native.rms_norm(
        matrix(x_TE),
        residual_TE.data_ptr(),
        summed_TE.data_ptr(),
        vector(weight_E),
        eps,
        matrix(normed_TE),
    )
    return normed_TE, summed_TE


def silu_mul(gate_up_TF: Tensor) -> Tensor:
    """Compute silu(first half) * second half: [T, 2F] -> [T, F]."""
    if not is_ours(gate_up_TF):
        return reference.silu_mul(gate_up_TF)
    gate_up_TF = rows(gate_up_TF)
    num_tokens, width = gate_up_TF.shape
    out_TF = empty((num_tokens, width // 2), gate_up_TF.dtype)
    _native.gate(matrix(gate_up_TF), _SILU, matrix(out_TF))
    return out_TF
