"""A GGUF file taken apart, so that each part can be made a lie before it is put together again."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass
class Entry:
    """A metadata entry; `value` is its bytes, an array's with type and count before them."""

    key: bytes
    type: int
    value: bytes


@dataclass
class Described:
    """A tensor's description; sizes as in the file, the fastest axis first."""

    name: bytes
    sizes: list[int]
    type: int
    offset: int
    num_dims: int | None = None


@dataclass
class GgufParts:
    """A file in parts; a count that is None follows from the others."""

    entries: list[Entry] = field(default_factory=list)
    tensors: list[Described] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    num_tensors: int | None = None
    num_entries: int | None = None
    alignment: int = 32

    def content(self) -> bytes:
        """Return the file."""
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_entries = len(self.entries) if self.num_entries is None else self.num_entries
        head = self.magic + struct.pack("<IQQ", self.version, num_tensors, num_entries)
        for one in self.entries:
            head += text(one.key) + struct.pack("<I", one.type % 2**32) + one.value
        for each in self.tensors:
            num_dims = len(each.sizes) if each.num_dims is None else each.num_dims
            head += text(each.name) + struct.pack("<I", num_dims % 2**32)
            head += b"".join(struct.pack("<Q", size % 2**64) for size in each.sizes)
            head += struct.pack("<IQ", each.type % 2**32, each.offset % 2**64)
        return head + bytes(-len(head) % self.alignment) + self.data


def text(raw: bytes) -> bytes:
    """Return a text as files hold it: its length, then its bytes."""
    return struct.pack("<Q", len(raw)) + raw


def take_apart(content: bytes) -> GgufParts:
    """Return the parts of a file; ValueError where it says what can't be."""
    at = 0

    def number(letter: str) -> int:
        nonlocal at
        if at > len(content):
            raise ValueError("it ends before")
        (value,) = struct.unpack_from("<" + letter, content, at)
        at += struct.calcsize("<" + letter)
        return int(value)

    def raw_text() -> bytes:
        nonlocal at
        length = number("Q")
        at += length
        return content[at - length : at]

    def skip_value(kind: int) -> None:
        nonlocal at
        if kind == STRING:
            raw_text()
        elif kind == ARRAY:
            inner, count = number("I"), number("Q")
            if count > len(content):
                raise ValueError("it has no so many values")
            for _ in range(count):
                skip_value(inner)
        else:
            at += SIZES[kind]

    at = 4
    version, num_tensors, num_entries = number("I"), number("Q"), number("Q")
    entries = []
    for _ in range(num_entries):
        key, kind, start = raw_text(), number("I"), at
        skip_value(kind)
        entries.append(Entry(key, kind, content[start:at]))
    tensors = []
    for _ in range(num_tensors):
        name, num_dims = raw_text(), number("I")
        sizes = [number("Q") for _ in range(num_dims)]
        tensors.append(Described(name, sizes, number("I"), number("Q")))
    data = content[at + -at % 32 :]
    return GgufParts(entries, tensors, data, content[:4], version)
