"""The header of a GGUF file: what honest ones say, and that dishonest ones are refused.

The cases are those of llama.cpp's own test of its reader, and of errors found in other readers.
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.gguf.header import MAX_VALUES, GgufHeader, parse_header
from inferno.untrusted_json import Malformed
from tests.data import data_path
from tests.gguf.files import (
    ARRAY,
    BOOL,
    F32,
    I8,
    INT32,
    Q8_0,
    STRING,
    UINT32,
    Parts,
    array,
    entry,
    tensor,
    text,
    uint32,
)
from tests.gguf.metadata import field_value

REAL = (
    ("stories260K-gguf", "stories260K-f32-v3.gguf"),
    ("stories260K-gguf", "stories260K-q8_0-v3.gguf"),
    ("vocab", "ggml-vocab-llama-spm.gguf"),
    ("vocab", "ggml-vocab-qwen2.gguf"),
)


def parse(content: bytes) -> GgufHeader:
    return parse_header(lambda start, size: content[start : start + size], len(content))


@pytest.mark.parametrize("parts", REAL, ids=lambda parts: parts[-1])
def test_real_files_say_what_the_formats_own_library_reads(
    parts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data_path(*parts)
    header = parse(path.read_bytes())
    # Slices of mapped files, of which the library makes some for each text, are slow to make.
    monkeypatch.setattr(np, "memmap", lambda path, mode: np.fromfile(path, np.uint8))
    theirs = gguf.GGUFReader(path)
    fields = {name: one for name, one in theirs.fields.items() if not name.startswith("GGUF.")}
    assert dict(header.metadata) == {name: field_value(one) for name, one in fields.items()}
    found = {
        each.name: (each.type.name, each.shape, each.start, each.stop) for each in header.tensors
    }
    assert found == {
        one.name: (
            one.tensor_type.name,
            tuple(map(int, one.shape[::-1])),
            int(one.data_offset),
            int(one.data_offset + one.n_bytes),
        )
        for one in theirs.tensors
    }


def test_values_of_every_type_are_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    values: dict[str, Any] = {"text": "tést", "yes": True, "list": [1, -2], "texts": ["a", "", "ü"]}
    for name, kind in (
        ("uint8", 255), ("int8", -128), ("uint16", 65535), ("int16", -32768), ("uint32", 2**32 - 1),
        ("int32", -(2**31)), ("uint64", 2**64 - 1), ("int64", -(2**63)),
        ("float32", 0.5), ("float64", 0.1),
    ):  # fmt: skip
        getattr(writer, f"add_{name}")(name, kind)
        values[name] = kind
    writer.add_string("text", values["text"])
    writer.add_bool("yes", True)
    writer.add_array("list", values["list"])
    writer.add_array("texts", values["texts"])
    writer.add_tensor("a", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("b", np.zeros(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = (tmp_path / "x.gguf").read_bytes()
    header = parse(content)
    assert {name: header.metadata[name] for name in values} == values
    first, second = header.tensors
    assert first.shape == (2, 3)
    assert content[first.start : first.stop] == np.arange(6, dtype=np.float32).tobytes()
    assert (second.shape, second.stop - second.start) == ((5,), 10)
    assert second.start % 32 == 0


def test_a_tensor_may_be_empty_and_bytes_may_follow_the_last() -> None:
    header = parse(Parts(tensors=[tensor("a", [4, 0, 3])], data=b"rest").content())
    assert header.tensors[0].shape == (3, 0, 4)
    assert header.tensors[0].stop == header.tensors[0].start


def test_a_text_that_is_not_utf8_is_told_from_all_that_are() -> None:
    content = Parts(entries=[entry("a", STRING, text(b"\xff\xfe"))]).content()
    assert parse(content).metadata["a"] == "\udcff\udcfe"


def test_the_alignment_is_as_the_file_says() -> None:
    parts = Parts(entries=[uint32("general.alignment", 64)], alignment=64)
    parts.tensors = [tensor("a", [1], 0), tensor("b", [1], 64)]
    parts.data = bytes(68)
    starts = [each.start for each in parse(parts.content()).tensors]
    assert starts[1] - starts[0] == 64
    assert starts[0] % 64 == 0


_HUGE = 2**62

REFUSED = {
    "magic": (Parts(magic=b"GGML"), "no GGUF"),
    "version 0": (Parts(version=struct.pack("<I", 0)), "version 0"),
    "version 1": (Parts(version=struct.pack("<I", 1)), "version 1.*anew"),
    "a version to come": (Parts(version=struct.pack("<I", 4)), "version 4.*update"),
    "big-endian": (Parts(version=struct.pack(">I", 3)), "big-endian"),
    "tensors beyond the file": (Parts(num_tensors=3), "cut short|refused"),
    "a huge count of tensors": (Parts(num_tensors=2**60), "tensors"),
    "entries beyond the file": (Parts(num_entries=3), "cut short|refused"),
    "a huge count of entries": (Parts(num_entries=2**60), "entries"),
    "a key without end": (Parts(entries=[struct.pack("<Q", 2**60)]), "key"),
    "an empty key": (Parts(entries=[uint32("", 1)]), "key"),
    "a key that is not printable": (Parts(entries=[uint32("a\nb", 1)]), "key"),
    "a key of bytes": (Parts(entries=[entry(b"\xff", UINT32, bytes(4))]), "key"),
    "a key twice": (Parts(entries=[uint32("a", 1), uint32("a", 1)]), "twice"),
    "an unknown type": (Parts(entries=[entry("a", 13, bytes(8))]), "type 13"),
    "a negative type": (Parts(entries=[entry("a", -1, bytes(8))]), "type -1"),
    "a truth of 2": (Parts(entries=[entry("a", BOOL, b"\2")]), "0 or 1"),
    "a text without end": (Parts(entries=[entry("a", STRING, struct.pack("<Q", 2**60))]), "a"),
    "an array of arrays": (Parts(entries=[array("a", ARRAY, 1, bytes(12))]), "array of arrays"),
    "an array of unknown type": (Parts(entries=[array("a", 99, 1, bytes(12))]), "type 99"),
    "a huge array of bytes": (Parts(entries=[array("a", 0, 2**60, b"")]), "values"),
    "a huge array of texts": (Parts(entries=[array("a", STRING, 2**60, b"")]), "values"),
    "an array beyond the file": (Parts(entries=[array("a", INT32, 9, bytes(8))]), "cut short"),
    "an alignment of 0": (Parts(entries=[uint32("general.alignment", 0)]), "power of two"),
    "an odd alignment": (Parts(entries=[uint32("general.alignment", 48)]), "power of two"),
    "a huge alignment": (Parts(entries=[uint32("general.alignment", 2**31)]), "power of two"),
    "an alignment with a sign": (
        Parts(entries=[entry("general.alignment", INT32, struct.pack("<i", 32))]),
        "without a sign",
    ),
    "a long name": (Parts(tensors=[tensor("n" * 64, [1])], data=bytes(4)), "name"),
    "an empty name": (Parts(tensors=[tensor("", [1])], data=bytes(4)), "name"),
    "a name twice": (
        Parts(tensors=[tensor("a", [1]), tensor("a", [1], 32)], data=bytes(64)),
        "twice",
    ),
    "five axes": (Parts(tensors=[tensor("a", [1] * 5)], data=bytes(4)), "5 axes"),
    "a huge count of axes": (Parts(tensors=[tensor("a", [1], num_dims=2**32 - 1)]), "axes"),
    "a size of -1": (Parts(tensors=[tensor("a", [-1])]), "overflows"),
    "sizes that overflow": (Parts(tensors=[tensor("a", [2**32, 2**32])]), "overflows"),
    "an overflow behind a zero": (Parts(tensors=[tensor("a", [0, _HUGE, 8])]), "overflows"),
    "bytes that overflow": (Parts(tensors=[tensor("a", [4, 2**30 - 1, 2**30 + 1])]), "cut short"),
    "two that overflow together": (
        Parts(
            tensors=[
                tensor("a", [0x7FFFFFFFFFFFFFC0], 0, I8),
                tensor("b", [0x7FFFFFFFFFFFFFC0], 0x7FFFFFFFFFFFFFC0, I8),
            ]
        ),
        "cut short",
    ),
    "a type that was removed": (Parts(tensors=[tensor("a", [32], type_number=4)]), "type 4"),
    "a row of half a block": (Parts(tensors=[tensor("a", [33], type_number=Q8_0)]), "blocks of 32"),
    "an offset of -1": (Parts(tensors=[tensor("a", [1], -1)], data=bytes(4)), "begins at"),
    "an overlap": (
        Parts(tensors=[tensor("a", [16]), tensor("b", [16], 32)], data=bytes(128)),
        "expected 64",
    ),
    "a hole": (
        Parts(tensors=[tensor("a", [16]), tensor("b", [16], 96)], data=bytes(256)),
        "expected 64",
    ),
    "too little data": (Parts(tensors=[tensor("a", [16])], data=bytes(63)), "cut short"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    parts, words = REFUSED[name]
    with pytest.raises(Malformed, match=words):
        parse(parts.content())


def test_every_beginning_of_a_file_is_refused() -> None:
    parts = Parts(
        entries=[uint32("a", 1), array("b", STRING, 2, text("x") + text("y"))],
        tensors=[tensor("t", [2], type_number=F32)],
        data=bytes(8),
    )
    content = parts.content()
    parse(content)
    for length in range(len(content)):
        with pytest.raises(Malformed):
            parse(content[:length])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_refused_or_read_within_bounds(data: st.DataObject) -> None:
    parts = Parts(
        entries=[uint32("a", 1), array("b", STRING, 2, text("x") + text("y"))],
        tensors=[tensor("t", [2, 2]), tensor("u", [32], 32, Q8_0)],
        data=bytes(66),
    )
    content = bytearray(parts.content())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    try:
        header = parse(bytes(content))
    except Malformed:
        return
    for each in header.tensors:
        assert header.num_bytes <= each.start <= each.stop <= len(content)


def test_arrays_take_no_more_memory_than_real_vocabularies() -> None:
    count = 200_000
    lists = [array(f"k{i}", UINT32, count, bytes(4 * count)) for i in range(12)]
    content = Parts(entries=lists).content()
    assert 12 * count > MAX_VALUES
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="values"):
            parse(content)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_lists_of_odd_texts_are_read_one_by_one() -> None:
    odd = [b"", b"\0", b"a\0b", b"\xe2\x82", b"\xac", b"\xff", "ĠüŸ😀".encode()]
    values = [b"%d" % i for i in range(5000)] + odd + [b"z"] * 5000
    content = Parts(
        entries=[array("a", STRING, len(values), b"".join(map(text, values)))]
    ).content()
    found = parse(content).metadata["a"]
    assert isinstance(found, list)
    assert [str(one).encode("utf-8", "surrogateescape") for one in found] == values
