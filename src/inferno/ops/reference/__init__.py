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
from inferno.ops.reference.drawing import draw, draw_rules, uniform
from inferno.ops.reference.memory import (
    begin,
    can_quantize,
    describe_attention,
    empty_cache,
    kernel_context,
    level,
    prefault,
    prepare,
    prepare_experts,
    recorder,
)
from inferno.ops.reference.moe import experts, route
from inferno.ops.reference.paged_attention import attention
from inferno.ops.reference.sampling import largest, log_probabilities, top_tokens
from inferno.ops.reference.stored import aligned_memory, checksum, restore

__all__ = [
    "add_rms_norm",
    "aligned_memory",
    "attention",
    "begin",
    "can_quantize",
    "checksum",
    "cos_sin",
    "describe_attention",
    "draw",
    "draw_rules",
    "embedding",
    "empty_cache",
    "experts",
    "gated_linear",
    "kernel_context",
    "largest",
    "level",
    "linear",
    "log_probabilities",
    "prefault",
    "prepare",
    "prepare_experts",
    "recorder",
    "restore",
    "rms_norm",
    "rotate",
    "rotate_and_store",
    "route",
    "silu_mul",
    "store",
    "top_tokens",
    "uniform",
]
