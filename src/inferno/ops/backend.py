"""Define the functions that a backend must have, as protocols that the type checker enforces.

Meaning and shapes are described at the functions of the same names in `ops` and `ops.tokens`, which
also take a device where no tensor tells it. A backend gets one only where it serves several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from inferno.config.mixture import Activation
from inferno.ops.batch import AttentionKind, Batch, LayerKV
from inferno.ops.captured_graph import GraphCapture, KernelContext
from inferno.ops.drawing import Penalties, Purpose, SamplingSpec, SamplingSpecs
from inferno.ops.packed import PackedExperts, PackedWeight, SerializedWeight
from inferno.ops.ranks import Ranks
from inferno.ops.transfers import Download, Upload
from inferno.quantization import RowRange, WeightFormat


class ForwardOps(Protocol):
    """The ops that make up a forward pass, which observers see."""

    def embedding(self, ids_T: Tensor, weight_VE: Tensor | PackedWeight) -> Tensor: ...

    def cos_sin(self, positions_T: Tensor, frequencies_D: Tensor, factor: float) -> Tensor: ...

    def rms_norm(
        self, x_TE: Tensor, weight_E: Tensor, eps: float, *, out: Tensor | None = None
    ) -> Tensor: ...

    def add_rms_norm(
        self, x_TE: Tensor, residual_TE: Tensor | None, weight_E: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]: ...

    def linear(
        self,
        x_TI: Tensor,
        weight_OI: Tensor | PackedWeight,
        bias_O: Tensor | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor: ...

    def gated_linear(
        self, x_TI: Tensor, weight_OI: Tensor | PackedWeight, bias_O: Tensor | None = None
    ) -> Tensor: ...

    def rotate_and_store(
        self,
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
    ) -> Tensor: ...

    def attention(
        self,
        q_THD: Tensor,
        batch: Batch,
        kv: LayerKV,
        *,
        scale: float,
        sinks_H: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor: ...

    def route(
        self, logits_TX: Tensor, num_chosen: int, *, renormalize: bool
    ) -> tuple[Tensor, Tensor]: ...

    def experts(
        self,
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
    ) -> Tensor: ...


class TokenOps(Protocol):
    """The ops that make tokens of logits."""

    def penalize(
        self,
        logits_RV: Tensor,
        rows: Sequence[int],
        penalties: Sequence[Penalties],
        drawn_N: Tensor | None = None,
    ) -> None: ...

    def argmax(
        self, logits_RV: Tensor, *, allowed_RW: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...

    def uniform(
        self,
        seeds: Sequence[int],
        sequence_indices: Sequence[int],
        positions: Sequence[int],
        purpose: Purpose,
        device: torch.device,
    ) -> Tensor: ...

    def sampling_specs(
        self, specs: Sequence[SamplingSpec], device: torch.device
    ) -> SamplingSpecs: ...

    def draw(
        self,
        logits_RV: Tensor,
        peak_R: Tensor,
        specs: SamplingSpecs,
        uniform_R: Tensor,
        *,
        allowed_RW: Tensor | None = None,
        out: Tensor,
    ) -> Tensor: ...

    def log_probabilities(self, logits_RV: Tensor, ids_RC: Tensor) -> Tensor: ...

    def top_tokens(self, logits_RV: Tensor, num_tokens: int) -> Tensor: ...

    def fill_pending(self, token_ids_T: Tensor, drawn_R: Tensor) -> None: ...


class CollectiveOps(Protocol):
    """The ops that several ranks compute together, where a model is split among them."""

    def all_gather(self, x: Tensor, ranks: Ranks) -> Tensor: ...

    def all_reduce(self, x: Tensor, ranks: Ranks) -> Tensor: ...


class Memory(Protocol):
    """The functions of memory on a device: layouts of weights and caches, contexts of ops."""

    def allocate(
        self,
        shape: torch.Size,
        dtype: torch.dtype,
        ranges: Sequence[RowRange],
        *,
        is_invariant: bool = False,
    ) -> PackedWeight | PackedExperts | None: ...

    def deserialize(self, serialized: SerializedWeight) -> PackedWeight: ...

    def aligned_memory(self, num_bytes: int) -> Tensor: ...

    def checksum(self, part: Tensor) -> int: ...

    def empty_cache(self, shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype) -> LayerKV: ...

    def prefault(self, kv: Sequence[LayerKV], num_bytes: int) -> object: ...

    def kernel_context(
        self, num_threads: int, activations: torch.dtype = torch.int8
    ) -> KernelContext: ...

    def graph_capture(self, context: KernelContext) -> GraphCapture | None: ...

    def is_asynchronous(self) -> bool: ...

    def sent(self, values: npt.NDArray[Any], device: torch.device) -> Tensor: ...

    def new_upload(self, num_values: int) -> Upload: ...

    def new_download(self, num_values: int) -> Download: ...

    def has_kernels(self, format: WeightFormat) -> bool: ...

    def why_not_invariant(
        self,
        dtype: torch.dtype,
        kv_dtype: torch.dtype,
        *,
        head_size: int,
        block_size: int,
        width: int,
    ) -> str | None: ...

    def why_no_bfloat16_activations(self, dtype: torch.dtype) -> str | None: ...

    def isa(self, dtype: torch.dtype | None = None) -> str: ...

    def describe_attention(
        self,
        kind: AttentionKind,
        dtype: torch.dtype,
        kv_dtype: torch.dtype,
        *,
        head_size: int,
        block_size: int,
    ) -> str: ...


class Backend(ForwardOps, TokenOps, CollectiveOps, Memory, Protocol):
    """The whole interface of a backend, which serves one kind of device."""

    __name__: str


def functions_of(part: type) -> tuple[str, ...]:
    """Return the names of the functions that a protocol of this module lists."""
    return tuple(name for name in vars(part) if not name.startswith("_"))


FORWARD_OPS = functions_of(ForwardOps)
