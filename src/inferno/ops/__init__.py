"""Define every op's signature, shapes and meaning; a tensor's device decides which backend runs.

Shape letters: T tokens of all requests in one row, E model width, I input and O output features,
F feed-forward width, H query heads, K key/value heads, D head size, V vocabulary, X experts,
A experts that a token chooses.

An op is as much as a kernel fuses. `reference` is the specification, in plain torch;
`backend.Backend` is what a backend must offer. Where `out` is given the result is written there and
returned. Ops that turn logits into tokens are in `tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from inferno.config.mixture import Activation, ClampedSwiGLU, PlainSwiGLU
from inferno.ops.backend import FORWARD_OPS, Backend
from inferno.ops.batch import AttentionKind, Batch, GroupTables, LayerKV
from inferno.ops.captured_graph import (
    CapturedGraph,
    GraphCapture,
    KernelContext,
    NoRoomForGraph,
    NotCapturable,
)
from inferno.ops.dispatch import BACKENDS, backend_of
from inferno.ops.drawing import Penalties, Purpose, SamplingSpec, SamplingSpecs
from inferno.ops.observing import Observer, observing
from inferno.ops.packed import (
    FILL_ROWS,
    PackedExperts,
    PackedWeight,
    RowRanges,
    Serializable,
    SerializedWeight,
    StoredRows,
    matrices,
)
from inferno.ops.ranks import Ranks
from inferno.ops.tokens import (
    argmax,
    draw,
    fill_pending,
    log_probabilities,
    penalize,
    sampling_specs,
    top_tokens,
    uniform,
)
from inferno.ops.transfers import Download, Fetched, Upload
from inferno.quantization import FORMATS, RowRange, WeightFormat

__all__ = [
    "BACKENDS",
    "FILL_ROWS",
    "FORWARD_OPS",
    "Activation",
    "AttentionKind",
    "Backend",
    "Batch",
    "CapturedGraph",
    "ClampedSwiGLU",
    "Download",
    "Fetched",
    "GraphCapture",
    "GroupTables",
    "KernelContext",
    "LayerKV",
    "NoRoomForGraph",
    "NotCapturable",
    "Observer",
    "PackedExperts",
    "PackedWeight",
    "Penalties",
    "PlainSwiGLU",
    "Purpose",
    "Ranks",
    "RowRanges",
    "SamplingSpec",
    "SamplingSpecs",
    "Serializable",
    "SerializedWeight",
    "StoredRows",
    "Upload",
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
    "float_format",
    "gated_linear",
    "graph_capture",
    "has_kernels",
    "is_asynchronous",
    "isa",
    "kernel_context",
    "linear",
    "log_probabilities",
    "matrices",
    "new_download",
    "new_upload",
    "observing",
    "pack",
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


def allocate(
    shape: torch.Size,
    dtype: torch.dtype,
    device: torch.device,
    ranges: Sequence[RowRange],
    *,
    is_invariant: bool = False,
) -> PackedWeight | PackedExperts | None:
    """Return an unfilled weight [O, I], or [X, O, I] of experts, to be filled a few rows at a time.

    dtype   of the activations that are multiplied with the weight.
    ranges  the formats of the weight's rows, from the first on; experts have a single format.
    is_invariant  whether a row's product must have the same bits beside any number of other rows;
                  see `why_not_invariant`.
    Returns None where the device's kernels want such a weight as a plain tensor.
    """
    with device:
        return BACKENDS[device.type].allocate(shape, dtype, ranges, is_invariant=is_invariant)


def pack(values: Tensor, format: WeightFormat) -> Tensor | PackedWeight | PackedExperts:
    """Return a weight [O, I], or [X, O, I] of experts, in the layout of the device's kernels.

    Floats stay a plain tensor where kernels read one. `has_kernels` tells other formats.
    """
    ranges = (RowRange(values.shape[-2], format),)
    packed = allocate(values.shape, values.dtype, values.device, ranges)
    if packed is None:
        return values
    values_XOI = values if values.ndim == 3 else values.unsqueeze(0)
    for weight, values_OI in zip(matrices(packed), values_XOI, strict=True):
        weight.fill(0, values_OI)
    return packed


def float_format(dtype: torch.dtype) -> WeightFormat:
    """Return the format of plain floats of that dtype."""
    return FORMATS[str(dtype).removeprefix("torch.")]


def deserialize(serialized: SerializedWeight) -> PackedWeight:
    """Return the weight that `serialize` described, on the CPU, perhaps in the same memory.

    Raises ValueError, KeyError, TypeError or AttributeError where the data describe no weight.
    """
    return BACKENDS["cpu"].deserialize(serialized)


def aligned_memory(num_bytes: int) -> Tensor:
    """Return unfilled memory on the CPU, [num_bytes] uint8, aligned to 64 bytes."""
    return BACKENDS["cpu"].aligned_memory(num_bytes)


def checksum(part: Tensor) -> int:
    """Return the XXH64, with seed 0, of bytes on the CPU, which reveals damage but no forgery."""
    return BACKENDS["cpu"].checksum(part)


def kernel_context(num_threads: int, activations: torch.dtype = torch.int8) -> KernelContext:
    """Make the context of an engine's ops on the CPU: a number of threads, and memory.

    activations     what activations are rounded to where they are multiplied with quantized
                    weights: int8, or bfloat16, see `why_no_bfloat16_activations`.
    Several contexts may be at work at once, each in a thread that has entered it; they take turns
    with the processor's cores. In a thread that entered none, ops run on that thread alone.
    """
    return BACKENDS["cpu"].kernel_context(num_threads, activations)


def graph_capture(device: torch.device, context: KernelContext) -> GraphCapture | None:
    """Return an object that captures forward passes on a device; None where none can be replayed.

    context  the context in which passes are captured and replayed.
    """
    return BACKENDS[device.type].graph_capture(context)


def is_asynchronous(device: torch.device) -> bool:
    """Return whether ops return before the device has computed, so steps can be launched ahead."""
    return BACKENDS[device.type].is_asynchronous()


def sent(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Begin to copy numbers of the host to new memory of a device, and don't wait for the end.

    values  of any shape and type; they may be changed afterwards.
    """
    return BACKENDS[device.type].sent(values, device)


