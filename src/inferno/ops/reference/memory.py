"""Leave weights, caches and threads to PyTorch. Shape letters as in ops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from inferno.ops.batch import AttentionKind, LayerKV
from inferno.ops.captured_graph import KernelContext
from inferno.ops.packed import PackedExperts, PackedWeight, RowRanges, StoredRows, is_plain
from inferno.ops.reference.paged_attention import describe
from inferno.ops.reference.stored import UnpackedWeight
from inferno.ops.transfers import Download, HostDownload, HostUpload, Upload
from inferno.quantization import RowRange, WeightFormat


class _TorchContext(nullcontext[None]):
    """A context that does nothing: PyTorch keeps threads and memory itself, for the process."""

    def release_memory(self) -> None:
        pass


def has_kernels(format: WeightFormat) -> bool:
    return False


def isa(dtype: torch.dtype | None = None) -> str:
    return "reference"


def describe_attention(
    kind: AttentionKind,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
) -> str:
    return f"{describe(kind)}, in plain PyTorch"


def kernel_context(num_threads: int, activations: torch.dtype = torch.int8) -> KernelContext:
    torch.set_num_threads(num_threads)
    return _TorchContext()


def why_no_bfloat16_activations(dtype: torch.dtype) -> str | None:
    return "products are computed in plain PyTorch here"


def why_not_invariant(
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
    width: int,
) -> str | None:
    return "it would be computed in plain PyTorch, whose products round by the shape of a batch"


def allocate(
    shape: torch.Size,
    dtype: torch.dtype,
    ranges: Sequence[RowRange],
    *,
    is_invariant: bool = False,
) -> PackedWeight | PackedExperts | None:
    if is_plain(ranges):
        return None
    if len(ranges) == 1:
        return _rows(ranges[0].format, shape, dtype)
    assert len(shape) == 2, "all experts have one format"
    return RowRanges(tuple(_range(one, shape[1], dtype) for one in ranges))


def _range(one: RowRange, num_inputs: int, dtype: torch.dtype) -> PackedWeight:
    shape = (one.num_rows, num_inputs)
    if one.format.is_float:
        return UnpackedWeight(torch.empty(shape, dtype=dtype), dtype, None)
    return _rows(one.format, shape, dtype)


def _rows(format: WeightFormat, shape: Sequence[int], dtype: torch.dtype) -> StoredRows:
    assert format.is_packed_in_files, "has_kernels was not asked"
    return StoredRows.empty(format, shape, dtype)


def empty_cache(shape_NSKD: tuple[int, int, int, int], dtype: torch.dtype) -> LayerKV:
    return LayerKV(torch.empty(shape_NSKD, dtype=dtype), torch.empty(shape_NSKD, dtype=dtype))


def prefault(kv: Sequence[LayerKV], num_bytes: int) -> None:
    """Do nothing: the system makes pages when they are written."""


def graph_capture(context: KernelContext) -> None:
    return None


def is_asynchronous() -> bool:
    return False


def sent(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(values.copy()).to(device)


def new_upload(num_values: int) -> Upload:
    return HostUpload(torch.zeros(num_values, dtype=torch.int64))


def new_download(num_values: int) -> Download:
    return HostDownload()
