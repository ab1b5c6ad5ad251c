"""GGUF files that we write, read by the format's own library and by ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from inferno.gguf.file import read_header
from inferno.gguf.header import Value
from inferno.gguf.tensor_types import BY_NAME
from inferno.gguf.writer import NewTensor, file_size, make_header, write_tensor
from tests.gguf.metadata import field_value

METADATA: dict[str, Value] = {
    "general.architecture": "llama",
    "a.count": 7,
    "a.large": 2**40,
    "a.negative": -3,
    "a.share": 0.25,
    "a.flag": True,
    "a.text": "Größe ▁ 😀",
    "a.texts": ["x", "", "ß"],
    "a.numbers": [1, -2, 2**31 - 1],
    "a.shares": [0.5, -1.0],
    "a.huge": 1e300,
    "a.endless": float("inf"),
    "a.most": [2**64 - 1, 0],
    "a.flags": [True, False],
    "a.none": [],
}
TENSORS = [
    NewTensor("one", BY_NAME["F32"], (3,)),
    NewTensor("two", BY_NAME["Q8_0"], (5, 64)),
    NewTensor("three", BY_NAME["F16"], (2, 3, 4)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    header = make_header(METADATA, TENSORS)
    with (tmp_path / "a.gguf").open("wb") as file:
        file.write(header)
        for tensor in TENSORS:
            write_tensor(file.write, tensor, [data_of(tensor)[:10], data_of(tensor)[10:]])
    assert (tmp_path / "a.gguf").stat().st_size == file_size(header, TENSORS)
    return tmp_path / "a.gguf"


def data_of(tensor: NewTensor) -> bytes:
    return bytes((7 * i + len(tensor.name)) % 256 for i in range(tensor.num_bytes))


def test_the_library_reads_what_was_written(path: Path) -> None:
    reader = gguf.GGUFReader(path)
    found = {key: field_value(field) for key, field in reader.fields.items() if "GGUF." not in key}
    assert {key: found[key] for key in METADATA if key != "a.none"} == {
        key: value for key, value in METADATA.items() if key != "a.none"
    }
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert list(tensors) == [tensor.name for tensor in TENSORS]
    for due in TENSORS:
        tensor = tensors[due.name]
        assert tensor.tensor_type.name == due.type.name
        assert tuple(tensor.shape.tolist()) == due.shape[::-1]
        assert np.ascontiguousarray(tensor.data).tobytes() == data_of(due)


KINDS: dict[str, Any] = {
    "a.count": ["UINT32"],
    "a.large": ["UINT64"],
    "a.negative": ["INT32"],
    "a.share": ["FLOAT32"],
    "a.flag": ["BOOL"],
    "a.texts": ["ARRAY", "STRING"],
    "a.numbers": ["ARRAY", "INT32"],
    "a.shares": ["ARRAY", "FLOAT32"],
    "a.huge": ["FLOAT64"],
    "a.endless": ["FLOAT32"],
    "a.most": ["ARRAY", "UINT64"],
}


def test_values_have_the_types_that_llama_cpp_expects(path: Path) -> None:
    fields = gguf.GGUFReader(path).fields
    for key, kinds in KINDS.items():
        assert [kind.name for kind in fields[key].types] == kinds, key


def test_we_read_what_was_written(path: Path) -> None:
    header = read_header(path)
    assert dict(header.metadata) == METADATA
    assert [(one.name, one.type, one.shape) for one in header.tensors] == [
        (one.name, one.type, one.shape) for one in TENSORS
    ]


def test_a_text_that_is_not_utf_8_stays_what_it_is(tmp_path: Path) -> None:
    metadata: dict[str, Value] = {"a": b"\xff\xfe".decode("utf-8", "surrogateescape")}
    (tmp_path / "a.gguf").write_bytes(make_header(metadata, []))
    assert dict(read_header(tmp_path / "a.gguf").metadata) == metadata
