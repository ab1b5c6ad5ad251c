"""Headers of safetensors files that lie, and those that only look odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferno.errors import CheckpointError
from inferno.weights.open import open_checkpoint
from tests.weights.files import (
    accepts,
    entry,
    one_tensor,
    raw_file,
    tensor_file,
    write_single,
)

F32 = entry("F32", [1], [0, 4])
W = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def one(dtype: object, shape: object, offsets: object, size: int = 8) -> bytes:
    return tensor_file({"w": entry(dtype, shape, offsets)}, bytes(size))


BAD_FILES = {
    # ST01 to ST05: the length and the JSON
    "empty file": b"",
    "7 bytes": bytes(7),
    "length 2^64-1": raw_file("{}", length=2**64 - 1),
    "length 2^63": raw_file("{}", length=2**63),
    "length beyond the format's limit": raw_file("{}", length=100_000_001),
    "length of one too many": raw_file("{}", length=3),
    "length 0": raw_file("", bytes(8)),
    "not UTF-8": raw_file(b"\xff\xfe"),
    "UTF-16": raw_file("{}".encode("utf-16")),
    "byte order mark": raw_file("\ufeff{}"),
    "cut short": raw_file("{"),
    "a list": raw_file("[]"),
    "null": raw_file("null"),
    "a string": raw_file('"w"'),
    "two objects": raw_file("{}{}"),
    "garbage after the object": raw_file("{}\0"),
    "100,000 lists deep": raw_file("[" * 100_000),
    "100,000 objects deep": raw_file('{"a":' * 100_000),
    "an integer of 5000 digits": raw_file('{"w":{"dtype":"F32","shape":[' + "9" * 5000 + "]}}"),
    "no dtype": tensor_file({"w": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "no shape": tensor_file({"w": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)),
    "no offsets": tensor_file({"w": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "an unknown key": tensor_file({"w": {**F32, "stride": [1]}}, bytes(4)),
    "an entry that is a list": tensor_file({"w": ["F32", [1], [0, 4]]}, bytes(4)),
    "an entry that is null": tensor_file({"w": None}),
    # ST06, ST07: tensors that don't lie side by side
    "hole at the start": one("F32", [1], [4, 8]),
    "hole": tensor_file({"a": F32, "b": entry("F32", [1], [8, 12])}, bytes(12)),
    "same bytes twice": tensor_file({"a": F32, "b": F32}, bytes(4)),
    "overlap": tensor_file(
        {"a": entry("F32", [2], [0, 8]), "b": entry("F32", [1], [4, 8])}, b"8" * 8
    ),
    "empty tensor in the middle of another": tensor_file(
        {"a": entry("F32", [2], [0, 8]), "b": entry("F32", [0], [4, 4])}, bytes(8)
    ),
    # ST08: offsets
    "stop before start": one("F32", [1], [4, 0]),
    "negative start": one("F32", [3], [-4, 8]),
    "float offsets": raw_file(
        '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0.0,8.0]}}', bytes(8)
    ),
    "exponent offsets": raw_file(
        '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8e0]}}', bytes(8)
    ),
    "string offsets": one("F32", [2], ["0", "8"]),
    "offsets that are booleans": one("U8", [1], [False, True], 1),
    "null offsets": one("F32", [2], None),
    "one offset": one("F32", [2], [8]),
    "three offsets": one("F32", [2], [0, 8, 8]),
    "offsets beyond 2^64": one("F32", [2], [2**64, 2**64 + 8]),
    "NaN offsets": raw_file('{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,NaN]}}', bytes(8)),
    # ST09: shapes that overflow
    "shape [2^32, 2^32]": one("F32", [2**32, 2**32], [0, 0]),
    "shape [2^63, 2]": one("F32", [2**63, 2], [0, 0]),
    "shape [2^63, 2^63, 0]": one("F32", [2**63, 2**63, 0], [0, 0], 0),
    "shape [2^40, 2^40, 0]": one("F32", [2**40, 2**40, 0], [0, 0], 0),
    "shape [0, 2^40, 2^40]": one("F32", [0, 2**40, 2**40], [0, 0], 0),
    "shape [0, 2^63]": one("F32", [0, 2**63], [0, 0], 0),
    "negative shape": one("F32", [-1, -2], [0, 8]),
    "shape of booleans": one("F32", [True], [0, 4], 4),
    "shape of floats": one("F32", [2.0], [0, 8]),
    "shape that is a number": one("F32", 2, [0, 8]),
    "shape of 17 dimensions": one("F32", [1] * 17, [0, 4], 4),
    # ST10 to ST12: sizes
    "a byte too few for the shape": one("F32", [2, 2], [0, 15], 15),
    "a byte too many for the shape": one("F32", [2, 2], [0, 17], 17),
    "trailing bytes": one_tensor() + b"PK\x05\x06",
    "data without tensors": raw_file("{}", bytes(4)),
    "cut data": one_tensor()[:-1],
    "no data": one_tensor()[:-8],
    # ST13: types
    "unknown dtype": one("F33", [2], [0, 8]),
    "dtype in lower case": one("f32", [2], [0, 8]),
    "dtype that is a number": one(32, [2], [0, 8]),
    "dtype that is a list": one(["F32"], [2], [0, 8]),
    "dtype of a megabyte": one("F" * 2**20, [2], [0, 8]),
    "four-bit floats": one("F4", [3], [0, 2], 2),
    # ST14: keys twice
    "a tensor twice": raw_file(f'{{"w":{W},"w":{W}}}', bytes(4)),
    "a tensor twice, escaped": raw_file(f'{{"w":{W},"\\u0077":{W}}}', bytes(4)),
    "a key of an entry twice": raw_file(
        '{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"shape":[1]}}', bytes(4)
    ),
    "metadata twice": raw_file('{"__metadata__":{},"__metadata__":{}}'),
    "a key of the metadata twice": raw_file('{"__metadata__":{"a":"1","a":"1"}}'),
    # ST15: metadata
    "metadata that is a list": tensor_file({"__metadata__": []}),
    "metadata that is null": tensor_file({"__metadata__": None}),
    "a number in the metadata": tensor_file({"__metadata__": {"format": 1}}),
    # ST17: names
    "empty name": one_tensor(""),
    "NUL in a name": one_tensor("a\0b"),
    "line feed in a name": one_tensor("a\nb"),
    "escape sequence in a name": one_tensor("\x1b[31mred"),
    "right-to-left override in a name": one_tensor("a\u202eb"),
    "lone surrogate in a name": raw_file(f'{{"\\ud800":{W}}}', bytes(4)),
    "surrogate in UTF-8": raw_file(f'{{"\ud800":{W}}}', bytes(4)),
    "name of 1025 characters": one_tensor("a" * 1025),
    "name of 1 MB": one_tensor("a" * 2**20),
    # what is found in place of a file
    "renamed zip": b"PK\x03\x04" + bytes(100),
    "renamed pickle": b"\x80\x02}q\x00." + bytes(100),
    "web page": b"<!DOCTYPE html><html><body>Not found</body></html>",
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_lying_file_is_refused_in_one_short_line_that_names_it(
    content: bytes, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(write_single(tmp_path, content))
    message = str(error.value)
    assert str(tmp_path / "model.safetensors") in message
    assert message.isprintable()
    assert len(message) < len(str(tmp_path)) + 400


GOOD_FILES = {
    "no tensors": raw_file("{}"),
    "leading white space": raw_file(f' \n{{"w":{W}}}', bytes(4)),
    "trailing white space": raw_file(f'{{"w":{W}}}  \t\n ', bytes(4)),
    "metadata": tensor_file({"__metadata__": {"format": "pt", "": ""}, "w": F32}, bytes(4)),
    "header order is not data order": tensor_file(
        {"b": entry("F32", [1], [4, 8]), "a": F32}, bytes(8)
    ),
    "a scalar": one("F32", [], [0, 4], 4),
    "an empty tensor": one("F32", [0, 3], [0, 0], 0),
    "an empty tensor between others": tensor_file(
        {"a": F32, "b": entry("F32", [0], [4, 4]), "c": entry("F32", [1], [4, 8])}, bytes(8)
    ),
    "unaligned data": tensor_file(
        {"a": entry("U8", [1], [0, 1]), "b": entry("F32", [1], [1, 5])}, bytes(5)
    ),
    "a name like a path": one_tensor("../../etc/passwd"),
    "a name in another script": one_tensor("слой.вес"),
    "a name of 1024 characters": one_tensor("a" * 1024),
    "an eight-bit float": one("F8_E4M3", [2], [0, 2], 2),
}


@pytest.mark.parametrize("content", GOOD_FILES.values(), ids=GOOD_FILES.keys())
def test_an_odd_but_valid_file_is_accepted(content: bytes, tmp_path: Path) -> None:
    assert accepts(write_single(tmp_path, content))


def test_a_type_that_cannot_be_read_keeps_its_name(tmp_path: Path) -> None:
    with open_checkpoint(write_single(tmp_path, one("F8_E4M3", [2], [0, 2], 2))) as checkpoint:
        assert checkpoint.tensors["w"].dtype == "F8_E4M3"


def test_a_header_over_the_limit_is_refused_though_the_file_holds_it(tmp_path: Path) -> None:
    padded = raw_file("{}" + " " * (4 << 20))
    with pytest.raises(CheckpointError, match="at most 4194304"):
        open_checkpoint(write_single(tmp_path, padded))


def test_the_message_says_what_was_found_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_checkpoint(write_single(tmp_path, BAD_FILES["Git LFS pointer"]))


@pytest.mark.parametrize(
    "content", [raw_file("{}", length=3), one_tensor()[:-1], one_tensor()[:40]]
)
def test_the_message_says_that_a_download_was_cut_short(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cut short"):
        open_checkpoint(write_single(tmp_path, content))


def test_twenty_thousand_tensors_in_one_file_are_fine(tmp_path: Path) -> None:
    header = {
        f"model.layers.{i // 400}.mlp.experts.{i % 400}.up_proj.weight": entry(
            "U8", [1], [i, i + 1]
        )
        for i in range(20_000)
    }
    with open_checkpoint(write_single(tmp_path, tensor_file(header, bytes(20_000)))) as checkpoint:
        assert checkpoint.tensors.keys() == header.keys()
