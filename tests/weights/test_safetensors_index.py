"""Sharded checkpoints whose index lies, and those whose index is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inferno.errors import CheckpointError
from inferno.weights.open import open_checkpoint
from tests.weights.files import INDEX, accepts, one_tensor, write_index

HOSTILE_SHARDS = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "../x.safetensors",
    "a/x.safetensors",
    "/abs/x.safetensors",
    "..\\x.safetensors",
    "C:\\x.safetensors",
    "C:x.safetensors",
    "\\\\host\\share\\x.safetensors",
    "x.bin",
    "x.safetensors.bin",
    "x.safetensors\n",
    "x\0.safetensors",
    "x\ud800.safetensors",
    ".safetensors",
    ".hidden.safetensors",
    "-x.safetensors",
    "~.safetensors",
    "х.safetensors",  # a Cyrillic letter
    "a" * 300 + ".safetensors",
    None,
    1,
    ["x.safetensors"],
]


@pytest.mark.parametrize("shard", HOSTILE_SHARDS, ids=ascii)
def test_a_shard_name_that_is_not_a_plain_file_name_is_refused(
    shard: object, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "x.safetensors").write_bytes(one_tensor())
    with pytest.raises(CheckpointError, match=r"index\.json") as error:
        open_checkpoint(write_index(folder, {"w": shard}))
    assert str(error.value).isprintable()


BAD_INDEXES = {
    "empty": b"",
    "a list": b"[]",
    "no weight map": b"{}",
    "weight map that is a list": b'{"weight_map":["w"]}',
    "a tensor twice": b'{"weight_map":{"w":"a.safetensors","w":"b.safetensors"}}',
    "weight map twice": b'{"weight_map":{},"weight_map":{}}',
    "not UTF-8": b'{"weight_map":{"\xff":"a.safetensors"}}',
    "deep": b'{"weight_map":' + b"[" * 100_000,
    "hostile name": b'{"weight_map":{"\\u0000":"a.safetensors"}}',
    "10^6 entries": b'{"weight_map":{'
    + b",".join(b'"%d":"a.safetensors"' % i for i in range(10**6))
    + b"}}",
}


@pytest.mark.parametrize("content", BAD_INDEXES.values(), ids=BAD_INDEXES.keys())
def test_a_damaged_index_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(content)
    (tmp_path / "a.safetensors").write_bytes(one_tensor())
    with pytest.raises(CheckpointError, match=r"index\.json"):
        open_checkpoint(tmp_path)


def test_an_index_names_every_shard_and_every_tensor(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(one_tensor("x"))
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(one_tensor("y"))
    shards = {"x": "a.safetensors", "y": "model-00002-of-00002.safetensors"}
    with open_checkpoint(write_index(tmp_path, shards)) as checkpoint:
        assert {name: info.file.name for name, info in checkpoint.tensors.items()} == shards


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"b\.safetensors: is missing"):
        open_checkpoint(write_index(tmp_path, {"w": "b.safetensors"}))


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(one_tensor("x"))
    with pytest.raises(CheckpointError, match=r"a\.safetensors: lacks tensor 'y'"):
        open_checkpoint(write_index(tmp_path, {"x": "a.safetensors", "y": "a.safetensors"}))


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(one_tensor("x"))
    (tmp_path / "b.safetensors").write_bytes(one_tensor("x"))
    (tmp_path / "c.safetensors").write_bytes(one_tensor("y"))
    shards = {"x": "a.safetensors", "y": "c.safetensors"}
    assert accepts(write_index(tmp_path, shards))  # b.safetensors is no part of the checkpoint
    with pytest.raises(CheckpointError, match="holds tensor 'x'"):
        open_checkpoint(write_index(tmp_path, {**shards, "z": "b.safetensors"}))


def test_a_tensor_that_the_index_does_not_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(one_tensor("x"))
    (tmp_path / "b.safetensors").write_bytes(one_tensor("hidden"))
    with pytest.raises(CheckpointError, match=r"'hidden', which .* places in no shard"):
        open_checkpoint(write_index(tmp_path, {"x": "a.safetensors", "y": "b.safetensors"}))


def test_a_damaged_shard_is_named_and_no_file_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(one_tensor("x"))
    (tmp_path / "b.safetensors").write_bytes(one_tensor("y")[:-1])
    open_before = len(os.listdir("/dev/fd"))
    with pytest.raises(CheckpointError, match=r"b\.safetensors"):
        open_checkpoint(write_index(tmp_path, {"x": "a.safetensors", "y": "b.safetensors"}))
    assert len(os.listdir("/dev/fd")) == open_before


def test_a_single_file_is_preferred_to_an_index_as_transformers_does(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(one_tensor("single"))
    with open_checkpoint(write_index(tmp_path, {"x": "a.safetensors"})) as checkpoint:
        assert list(checkpoint.tensors) == ["single"]
