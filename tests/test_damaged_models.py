"""Damaged and hostile model folders end in a typed error or a working model; nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferno import LLM, InfernoError, SamplingParams
from tests.gguf.convert import write_gguf
from tests.tiny import save_tiny, save_tiny_model

FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json")
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path, num_hidden_layers=1)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "top_k": 5}))
    return path


def load_and_run(folder: Path) -> None:
    """Load the model and generate; only typed errors may come out."""
    with (
        contextlib.suppress(InfernoError),
        LLM(folder, threads=1, num_blocks=16) as llm,
    ):
        llm.generate("hello", SamplingParams(max_tokens=3))


def copy_with(folder: Path, target: Path, name: str, content: bytes) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    (target / name).write_bytes(content)
    return target


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a JSON value, few of long lists."""
    found = [path] if path else []
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())[:40]
    elif isinstance(value, list):
        items = list(enumerate(value))[:5]
    else:
        return found
    for key, inner in items:
        found += leaves(inner, (*path, key))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("name", FILES)
def test_a_strange_value_anywhere_is_met(
    folder: Path, tmp_path: Path, name: str, data: st.DataObject
) -> None:
    document = json.loads((folder / name).read_text())
    path = data.draw(st.sampled_from(leaves(document)))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = data.draw(STRANGE)
    load_and_run(copy_with(folder, tmp_path / "copy", name, json.dumps(document).encode()))


@pytest.mark.parametrize(
    "value", [None, True, -1, 0, 3, 2**40, 0.5, float("nan"), "x", [], [1], {}, {"a": 1}]
)
def test_every_key_of_the_config_may_be_anything(
    folder: Path, tmp_path: Path, value: object
) -> None:
    config = json.loads((folder / "config.json").read_text())
    for key in [*config, "rope_scaling", "sliding_window", "torch_dtype", "quantization_config"]:
        content = json.dumps({**config, key: value}).encode()
        load_and_run(copy_with(folder, tmp_path / "copy", "config.json", content))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("name", [*FILES, "model.safetensors"])
def test_flipped_and_missing_bytes_are_met(
    folder: Path, tmp_path: Path, name: str, data: st.DataObject
) -> None:
    content = bytearray((folder / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, min(len(content), 6000) - 1))
        content[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([None, None, len(content) // 2, len(content) - 1, 1, 0]))
    load_and_run(copy_with(folder, tmp_path / "copy", name, bytes(content[:cut])))


@pytest.mark.parametrize("name", [*FILES, "model.safetensors"])
@pytest.mark.parametrize("kind", ["missing", "folder", "dangling link", "fifo", "endless device"])
def test_what_is_no_file_is_met(folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    target = copy_with(folder, tmp_path / "copy", name, b"")
    path = target / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    load_and_run(target)


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf")
    model = save_tiny(path / "hf", "llama", num_hidden_layers=1, vocab_size=20)
    return write_gguf(path / "model.gguf", model)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_gguf_files_are_met(gguf_file: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(gguf_file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(content), 3000) - 9))
        number = data.draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1, 7, 300]))
        size = data.draw(st.sampled_from([1, 4, 8]))
        content[place : place + size] = (number % 256**size).to_bytes(size, "little")
    cut = data.draw(st.sampled_from([None, None, None, len(content) // 2, len(content) - 1]))
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(content[:cut]))
    load_and_run(path)


@pytest.mark.parametrize("kind", ["folder", "dangling link", "fifo", "endless device"])
def test_what_is_no_gguf_file_is_met(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InfernoError), LLM(path, threads=1):
        pass
