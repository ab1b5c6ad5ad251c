"""Every function of the contract in plain torch: the specification of what kernels compute."""

from __future__ import annotations

from inferno.ops.reference.basic import (
    add_rms_norm,
    cos_sin,
    embedding,
    gated_linear,
    linear,
    rms_norm,
    rotate,
    rotate_and_store,
    silu_mul,
    store,
)
from inferno.ops.reference.collectives import all_gather, all_reduce
from inferno.ops.reference.memory import (
    allocate,
    describe_attention,
    empty_cache,
    graph_capture,
    has_kernels,
    is_asynchronous,
    isa,
    kernel_context,
    new_download,
    new_upload,
    prefault,
    sent,
    why_no_bfloat16_activations,
    why_not_invariant,
)
from inferno.ops.reference.moe import experts, route
from inferno.ops.reference.paged_attention import attention
from inferno.ops.reference.sampling import (
    argmax,
    draw,
    fill_pending,
    log_probabilities,
    penalize,
    sampling_specs,
    top_tokens,
    uniform,
)
from inferno.ops.reference.stored import aligned_memory, checksum, deserialize

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
    "rotate",
    "rotate_and_store",
    "route",
    "sampling_specs",
    "sent",
    "silu_mul",
    "store",
    "top_tokens",
    "uniform",
    "why_no_bfloat16_activations",
    "why_not_invariant",
]