def new_upload(num_values: int, device: torch.device) -> Upload:
    """Make memory for up to num_values numbers that each step reads, zeros at first."""
    with device:
        return BACKENDS[device.type].new_upload(num_values)


def new_download(num_values: int, device: torch.device) -> Download:
    """Make the memory through which up to num_values of a step's results come to the host."""
    with device:
        return BACKENDS[device.type].new_download(num_values)


def has_kernels(device: torch.device, format: WeightFormat) -> bool:
    """Return whether a device's kernels compute with weights in a format; int8 tells of keys too.

    Floats are quantized only where such kernels run. Packed weights without kernels are unpacked
    for every product, or become floats when loaded.
    """
    return BACKENDS[device.type].has_kernels(format)


def why_not_invariant(
    device: torch.device,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
    width: int,
) -> str | None:
    """Return why a token's logits can't have the same bits in every batch on a device; else None.

    This takes weights allocated with is_invariant, and AttentionKind.INVARIANT.

    width  of the model's residual stream.
    """
    return BACKENDS[device.type].why_not_invariant(
        dtype, kv_dtype, head_size=head_size, block_size=block_size, width=width
    )


def why_no_bfloat16_activations(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why a `kernel_context` can't have bfloat16 beside quantized weights; None if it can.

    dtype   of the activations that come and go.
    """
    return BACKENDS[device.type].why_no_bfloat16_activations(dtype)


def isa(device: torch.device, dtype: torch.dtype | None = None) -> str:
    """Name the compiled kernels that the device runs, such as avx512_bf16; or `reference`.

    With a dtype, name the kernels that compute activations of that dtype.
    """
    return BACKENDS[device.type].isa(dtype)


def describe_attention(
    device: torch.device,
    kind: AttentionKind,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
) -> str:
    """Return in words what computes attention on a device and, if there was a choice, why."""
    return BACKENDS[device.type].describe_attention(
        kind, dtype, kv_dtype, head_size=head_size, block_size=block_size
    )


def empty_cache(
    shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> LayerKV:
    """Return unfilled keys and values of a layer, in the layout of the device's kernels.

    int8 needs kernels (`has_kernels`), and float8_e4m3fn those of CUDA.
    """
    with device:
        return BACKENDS[device.type].empty_cache(shape_NSKD, dtype)


def prefault(kv: Sequence[LayerKV], num_bytes: int) -> object:
    """Make the first pages of caches ready for writing, in the background.

    num_bytes  at most, of all caches together.
    It goes on until it is done or the returned object is freed.
    """
    return BACKENDS[kv[0].keys_NSKD.device.type].prefault(kv, num_bytes)


def embedding(ids_T: Tensor, weight_VE: Tensor | PackedWeight) -> Tensor:
    """Take rows of the embedding table: [T] int64 -> [T, E], in the weight's dtype.

    Rows of a packed weight have the dtype of its activations.
    """
    return backend_of(ids_T).embedding(ids_T, weight_VE)


def linear(
    x_TI: Tensor,
    weight_OI: Tensor | PackedWeight,
    bias_O: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Compute x @ weight.T + bias: [T, I] -> [T, O], in x's dtype or out's."""
    return backend_of(x_TI).linear(x_TI, weight_OI, bias_O, out=out)


def rms_norm(x_TE: Tensor, weight_E: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """Compute x / sqrt(mean(x²) + eps) * weight over the last axis, in float32.

    This is RMSNorm (arXiv:1910.07467). The normalized value is rounded to x's dtype before it is
    multiplied with the weight, as checkpoints expect.
    """
    return backend_of(x_TE).rms_norm(x_TE, weight_E, eps, out=out)


def add_rms_norm(
    x_TE: Tensor, residual_TE: Tensor | None, weight_E: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return (rms_norm(x + residual), x + residual): add a block's output to the residual stream.

    None is the empty stream before the first block: it gives (rms_norm(x), x).
    """
    return backend_of(x_TE).add_rms_norm(x_TE, residual_TE, weight_E, eps)


def gated_linear(
    x_TI: Tensor, weight_OI: Tensor | PackedWeight, bias_O: Tensor | None = None
) -> Tensor:
    """Compute silu(first half) * second half of `linear`'s result: [T, I] -> [T, O / 2].

    The result is SwiGLU's two products, joined (arXiv:2002.05202).
    """
    return backend_of(x_TI).gated_linear(x_TI, weight_OI, bias_O)


def cos_sin(positions_T: Tensor, frequencies_D: Tensor, factor: float) -> Tensor:
    """Compute the cosines and sines of each position's angles: [T] int64 -> [T, D] float32.

    An angle is position * frequency. D/2 cosines, then D/2 sines, all times factor.
    """
    return backend_of(positions_T).cos_sin(positions_T, frequencies_D, factor)


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
    return backend_of(q_THD).rotate_and_store(
        q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv, q_norm_D=q_norm_D, k_norm_D=k_norm_D, eps=eps
    )


def attention(
    q_THD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    scale: float,
    sinks_H: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attend causally to the cache, this step's tokens included: [T, H, D] -> [T, H, D].

    A token at position p sees positions max(0, p - window + 1) to p of its own request, read from
    the cache as stored. Query head h reads key/value head h // (H / K). softmax(scale * q k) in
    float32; a sink is one more logit per head that takes probability and gives no value.
    """
    return backend_of(q_THD).attention(q_THD, batch, kv, scale=scale, sinks_H=sinks_H, out=out)


def route(logits_TX: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """Choose each token's experts, by rank, and weigh them: ([T, A] int64, [T, A] float32).

    The highest logits are chosen; of equal ones, the expert of lower index. Weights are the softmax
    over the chosen logits where renormalized, else those of the softmax over all; in float32.
    """
    return backend_of(logits_TX).route(logits_TX, num_chosen, renormalize=renormalize)


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
    """Sum each token's experts, feed-forward networks, by their weights: [T, E] -> [T, E].

    gate_up_XFE   [X, 2F, E]: F rows of gates, then F rows of ups.
    down_XEF      [X, E, F].
    An expert is computed for all its tokens together, and not at all without tokens; products are
    rounded to x's dtype. Each token's sum is made in float32, from rank 0 on. A packed weight is
    unpacked a tile at a time, never as a whole. Stages: multiply, activate, multiply, combine.
    """
    return backend_of(x_TE).experts(
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


def all_gather(x: Tensor, ranks: Ranks) -> Tensor:
    """Concatenate the tensors of all ranks: [..., P] of each -> [..., ranks * P].

    All have one shape and dtype. Every rank calls the collective ops, in the same order.
    """
    return backend_of(x).all_gather(x, ranks)


def all_reduce(x: Tensor, ranks: Ranks) -> Tensor:
    """Add the tensors of all ranks, which have one shape and dtype, and return the sum to each.

    Where ranks are invariant, the sum is made in float32 from rank 0 on, and rounded once; else in
    the order and precision that the library finds fastest. All ranks get the same bits.
    """
    return backend_of(x).all_reduce(x, ranks)
