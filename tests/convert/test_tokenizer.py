"""Tokenizers in the metadata of GGUF files: read back, and in llama.cpp's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.convert.tokenizer import tokenizer_metadata
from inferno.errors import TokenizerError
from inferno.model_files import FolderFiles
from inferno.text.chat import load_chat_template, read_templates
from inferno.text.generation_config import eos_token_ids
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.data import data_path
from tests.gguf.metadata import (
    KEYS,
    NORMAL,
    byte_level_metadata,
    sentence_piece_metadata,
    tokenizer_of,
    write_files,
)
from tests.tiny import save_tokenizer

REAL = {
    "hf/TinyLlama-1.1B-Chat-v1.0": 32000,
    "hf/Mistral-7B-Instruct-v0.3": 32768,
    "hf/Qwen3-0.6B": 151936,
    "stories260K": 512,
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a tokenizer, its metadata, and the tokenizer that they make; each made once."""
    made: dict[str, tuple[Tokenizer, dict[str, Any], Tokenizer]] = {}

    def of(model: str) -> tuple[Tokenizer, dict[str, Any], Tokenizer]:
        if model not in made:
            files = FolderFiles(data_path(*model.split("/")))
            metadata: dict[str, Any] = dict(tokenizer_metadata(files, REAL[model]))
            folder = tmp_path_factory.mktemp("converted")
            made[model] = load_tokenizer(files), metadata, tokenizer_of(folder, metadata)
        return made[model]

    return of


@pytest.mark.parametrize("model", ["hf/TinyLlama-1.1B-Chat-v1.0", "hf/Qwen3-0.6B", "stories260K"])
@given(text=st.lists(st.sampled_from(["</s>", "<|im_start|>", " ", "\n", "12", "é", "the", "世"])))
@settings(max_examples=40, deadline=None)
def test_texts_have_the_same_tokens(model: str, text: list[str], converted: Any) -> None:
    theirs, _, ours = converted(model)
    ids = theirs.encode("".join(text))
    assert ours.encode("".join(text)) == ids
    assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("model", ["hf/TinyLlama-1.1B-Chat-v1.0", "hf/Mistral-7B-Instruct-v0.3"])
def test_scores_merge_in_the_order_of_sentence_piece(model: str, converted: Any) -> None:
    _, metadata, _ = converted(model)
    due = sentence_piece_metadata(model)
    assert metadata[KEYS + "tokens"] == due[KEYS + "tokens"]
    assert metadata[KEYS + "token_type"] == due[KEYS + "token_type"]

    def order(scores: list[float]) -> list[str]:
        """The pieces of several characters that merges make, the first to be made first."""
        pieces = [
            (-score, token_id)
            for token_id, (score, kind) in enumerate(
                zip(scores, due[KEYS + "token_type"], strict=True)
            )
            if kind == NORMAL and len(due[KEYS + "tokens"][token_id]) > 1
        ]
        return [due[KEYS + "tokens"][token_id] for _, token_id in sorted(pieces)]

    assert order(metadata[KEYS + "scores"]) == order(due[KEYS + "scores"])


def test_a_byte_level_vocabulary_is_what_a_converter_writes(converted: Any) -> None:
    _, metadata, _ = converted("hf/Qwen3-0.6B")
    due = byte_level_metadata("hf/Qwen3-0.6B", "qwen2", "<|endoftext|>", "<|im_end|>")
    num_tokens = 151669
    for key in ("tokens", "token_type"):
        assert metadata[KEYS + key][:num_tokens] == due[KEYS + key][:num_tokens]
    for key in ("model", "pre", "merges", "eos_token_id", "add_bos_token"):
        assert metadata[KEYS + key] == due[KEYS + key]
    assert len(metadata[KEYS + "tokens"]) == 151936
    assert metadata["general.sampling.temp"] == 0.6
    assert metadata["general.sampling.top_k"] == 20


def test_a_rule_for_spaces_that_readers_lack_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = FolderFiles(data_path("hf", "Mistral-7B-Instruct-v0.3"))
    tokenizer_metadata(files, 32768)
    assert "rule for spaces" in caplog.text


@pytest.mark.parametrize("num_rows", [513, 576])
def test_tokens_after_the_pieces_and_rows_without_a_token_have_scores(
    num_rows: int, tmp_path: Path
) -> None:
    spec = json.loads(data_path("stories260K", "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    spec["added_tokens"].append({"id": 512, "content": "<|im_end|>", "special": True, **flags})
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    files = FolderFiles(tmp_path)
    metadata: dict[str, Any] = dict(tokenizer_metadata(files, num_rows))
    assert len(metadata[KEYS + "scores"]) == len(metadata[KEYS + "tokens"]) == num_rows
    (tmp_path / "made").mkdir()
    made = tokenizer_of(tmp_path / "made", metadata)
    text = "Once upon a time<|im_end|> there"
    assert made.encode(text) == load_tokenizer(files).encode(text)


@pytest.mark.parametrize("ends", [[2], [2, 3], [1, 2, 5]])
def test_what_ends_an_output_still_does(ends: list[int], tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    files = FolderFiles(tmp_path)
    metadata: dict[str, Any] = dict(tokenizer_metadata(files, 262))
    (tmp_path / "made").mkdir()
    made = FolderFiles(write_files(tmp_path / "made", metadata))
    assert eos_token_ids(made, load_tokenizer(made)) == set(ends)


def test_more_ends_than_gguf_has_names_for_are_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2, 3, 4]}')
    with pytest.raises(TokenizerError, match="ends an output"):
        tokenizer_metadata(FolderFiles(tmp_path), 262)


def test_all_templates_are_kept(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    files = FolderFiles(tmp_path)
    metadata: dict[str, Any] = dict(tokenizer_metadata(files, 262))
    assert metadata["tokenizer.chat_template"] == "{{ messages[0].content }}"
    (tmp_path / "made").mkdir()
    made = FolderFiles(write_files(tmp_path / "made", metadata))
    assert read_templates(made) == read_templates(files)
    assert load_chat_template(made, load_tokenizer(made)) is not None


CHANGES: dict[str, tuple[str, Any]] = {
    "a normalizer": ("normalizer", {"type": "Lowercase"}),
    "a pre-tokenizer": ("pre_tokenizer", {"type": "Whitespace"}),
    "a regular expression": (
        "pre_tokenizer",
        {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": r"\w+|\W+"},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
    ),
    "a space before": (
        "pre_tokenizer",
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    ),
    "a decoder": ("decoder", {"type": "Replace", "pattern": {"String": "Ġ"}, "content": "_"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_gguf_cannot_say_is_refused(change: str, tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    key, value = CHANGES[change]
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(TokenizerError, match="what a GGUF file can't say"):
        tokenizer_metadata(FolderFiles(tmp_path), 262)


def test_a_vocabulary_that_no_reader_takes_is_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    with pytest.raises(TokenizerError, match="at most 524,288 are read"):
        tokenizer_metadata(FolderFiles(tmp_path), 2**31 - 1)


def test_tokens_that_take_spaces_along_are_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    spec = json.loads(path.read_text())
    spec["added_tokens"][3]["rstrip"] = True
    path.write_text(json.dumps(spec))
    with pytest.raises(TokenizerError, match="takes spaces along"):
        tokenizer_metadata(FolderFiles(tmp_path), 262)


def test_merges_that_scores_cannot_order_are_refused(tmp_path: Path) -> None:
    folder = data_path("stories260K")
    spec = json.loads((folder / "tokenizer.json").read_text())
    del spec["model"]["merges"][17]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(TokenizerError, match="merges"):
        tokenizer_metadata(FolderFiles(tmp_path), 512)
