"""Parse the header of a safetensors file, and the index of several, trusting nothing.

A file is an unsigned 64-bit little-endian length, a JSON header of that many bytes, and the data:
https://github.com/huggingface/safetensors#format. This reader is stricter than the format's own
library in that it refuses duplicate keys, unknown keys and sub-byte types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

import torch

from inferno.json_file import MAX_DIMS, MAX_HEADER_BYTES
from inferno.untrusted_json import Malformed, parse_object, quoted
from inferno.weights.tensor_info import TensorInfo

LENGTH_BYTES = 8

# A shard is a plain file beside the index. These characters are all that real ones use, and with
# them no path, drive, device or hidden file can be spelled.
_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,239}\.safetensors")

MAX_NAME_LENGTH = 1024
MAX_ELEMENTS = 2**63 - 1  # what torch can count

# Types that torch computes with, or at least holds, by the format's names.
_TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
# Types of which only the size in bytes is known: their tensors can be listed, not read.
_OPAQUE_SIZES = {
    "C64": 8,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "F8_E4M3": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2": 1,
    "F8_E5M2FNUZ": 1,
    "F8_E8M0": 1,
    "BOOL": 1,
}
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}

# Contents found in place of a safetensors file, by their first bytes, and what to do.
_IMPOSTORS = {
    b"version ": "it is a Git LFS pointer, not the file itself: run `git lfs pull`",
    b"PK\x03\x04": "it is a zip archive, maybe a renamed PyTorch pickle, which is never read",
    b"\x80\x02": "it is a Python pickle, which is never read: convert it to safetensors",
    b"GGUF": "it is a GGUF file, not safetensors",
    b"<": "it is a web page, not safetensors: download the file again",
}


def parse_length(first_bytes: bytes, file_size: int) -> int:
    """Return the header's length in bytes, from the file's first eight. Raises Malformed."""
    if len(first_bytes) < LENGTH_BYTES:
        raise Malformed(f"it has {file_size} bytes, too few for a safetensors header")
    length = int.from_bytes(first_bytes, "little")
    if length > file_size - LENGTH_BYTES:
        raise Malformed(_impostor(first_bytes) or _past_the_end(length, file_size))
    if length > MAX_HEADER_BYTES:
        raise Malformed(f"its header has {length} bytes, at most {MAX_HEADER_BYTES} are read")
    return length


def parse_header(header: bytes, file: Path, file_size: int) -> dict[str, TensorInfo]:
    """Return the tensors that `header` declares, checked to tile the data section exactly.

    Raises Malformed.
    """
    entries = parse_object(header)
    _check_metadata(entries.pop("__metadata__", {}))
    data_start = LENGTH_BYTES + len(header)
    tensors = {name: _tensor_info(name, entry, file, data_start) for name, entry in entries.items()}
    _check_tiling(tensors, data_start, file_size)
    return tensors


def parse_index(raw: bytes) -> dict[str, str]:
    """Return the shard in which each tensor lies, by model.safetensors.index.json.

    Its other keys (sizes, metadata) aren't read.
    Raises Malformed.
    """
    weight_map = parse_object(raw).get("weight_map")
    if not isinstance(weight_map, dict):
        raise Malformed("it has no object `weight_map`")
    return {name: _shard(name, shard) for name, shard in weight_map.items()}


def _impostor(first_bytes: bytes) -> str | None:
    return next((what for magic, what in _IMPOSTORS.items() if first_bytes.startswith(magic)), None)


def _past_the_end(length: int, file_size: int) -> str:
    return (
        f"its header claims {length} bytes, and the file has {file_size}: "
        "it is damaged, or its download was cut short"
    )


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Malformed("its __metadata__ is not an object of strings")


def _tensor_info(name: str, entry: object, file: Path, data_start: int) -> TensorInfo:
    _check_name(name)
    if not isinstance(entry, dict) or entry.keys() != _ENTRY_KEYS:
        raise Malformed(
            f"tensor {quoted(name)} is not an object of exactly dtype, shape and data_offsets"
        )
    dtype, itemsize = _dtype(name, entry["dtype"])
    shape = _shape(name, entry["shape"])
    start, stop = _offsets(name, entry["data_offsets"])
    num_bytes = _num_elements(name, shape) * itemsize
    if stop - start != num_bytes:
        raise Malformed(
            f"tensor {quoted(name)} of {entry['dtype']} {list(shape)} takes {num_bytes} bytes, "
            f"and its data_offsets [{start}, {stop}] span {stop - start}"
        )
    return TensorInfo(name, dtype, shape, file, data_start + start, data_start + stop)


def _check_name(name: str) -> None:
    """Refuse a tensor's name that no model has: empty, very long, or not printable."""
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise Malformed(
            f"the tensor name {quoted(name)} is refused: a name has 1 to {MAX_NAME_LENGTH} "
            "printable characters"
        )


