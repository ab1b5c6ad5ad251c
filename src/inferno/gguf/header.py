"""Parse the header of a GGUF file, trusting nothing: metadata, and where its tensors lie.

A file is a magic word, a version, two counts, so many metadata entries, so many descriptions of
tensors, and the data: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3
are read, which are alike where numbers are little-endian. What llama.cpp loads is read; beyond it
are refused, as it refuses them, duplicate keys and names, sizes that overflow, and data that lies
elsewhere than one tensor after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inferno.gguf.tensor_types import BY_NUMBER, TensorType
from inferno.untrusted_json import Malformed, quoted

MAGIC = b"GGUF"
VERSIONS = (2, 3)

# The largest published vocabularies, of a quarter of a million tokens, take some 15 MB with their
# merges; anything larger exists only to exhaust memory.
MAX_HEADER_BYTES = 64 << 20
MAX_VALUES = 1 << 21  # in all arrays together, twice what the longest vocabularies need
MAX_ENTRIES = 1 << 16  # real files have some fifty
MAX_TENSORS = 1 << 18  # the largest published models list 2,000 a file
MAX_KEY_BYTES = (1 << 16) - 1  # the format's own bound
MAX_NAME_BYTES = 63  # llama.cpp's bound
MAX_DIMS = 4
MAX_ELEMENTS = 2**63 - 1
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32

_PIECE_BYTES = 1 << 20  # what is read of a header at a time
_BATCH = 1 << 12  # texts that are decoded together; all at once would need as much memory again

# Metadata types by their numbers: struct's letter of those of fixed size.
_BOOL, _STRING, _ARRAY = 7, 8, 9
_LETTERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    _BOOL: "B",
    10: "Q",
    11: "q",
    12: "d",
}
_UINT32 = 4

Scalar = int | float | bool | str
Value = Scalar | list[int] | list[float] | list[bool] | list[str]

# Reads bytes of a file: where they begin, and how many.
ReadBytes = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """The place of one tensor: bytes `start` to `stop` of its file, row-major.

    shape  from the slowest axis to the fastest, against the order of the file.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GgufHeader:
    """All that a GGUF file has before its data.

    metadata   values by key; a text that is not UTF-8 holds surrogates for its bytes.
    num_bytes  where the data begins.
    """

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[GgufTensor, ...]
    num_bytes: int


def parse_header(read: ReadBytes, file_size: int) -> GgufHeader:
    """Return the header of a file of so many bytes, as much of it read as is needed.

    Raises Malformed, and what `read` raises.
    """
    cursor = _Cursor(read, file_size)
    version = _version(cursor)
    num_tensors = cursor.count("tensors", MAX_TENSORS)
    num_entries = cursor.count("metadata entries", MAX_ENTRIES)
    metadata, alignment = _metadata(cursor, num_entries)
    described = [_tensor(cursor) for _ in range(num_tensors)]
    start = cursor.position + -cursor.position % alignment
    tensors = _placed(described, start, alignment, file_size)
    return GgufHeader(version, MappingProxyType(metadata), tensors, start)


