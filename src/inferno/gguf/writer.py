"""Write a GGUF file of version 3: metadata, descriptions of tensors, and their data as it comes.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. header.py reads the same.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from inferno.gguf.header import DEFAULT_ALIGNMENT, MAGIC, Value
from inferno.gguf.tensor_types import TensorType

_VERSION = 3
# Metadata types by their numbers.
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64, _INT64, _FLOAT64 = range(4, 13)
_LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to be written; its shape is from the slowest axis to the fastest."""

    name: str
    type: TensorType
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Return the bytes of its data."""
        return self.type.num_bytes(prod(self.shape))


def make_header(metadata: Mapping[str, Value], tensors: Sequence[NewTensor]) -> bytes:
    """Return all that stands before the data, filled up to where the data begins.

    Integers are written with 32 bits where they fit, as llama.cpp expects counts and ids; numbers
    with a point as float32.
    """
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_text(key), _entry(value)]
    offset = 0
    for tensor in tensors:
        sizes = tensor.shape[::-1]
        layout = f"<I{len(sizes)}QIQ"
        described = struct.pack(layout, len(sizes), *sizes, tensor.type.number, offset)
        parts += [_text(tensor.name), described]
        offset += _aligned(tensor.num_bytes)
    header = b"".join(parts)
    return header + bytes(_aligned(len(header)) - len(header))


def file_size(header: bytes, tensors: Iterable[NewTensor]) -> int:
    """Return the bytes of the whole file."""
    return len(header) + sum(_aligned(tensor.num_bytes) for tensor in tensors)


def write_tensor(
    write: Callable[[bytes | memoryview], object],
    tensor: NewTensor,
    pieces: Iterable[bytes | memoryview],
) -> None:
    """Write the data of the next tensor, and fill up to where the tensor after it begins."""
    num_bytes = 0
    for piece in pieces:
        write(piece)
        num_bytes += len(piece)
    assert num_bytes == tensor.num_bytes, tensor.name
    write(bytes(_aligned(num_bytes) - num_bytes))


def _aligned(num_bytes: int) -> int:
    return num_bytes + -num_bytes % DEFAULT_ALIGNMENT


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")  # as header.py keeps what is not UTF-8
    return struct.pack("<Q", len(raw)) + raw


def _entry(value: Value) -> bytes:
    """Return the type and the value of an entry; an empty list is one of texts, as good as any."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if not isinstance(value, list):
        number, letter = _number_type([value], is_list=False)
        return struct.pack(f"<I{letter}", number, value)
    texts = [one for one in value if isinstance(one, str)]
    if len(texts) == len(value):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(texts)) + b"".join(map(_text, texts))
    numbers = [one for one in value if not isinstance(one, str)]
    number, letter = _number_type(numbers, is_list=True)
    return struct.pack(f"<IIQ{len(numbers)}{letter}", _ARRAY, number, len(numbers), *numbers)


def _number_type(values: Sequence[int | float | bool], *, is_list: bool) -> tuple[int, str]:
    """Return the type that holds these numbers, and struct's letter of it.

    Lists of integers are signed where they can be, as llama.cpp reads the types of tokens.
    """
    if all(isinstance(value, bool) for value in values):
        return _BOOL, "?"
    if any(isinstance(value, float) for value in values):
        is_wide = any(_LARGEST_FLOAT32 < abs(value) < math.inf for value in values)
        return (_FLOAT64, "d") if is_wide else (_FLOAT32, "f")
    low, high = min(values), max(values)
    if low < 0 or (is_list and high < 2**63):
        is_small = low >= -(2**31) and high < 2**31
        return (_INT32, "i") if is_small else (_INT64, "q")
    return (_UINT32, "I") if high < 2**32 else (_UINT64, "Q")
