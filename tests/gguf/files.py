"""Write GGUF files by hand, honest and dishonest ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
F32, F16, Q8_0, I8 = 0, 1, 8, 24


def text(value: str | bytes) -> bytes:
    """A text as files hold it: its length, then its bytes."""
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, type_number: int, value: bytes) -> bytes:
    """A metadata entry whose value is already bytes."""
    return text(key) + struct.pack("<i", type_number) + value


def uint32(key: str, value: int) -> bytes:
    return entry(key, UINT32, struct.pack("<I", value))


def array(key: str, type_number: int, count: int, values: bytes) -> bytes:
    return entry(key, ARRAY, struct.pack("<iQ", type_number, count) + values)


def tensor(
    name: str | bytes,
    sizes: Sequence[int],
    offset: int = 0,
    type_number: int = F32,
    num_dims: int | None = None,
) -> bytes:
    """A tensor's description; sizes as in the file, the fastest axis first."""
    count = len(sizes) if num_dims is None else num_dims
    return (
        text(name)
        + struct.pack("<I", count)
        + b"".join(struct.pack("<Q", size % 2**64) for size in sizes)
        + struct.pack("<iQ", type_number, offset % 2**64)
    )


@dataclass
class Parts:
    """The parts of a file; what is None follows from the others."""

    magic: bytes = b"GGUF"
    version: bytes = struct.pack("<I", 3)
    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    data: bytes = b""
    num_tensors: int | None = None
    num_entries: int | None = None
    alignment: int = 32

    def content(self) -> bytes:
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_entries = len(self.entries) if self.num_entries is None else self.num_entries
        counts = struct.pack("<QQ", num_tensors, num_entries)
        header = b"".join([self.magic, self.version, counts, *self.entries, *self.tensors])
        return header + bytes(-len(header) % self.alignment) + self.data