def _dtype(name: str, dtype: object) -> tuple[torch.dtype | str, int]:
    if isinstance(dtype, str) and dtype in _TORCH_DTYPES:
        return _TORCH_DTYPES[dtype], _TORCH_DTYPES[dtype].itemsize
    if isinstance(dtype, str) and dtype in _OPAQUE_SIZES:
        return dtype, _OPAQUE_SIZES[dtype]
    given = quoted(dtype) if isinstance(dtype, str) else f"a {type(dtype).__name__}"
    known = ", ".join(_TORCH_DTYPES | _OPAQUE_SIZES)
    raise Malformed(f"tensor {quoted(name)} has the dtype {given}, expected one of {known}")


def _shape(name: str, shape: object) -> tuple[int, ...]:
    if not _is_list_of_sizes(shape) or len(shape) > MAX_DIMS:
        raise Malformed(
            f"the shape of tensor {quoted(name)} is not a list of at most {MAX_DIMS} sizes"
        )
    return tuple(shape)


def _offsets(name: str, offsets: object) -> tuple[int, int]:
    if not _is_list_of_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise Malformed(f"the data_offsets of tensor {quoted(name)} are not [start, stop]")
    return offsets[0], offsets[1]


def _is_list_of_sizes(value: object) -> TypeGuard[list[int]]:
    # type() and not isinstance(): JSON's true is an int to Python.
    return isinstance(value, list) and all(
        type(size) is int and 0 <= size <= MAX_ELEMENTS for size in value
    )


def _num_elements(name: str, shape: tuple[int, ...]) -> int:
    # A zero must not hide the overflow of the other sizes: strides are made of them.
    num_if_none_were_zero = 1
    for size in shape:
        num_if_none_were_zero *= size or 1
        if num_if_none_were_zero > MAX_ELEMENTS:
            raise Malformed(f"the shape {list(shape)} of tensor {quoted(name)} overflows")
    return 0 if 0 in shape else num_if_none_were_zero


def _check_tiling(tensors: Mapping[str, TensorInfo], data_start: int, file_size: int) -> None:
    """Check that each byte of data is in exactly one tensor: no hole, no overlap, nothing after."""
    position = data_start
    for info in sorted(tensors.values(), key=lambda info: (info.start, info.stop)):
        if info.start != position:
            what = "overlaps another tensor" if info.start < position else "follows a hole"
            raise Malformed(f"the data of tensor {quoted(info.name)} {what}")
        position = info.stop
    if position > file_size:
        raise Malformed(
            f"its tensors end at byte {position}, and the file has {file_size}: "
            "it is damaged, or its download was cut short"
        )
    if position < file_size:
        raise Malformed(f"{file_size - position} bytes follow its last tensor")


def _shard(name: str, shard: object) -> str:
    if not isinstance(shard, str):
        raise Malformed(f"the shard of tensor {quoted(name)} is not a string")
    if not _SHARD_NAME.fullmatch(shard):
        raise Malformed(
            f"the shard {quoted(shard)} of tensor {quoted(name)} is refused: a shard is a plain "
            "file name of letters, digits, `.`, `_`, `-` that ends with .safetensors"
        )
    return shard