class _Cursor:
    """A place in the header; what follows it is read from the file when it is asked for."""

    def __init__(self, read: ReadBytes, file_size: int) -> None:
        self._read = read
        self._size = file_size
        self._bytes = bytearray()
        self._num_values = 0
        self.position = 0

    def skip(self, num_bytes: int) -> int:
        """Move on by so many bytes, which must be there, and return where they begin."""
        start = self.position
        stop = start + num_bytes
        if stop > len(self._bytes):
            self._extend(stop)
        self.position = stop
        return start

    def bytes_at(self, start: int, length: int) -> bytes:
        """Return bytes that were read already."""
        return bytes(self._bytes[start : start + length])

    def number(self, letter: str) -> int | float:
        """Return a number of struct's type `letter`."""
        layout = "<" + letter
        start = self.skip(struct.calcsize(layout))
        value: int | float = struct.unpack_from(layout, self._bytes, start)[0]
        return value

    def integer(self, letter: str) -> int:
        return int(self.number(letter))

    def count(self, what: str, limit: int) -> int:
        """Return a 64-bit count, within what can be there."""
        value = self.integer("Q")
        if value > limit:
            raise Malformed(f"it claims to have {value} {what}, at most {limit} are read")
        return value

    def text(self, what: str, limit: int = MAX_HEADER_BYTES) -> str:
        length = self.integer("Q")
        if length > limit:
            raise Malformed(f"{what} has {length} bytes, at most {limit} are read")
        start = self.skip(length)
        return self._bytes[start : start + length].decode("utf-8", "surrogateescape")

    def numbers(self, letter: str, count: int) -> list[int] | list[float]:
        layout = f"<{count}{letter}"
        start = self.skip(struct.calcsize(layout))
        return list(struct.unpack_from(layout, self._bytes, start))

    def array_length(self, what: str) -> int:
        """Return the length of an array; each value takes more memory than in the file."""
        count = self.integer("Q")
        self._num_values += count
        if self._num_values > MAX_VALUES:
            raise Malformed(
                f"with {count} values in {what} its arrays have more than the {MAX_VALUES} that "
                "are read"
            )
        return count

    def texts(self, count: int) -> list[str]:
        """Return texts one after the other; a vocabulary has a quarter of a million of them."""
        found: list[str] = []
        while len(found) < count:
            found += _decoded(self._raw_texts(min(_BATCH, count - len(found))))
        return found

    def _raw_texts(self, count: int) -> list[bytearray]:
        found: list[bytearray] = []
        length_at = struct.Struct("<Q").unpack_from
        content, position = self._bytes, self.position  # names of its own are a third of the time
        size = len(content)
        for _ in range(count):
            start = position + 8
            if start > size:
                self._extend(start)
                size = len(content)
            position = start + length_at(content, position)[0]
            if position > size:
                self._extend(position)
                size = len(content)
            found.append(content[start:position])
        self.position = position
        return found

    def _extend(self, stop: int) -> None:
        if stop > self._size:
            raise Malformed(
                f"its header goes on to byte {stop} at least, and the file has {self._size}: "
                "it is damaged, or its download was cut short"
            )
        if stop > MAX_HEADER_BYTES:
            raise Malformed(f"its header has more than the {MAX_HEADER_BYTES} bytes that are read")
        while len(self._bytes) < stop:
            wanted = max(_PIECE_BYTES, stop - len(self._bytes))
            self._bytes += self._read(len(self._bytes), min(wanted, self._size - len(self._bytes)))


def _decoded(texts: list[bytearray]) -> list[str]:
    """Return texts in UTF-8 as such, decoded together: one by one takes three times as long."""
    decoded = b"\0".join(texts).decode("utf-8", "surrogateescape").split("\0")
    if len(decoded) == len(texts):
        return decoded
    return [text.decode("utf-8", "surrogateescape") for text in texts]  # one has a NUL in it


def _version(cursor: _Cursor) -> int:
    start = cursor.skip(len(MAGIC))
    if cursor.bytes_at(start, len(MAGIC)) != MAGIC:
        raise Malformed("it does not begin with the word GGUF, so it is no GGUF file")
    version = cursor.integer("I")
    if version in VERSIONS:
        return version
    if version and version & 0xFFFF == 0:
        raise Malformed(
            "its numbers are big-endian; convert it to little-endian with llama.cpp's "
            "gguf_convert_endian.py"
        )
    known = " and ".join(map(str, VERSIONS))
    cure = "make it anew from the model's original" if version < min(VERSIONS) else "update inferno"
    raise Malformed(f"it is of GGUF version {version}, and versions {known} are read; {cure}")


def _metadata(cursor: _Cursor, num_entries: int) -> tuple[dict[str, Value], int]:
    """Return the entries by key, and the alignment that they ask for."""
    metadata: dict[str, Value] = {}
    alignment = DEFAULT_ALIGNMENT
    for _ in range(num_entries):
        key = _key(cursor)
        if key in metadata:
            raise Malformed(f"its metadata has the key {quoted(key)} twice")
        type_number = cursor.integer("i")
        metadata[key] = value = _value(cursor, key, type_number)
        if key == "general.alignment":
            alignment = _alignment(type_number, value)
    return metadata, alignment


def _key(cursor: _Cursor) -> str:
    key = cursor.text("a metadata key", MAX_KEY_BYTES)
    if not key or not key.isprintable():
        raise Malformed(f"the metadata key {quoted(key)} is refused: keys are printable texts")
    return key


