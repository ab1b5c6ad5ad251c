"""Open a checkpoint: the safetensors in a folder, one file or sharded, or a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch

from inferno.errors import CheckpointError
from inferno.gguf.file import is_gguf_file
from inferno.gguf.tensor_types import read_packed_name
from inferno.json_file import INDEX_FILE, MAX_INDEX_BYTES, SINGLE_FILE, no_weights
from inferno.untrusted_json import Malformed, quoted
from inferno.weights.checkpoint import Checkpoint, WeightsFile, open_file
from inferno.weights.fp8 import with_scales
from inferno.weights.gguf import open_gguf
from inferno.weights.safetensors import (
    LENGTH_BYTES,
    parse_header,
    parse_index,
    parse_length,
)
from inferno.weights.tensor_info import RowCoding, TensorInfo


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint of a GGUF file, or of a folder.

    In a folder that is model.safetensors, else the shards that its index lists.

    Raises ModelNotFound where there are no weights, CheckpointError where they are damaged.
    """
    if is_gguf_file(path):
        return open_gguf(path)
    with ExitStack() as stack:
        if os.path.lexists(path / SINGLE_FILE):
            tensors, files = _open_single(path, stack)
        elif os.path.lexists(path / INDEX_FILE):
            tensors, files = _open_shards(path, stack)
        else:
            raise no_weights(path)
        return Checkpoint(path, with_scales(tensors), files, stack.pop_all())


def _open_single(folder: Path, stack: ExitStack) -> tuple[dict[str, TensorInfo], list[WeightsFile]]:
    file = open_file(folder / SINGLE_FILE, stack)
    return _read_header(file), [file]


def _open_shards(folder: Path, stack: ExitStack) -> tuple[dict[str, TensorInfo], list[WeightsFile]]:
    index = open_file(folder / INDEX_FILE, stack)
    try:
        weight_map = parse_index(index.read_all(MAX_INDEX_BYTES))
    except Malformed as error:
        raise CheckpointError(f"{index.path}: {error}") from None
    files = [open_file(folder / shard, stack) for shard in sorted(set(weight_map.values()))]
    tensors = _read_listed(files, weight_map)
    for name, shard in weight_map.items():
        if name not in tensors:
            raise CheckpointError(
                f"{folder / shard}: lacks tensor {quoted(name)}, which {INDEX_FILE} places there; "
                "download the checkpoint again"
            )
    return tensors, files


def _read_listed(
    files: Iterable[WeightsFile], weight_map: Mapping[str, str]
) -> dict[str, TensorInfo]:
    """Return the tensors of all shards, where each holds only what the index places in it.

    An unlisted tensor is refused too, although others load it: it could be another's double.
    """
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, info in _read_header(file).items():
            if weight_map.get(name) != file.path.name:
                raise CheckpointError(
                    f"{file.path}: holds tensor {quoted(name)}, which {INDEX_FILE} places in "
                    f"{weight_map.get(name, 'no shard')}; download the checkpoint again"
                )
            tensors[name] = info
    return tensors


def _read_header(file: WeightsFile) -> dict[str, TensorInfo]:
    try:
        length = parse_length(file.read(0, min(LENGTH_BYTES, file.size)), file.size)
        tensors = parse_header(file.read(LENGTH_BYTES, length), file.path, file.size)
        return _with_blocks(tensors)
    except Malformed as error:
        raise CheckpointError(f"{file.path}: {error}") from None


def _with_blocks(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return the tensors, those of GGUF's blocks as weights of values. Raises Malformed."""
    found: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        weight = _weight_of_blocks(info) or info
        if weight.name in found or (weight is not info and weight.name in tensors):
            raise Malformed(f"it has tensor {quoted(weight.name)} twice, as {quoted(name)} too")
        found[weight.name] = weight
    return found


def _weight_of_blocks(info: TensorInfo) -> TensorInfo | None:
    """Return the weight whose blocks a tensor holds, None if it has none. Raises Malformed."""
    named = read_packed_name(info.name)
    if named is None:
        return None
    name, type = named
    if info.dtype is not torch.uint8 or len(info.shape) != 3 or info.shape[2] != type.block_bytes:
        raise Malformed(
            f"tensor {quoted(info.name)} is {info.dtype} {list(info.shape)}, expected uint8 [rows, "
            f"blocks, {type.block_bytes}], for {type.name} by its name"
        )
    shape = (info.shape[0], info.shape[1] * type.block_values)
    coding = RowCoding(type)
    return TensorInfo(name, torch.float32, shape, info.file, info.start, info.stop, coding)
