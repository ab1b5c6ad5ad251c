"""Open a GGUF file as a checkpoint, with Hugging Face's names of tensors and order of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import torch

from inferno.errors import CheckpointError
from inferno.gguf.config import has_permuted_heads, head_dim, kind_of
from inferno.gguf.file import GgufModel, header_of, no_tensors, read_gguf
from inferno.gguf.header import MAX_TENSORS, GgufHeader, GgufTensor
from inferno.gguf.names import ROPE_FACTORS, hf_name, is_of_all_experts, is_rotated
from inferno.gguf.tensor_types import is_read
from inferno.untrusted_json import Malformed, quoted
from inferno.weights.checkpoint import PLAIN_TYPES, Checkpoint, WeightsFile, open_file
from inferno.weights.tensor_info import RowCoding, TensorInfo


def open_gguf(path: Path) -> Checkpoint:
    """Return the checkpoint in a GGUF file, or in the files of the split model that it begins.

    Raises CheckpointError where one is damaged, and ModelError where the model is not one of ours.
    """
    with ExitStack() as stack:
        files: dict[Path, WeightsFile] = {}

        def read_header(path: Path) -> GgufHeader:
            files[path] = file = open_file(path, stack)
            try:
                return header_of(file.identity, file.read)
            except Malformed as problem:
                raise CheckpointError(f"{path}: {problem}") from None

        model = read_gguf(path, read_header)
        if not model.tensors:
            raise no_tensors(path)
        tensors: dict[str, TensorInfo] = {}
        for info in _infos(model):
            if info.name in tensors:
                raise CheckpointError(
                    f"{path}: has {quoted(info.name)} twice, as one of its tensors has that name "
                    "and another means it; download the file again"
                )
            tensors[info.name] = info
        return Checkpoint(path, tensors, files.values(), stack.pop_all())


def _infos(model: GgufModel) -> Iterator[TensorInfo]:
    """Yield the tensors as a checkpoint of Hugging Face's has them."""
    kind = kind_of(model.metadata)
    head_rows = head_dim(model.metadata) if has_permuted_heads(kind) else 1
    num_experts = 0
    for file, tensor in model.tensors.values():
        if tensor.name == ROPE_FACTORS:
            continue
        name = hf_name(tensor.name, kind)
        if is_of_all_experts(tensor.name):
            num_experts += tensor.shape[0] if tensor.shape else 0
            if num_experts > MAX_TENSORS:  # an empty tensor can have any number of them
                raise CheckpointError(
                    f"{file}: with tensor {quoted(tensor.name)} of {list(tensor.shape)} its layers "
                    f"have {num_experts} experts, at most {MAX_TENSORS} are read"
                )
            yield from _experts(_info(file, tensor, name, num_axes=len(tensor.shape) - 1))
        else:
            rows = head_rows if is_rotated(tensor.name) else 1
            yield _info(file, tensor, name, num_axes=len(tensor.shape), head_rows=rows)


def _info(
    file: Path, tensor: GgufTensor, name: str, *, num_axes: int, head_rows: int = 1
) -> TensorInfo:
    """Return the place of a tensor of so many axes, or of as many such as there are experts."""
    shape = tensor.shape
    dtype: torch.dtype | str = PLAIN_TYPES.get(tensor.type.name, tensor.type.name)
    coding = None
    # Blocks are read row by row, so of a lone row only the size is known: no model has one.
    is_coded = tensor.type.name not in PLAIN_TYPES and is_read(tensor.type.name, num_axes)
    is_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    is_turned = head_rows > 1 and is_float  # whole numbers are no model's weights, and stay
    if 0 not in shape and (is_coded or is_turned):
        if shape and shape[0] % head_rows:
            raise CheckpointError(
                f"{file}: tensor {quoted(tensor.name)} has {shape[0]} rows, expected a multiple of "
                f"a head's {head_rows}"
            )
        coding = RowCoding(tensor.type, head_rows)
        dtype = PLAIN_TYPES.get(tensor.type.name, torch.float32)
    return TensorInfo(name, dtype, shape, file, tensor.start, tensor.stop, coding)


def _experts(info: TensorInfo) -> Iterator[TensorInfo]:
    """Yield the experts of a tensor that holds all of them, along its slowest axis."""
    count, *shape = info.shape or (0,)
    size = (info.stop - info.start) // max(1, count)
    for index in range(count):
        start = info.start + index * size
        yield TensorInfo(
            info.name.replace("{}", str(index)),
            info.dtype,
            tuple(shape),
            info.file,
            start,
            start + size,
            info.coding,
        )