def _value(cursor: _Cursor, key: str, type_number: int) -> Value:
    if type_number == _STRING:
        return cursor.text(f"the text {quoted(key)}")
    if type_number == _ARRAY:
        return _array(cursor, key)
    if type_number not in _LETTERS:
        raise Malformed(f"the metadata {quoted(key)} has the unknown type {type_number}")
    value = cursor.number(_LETTERS[type_number])
    return _truth(key, value) if type_number == _BOOL else value


def _array(cursor: _Cursor, key: str) -> Value:
    type_number = cursor.integer("i")
    count = cursor.array_length(quoted(key))
    if type_number == _STRING:
        return cursor.texts(count)
    if type_number not in _LETTERS:
        what = "arrays" if type_number == _ARRAY else f"the unknown type {type_number}"
        raise Malformed(f"the metadata {quoted(key)} is an array of {what}, which is not read")
    values = cursor.numbers(_LETTERS[type_number], count)
    return [_truth(key, value) for value in values] if type_number == _BOOL else values


def _truth(key: str, value: int | float) -> bool:
    if value not in (0, 1):
        raise Malformed(f"the metadata {quoted(key)} is the truth value {value}, expected 0 or 1")
    return bool(value)


def _alignment(type_number: int, value: Value) -> int:
    if type_number == _UINT32 and isinstance(value, int):
        is_power_of_two = value > 0 and value & (value - 1) == 0
        if is_power_of_two and value <= MAX_ALIGNMENT:
            return value
    raise Malformed(
        f"general.alignment is {str(value)[:80]}, expected a power of two up to {MAX_ALIGNMENT}, "
        "of 32 bits and without a sign"
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """A tensor as the header describes it; offset is counted from where the data begins."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    num_bytes: int
    offset: int


def _tensor(cursor: _Cursor) -> _Described:
    name = cursor.text("a tensor's name", MAX_NAME_BYTES)
    if not name or not name.isprintable():
        raise Malformed(f"the tensor name {quoted(name)} is refused: names are printable texts")
    num_dims = cursor.integer("I")
    if num_dims > MAX_DIMS:
        raise Malformed(f"tensor {quoted(name)} has {num_dims} axes, at most {MAX_DIMS} are read")
    sizes = [cursor.integer("Q") for _ in range(num_dims)]
    type_number = cursor.integer("i")
    if type_number not in BY_NUMBER:
        raise Malformed(f"tensor {quoted(name)} has the unknown type {type_number}")
    tensor_type = BY_NUMBER[type_number]
    num_values = _num_values(name, sizes)
    row = sizes[0] if sizes else 1
    if row % tensor_type.block_values:
        raise Malformed(
            f"tensor {quoted(name)} has rows of {row} values, and {tensor_type.name} keeps blocks "
            f"of {tensor_type.block_values}"
        )
    num_bytes = tensor_type.num_bytes(num_values)
    return _Described(name, tensor_type, tuple(sizes[::-1]), num_bytes, cursor.integer("Q"))


def _num_values(name: str, sizes: list[int]) -> int:
    # A zero must not hide the overflow of the other sizes: strides are made of them.
    num_if_none_were_zero = 1
    for size in sizes:
        num_if_none_were_zero *= size or 1
        if num_if_none_were_zero > MAX_ELEMENTS:
            raise Malformed(f"the shape {sizes} of tensor {quoted(name)} overflows")
    return 0 if 0 in sizes else num_if_none_were_zero


def _placed(
    described: list[_Described], start: int, alignment: int, file_size: int
) -> tuple[GgufTensor, ...]:
    """Return tensors with their places, once each begins where the one before it ends."""
    position = start
    tensors: dict[str, GgufTensor] = {}
    for one in described:
        if one.name in tensors:
            raise Malformed(f"it has the tensor {quoted(one.name)} twice")
        position += -(position - start) % alignment
        if one.offset != position - start:
            raise Malformed(
                f"the data of tensor {quoted(one.name)} begins at {one.offset}, expected "
                f"{position - start}, where the tensor before it ends"
            )
        stop = position + one.num_bytes
        tensors[one.name] = GgufTensor(one.name, one.type, one.shape, position, stop)
        position = stop
    if described and position > file_size:
        raise Malformed(
            f"its tensors end at byte {position}, and the file has {file_size}: "
            "it is damaged, or its download was cut short"
        )
    return tuple(tensors.values())
