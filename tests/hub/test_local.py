"""The models on this machine: embedded ones, and complete ones of the Hugging Face cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from inferno.hub.local import local_models
from tests.hub.loopback import git_oid


def add_model(cache: Path, name: str, *, commit: str = "a" * 40, ref: str | None = "main") -> Path:
    """A complete model as huggingface_hub lays it out; returns its snapshot."""
    repo = cache / f"models--{name.replace('/', '--')}"
    snapshot = repo / "snapshots" / commit
    for folder in (snapshot, repo / "blobs", repo / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    if ref is not None:
        (repo / "refs" / ref).write_text(commit)
    config = json.dumps({"architectures": ["LlamaForCausalLM"]}).encode()
    contents = {"config.json": config, "tokenizer.json": b"{}", "model.safetensors": b"x" * 1000}
    for file, content in contents.items():
        add_blob(snapshot, file, content)
    return snapshot


def add_blob(snapshot: Path, file: str, content: bytes) -> None:
    blob = snapshot.parents[1] / "blobs" / git_oid(content)
    blob.write_bytes(content)
    (snapshot / file).symlink_to(blob)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    return folder


def cached_names() -> list[str]:
    return [model.name for model in local_models() if "/" in model.name]


def test_without_a_cache_there_is_the_embedded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "missing"))
    first = local_models()[0]
    assert (first.name, first.architecture) == ("demo", "LlamaForCausalLM")
    assert first.num_bytes == (first.folder / "model.safetensors").stat().st_size


def test_complete_models_are_listed_by_name(cache: Path) -> None:
    snapshot = add_model(cache, "b/two")
    add_model(cache, "a/one")
    assert cached_names() == ["a/one", "b/two"]
    found = local_models()[-1]
    assert (found.folder, found.num_bytes) == (snapshot, 1000)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_that_lacks_a_file_is_left_out(cache: Path, file: str) -> None:
    snapshot = add_model(cache, "a/one")
    (snapshot / file).resolve().unlink()  # the link stays, as after a download that was broken off
    assert cached_names() == []


def test_every_shard_must_be_there(cache: Path) -> None:
    snapshot = add_model(cache, "a/one")
    (snapshot / "model.safetensors").unlink()
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index: dict[str, Any] = {"weight_map": dict(zip("xyz", [*shards, shards[0]], strict=True))}
    index["metadata"] = "x" * (9 << 20)  # longer than any other of its files may be
    add_blob(snapshot, "model.safetensors.index.json", json.dumps(index).encode())
    add_blob(snapshot, shards[0], b"x" * 10)
    assert cached_names() == []
    add_blob(snapshot, shards[1], b"x" * 20)
    assert local_models()[-1].num_bytes == 30


def test_the_main_branch_comes_before_other_revisions(cache: Path) -> None:
    main = add_model(cache, "a/one", commit="a" * 40)
    add_model(cache, "a/one", commit="b" * 40, ref=None)
    assert local_models()[-1].folder == main


@pytest.mark.parametrize("content", ["", "[]", "{", '{"architectures": []}', '{"a": 1}', "\xff"])
def test_a_damaged_config_is_left_out(cache: Path, content: str) -> None:
    snapshot = add_model(cache, "a/one")
    (snapshot / "config.json").unlink()
    add_blob(snapshot, "config.json", content.encode("latin-1"))
    assert cached_names() == []


def test_data_sets_and_strange_folders_are_left_out(cache: Path) -> None:
    add_model(cache, "a/one")
    (cache / "datasets--c--three" / "snapshots").mkdir(parents=True)
    (cache / "models--broken").mkdir()
    (cache / "file").write_text("")
    assert cached_names() == ["a/one"]
