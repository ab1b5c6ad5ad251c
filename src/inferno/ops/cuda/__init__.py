"""CUDA's backend: kernels in Triton, and the reference for what they don't take.

One source of a kernel serves every NVIDIA chip from SM80 on. Without a GPU the same source runs in
Triton's interpreter (TRITON_INTERPRET=1, set before this module is imported), on tensors of the
CPU, and can be compiled to machine code. Shape letters as in ops.
"""

from __future__ import annotations

from inferno.ops.cuda.cache import empty_cache
from inferno.ops.cuda.captured_graph import graph_capture
from inferno.ops.cuda.logits_processing import penalize
from inferno.ops.cuda.mixture import experts
from inferno.ops.cuda.norms import add_rms_norm, rms_norm
from inferno.ops.cuda.packed_embedding import embedding
from inferno.ops.cuda.packed_weights import allocate, has_kernels
from inferno.ops.cuda.paged_attention import (
    attention,
    describe_attention,
    why_not_invariant,
)
from inferno.ops.cuda.products import gated_linear, linear
from inferno.ops.cuda.random_numbers import uniform
from inferno.ops.cuda.rotation import cos_sin, rotate_and_store
from inferno.ops.cuda.routing import route
from inferno.ops.cuda.sampling import argmax, draw, log_probabilities, sampling_specs, top_tokens
from inferno.ops.cuda.streams import is_asynchronous, new_download, new_upload, sent
from inferno.ops.reference import (
    aligned_memory,
    all_gather,
    all_reduce,
    checksum,
    deserialize,
    fill_pending,
    isa,
    kernel_context,
    prefault,
    why_no_bfloat16_activations,
)

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
