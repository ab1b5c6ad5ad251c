"""Weights, caches and threads, left to PyTorch. Letters as in ops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from inferno.ops.batch import AttentionKind, LayerKV
from inferno.ops.packed import MXFP4Weight
from inferno.ops.program import KernelContext
from inferno.ops.reference.paged_attention import describe


class _TorchContext(nullcontext[None]):
    """A context that does nothing: PyTorch keeps threads and memory itself, for the process."""

    def release_memory(self) -> None:
        pass


def can_quantize() -> bool:
    return False


def level(dtype: torch.dtype | None = None) -> str:
    return "reference"


def describe_attention(kind: AttentionKind, dtype: torch.dtype) -> str:
    return f"{describe(kind)}, in plain PyTorch"


def kernel_context(num_threads: int) -> KernelContext:
    torch.set_num_threads(num_threads)
    return _TorchContext()


def begin(shape: torch.Size, dtype: torch.dtype, *, quantize: str | None = None) -> None:
    return None


def prepare(values: Tensor, *, quantize: str | None = None) -> Tensor:
    assert quantize is None, "can_quantize was not asked"
    return values


def prepare_experts(values: MXFP4Weight) -> MXFP4Weight:
    return values


def empty_cache(shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype) -> LayerKV:
    return LayerKV(torch.empty(shape_NSKD, dtype=dtype), torch.empty(shape_NSKD, dtype=dtype))


def prefault(kv: Sequence[LayerKV], num_bytes: int) -> None:
    """Do nothing: pages are made when they are written."""


def recorder(context: KernelContext) -> None:
    return None
