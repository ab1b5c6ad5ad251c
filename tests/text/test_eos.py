"""Tests of inferno.text.generation_config: the end-of-sequence ids of three files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferno.errors import ConfigError
from inferno.model_files import FolderFiles
from inferno.text.generation_config import eos_token_ids
from inferno.text.tokenizer import load_tokenizer
from tests.data import data_path
from tests.text.loaded import real_tokenizer, small_spec, write_tokenizer


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("stories260K", {1, 2}),
        ("hf/TinyLlama-1.1B-Chat-v1.0", {2}),
        ("hf/Mistral-7B-Instruct-v0.3", {2}),
        ("hf/Qwen3-0.6B", {151643, 151645}),
        ("hf/gpt-oss-20b", {199999, 200002}),
    ],
)
def test_real_models_end_where_their_files_say(model: str, expected: set[int]) -> None:
    assert (
        eos_token_ids(FolderFiles(data_path(*model.split("/"))), real_tokenizer(model)) == expected
    )


def folder_with(folder: Path, config: object, generation_config: object) -> Path:
    write_tokenizer(folder, small_spec(), eos_token="</s>")
    (folder / "config.json").write_text(json.dumps({"eos_token_id": config}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation_config}))
    return folder


def test_all_three_files_count(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, 5, [6, 7])
    assert eos_token_ids(FolderFiles(folder), load_tokenizer(FolderFiles(folder))) == {2, 5, 6, 7}


def test_files_that_declare_none_are_no_error(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, None, [])
    assert eos_token_ids(FolderFiles(folder), load_tokenizer(FolderFiles(folder))) == {2}


@pytest.mark.parametrize("wrong", [-1, 512, 2**70, 1.0, True, "2", [[1]], {"a": 1}])
def test_what_is_no_id_of_the_vocabulary_is_refused_by_file(tmp_path: Path, wrong: object) -> None:
    folder = folder_with(tmp_path, 2, wrong)
    with pytest.raises(ConfigError, match=r"generation_config\.json"):
        eos_token_ids(FolderFiles(folder), load_tokenizer(FolderFiles(folder)))
    folder = folder_with(tmp_path, [2, wrong], 2)
    with pytest.raises(ConfigError, match=r"/config\.json"):
        eos_token_ids(FolderFiles(folder), load_tokenizer(FolderFiles(folder)))
