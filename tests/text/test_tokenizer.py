"""Tests of inferno.text.tokenizer against transformers, llama.cpp's vectors and damaged files."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from inferno.demo import MODEL_FOLDERS
from inferno.errors import InvalidRequest, TokenizerError
from inferno.model_files import FolderFiles
from inferno.text.tokenizer import load_tokenizer
from tests.data import data_path
from tests.text.loaded import MODELS, added_token, real_tokenizer, small_spec, write_tokenizer

TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(" \n\t'0aeé世😀<|>s/_\u200d\u0301"),
    ),
    max_size=60,
)


@cache
def oracle(model: str) -> Any:
    # This class takes tokenizer.json as it is; AutoTokenizer's Llama class makes its own of it.
    return PreTrainedTokenizerFast.from_pretrained(data_path(*model.split("/")))


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=60)
@given(text=TEXTS, add_special_tokens=st.booleans())
def test_text_is_encoded_as_transformers_does(
    model: str, text: str, add_special_tokens: bool
) -> None:
    ids = real_tokenizer(model).encode(text, add_special_tokens=add_special_tokens)
    assert ids == oracle(model).encode(text, add_special_tokens=add_special_tokens)


@pytest.mark.parametrize("model", MODELS)
def test_special_tokens_in_raw_text_are_parsed_as_transformers_does(model: str) -> None:
    tokenizer = real_tokenizer(model)
    text = " a ".join(["", *tokenizer.special_tokens.values(), "<think>", ""])
    ids = tokenizer.encode(text)
    assert ids == oracle(model).encode(text)
    assert tokenizer.special_tokens.keys() <= set(ids)


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), skip_special_tokens=st.booleans())
def test_ids_are_decoded_as_transformers_does(
    model: str, data: st.DataObject, skip_special_tokens: bool
) -> None:
    tokenizer = real_tokenizer(model)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 300), max_size=20))
    expected = oracle(model).decode(
        ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
    )
    assert tokenizer.decode(ids, skip_special_tokens=skip_special_tokens) == expected


@pytest.mark.parametrize("model", MODELS)
def test_sizes_and_special_ids_are_those_of_transformers(model: str) -> None:
    tokenizer = real_tokenizer(model)
    assert tokenizer.vocab_size == len(oracle(model))
    assert tokenizer.eos_token_id == oracle(model).eos_token_id
    assert tokenizer.special_tokens.keys() >= set(oracle(model).all_special_ids)


@pytest.mark.parametrize(
    ("vectors", "model"),
    [("llama-spm", "hf/TinyLlama-1.1B-Chat-v1.0"), ("qwen2", "hf/Qwen3-0.6B")],
)
def test_text_is_encoded_as_llama_cpp_does(vectors: str, model: str) -> None:
    base = data_path("vocab", f"ggml-vocab-{vectors}.gguf.inp")
    texts = base.read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    lines = base.with_suffix(".out").read_text("utf-8").split("\n")
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        ids = real_tokenizer(model).encode(text, add_special_tokens=False)
        assert ids == list(map(int, line.split())), text


@pytest.mark.parametrize("model", MODELS)
def test_surrogates_become_replacement_characters(model: str) -> None:
    tokenizer = real_tokenizer(model)
    assert tokenizer.encode("a\ud800b\udfff") == tokenizer.encode("a\ufffdb\ufffd")


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**40])
def test_an_id_that_can_not_be_one_is_refused(token_id: int) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        real_tokenizer("stories260K").decode([5, token_id])
    assert refusal.value.param == "token_ids"


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    spec = small_spec()
    spec["truncation"] = {
        "max_length": 3,
        "strategy": "LongestFirst",
        "stride": 0,
        "direction": "Right",
    }
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    text = "Once upon a time"
    assert tokenizer.encode(text) == real_tokenizer("stories260K").encode(text)


def test_the_config_names_a_token_special_that_tokenizer_json_does_not(tmp_path: Path) -> None:
    spec = small_spec()
    spec["added_tokens"].append(added_token(512, "<end>", special=False))
    folder = write_tokenizer(tmp_path, spec, eos_token="<end>")
    expected = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = load_tokenizer(FolderFiles(folder))
    assert tokenizer.eos_token_id == 512 == expected.eos_token_id
    assert tokenizer.decode([512]) == "" == expected.decode([512], skip_special_tokens=True)


def test_a_named_token_that_the_vocabulary_lacks_gets_no_id(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(
        FolderFiles(write_tokenizer(tmp_path, small_spec(), eos_token="<nowhere>"))
    )
    assert tokenizer.eos_token_id is None
    assert tokenizer.vocab_size == 512


def test_an_older_folder_names_its_tokens_in_special_tokens_map(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, small_spec(), eos_token="<unk>")
    (folder / "special_tokens_map.json").write_text('{"eos_token": {"content": "</s>"}}')
    assert load_tokenizer(FolderFiles(folder)).eos_token_id == 2
    assert PreTrainedTokenizerFast.from_pretrained(folder).eos_token_id == 2


def test_a_missing_tokenizer_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"copy the model's tokenizer\.json"):
        load_tokenizer(FolderFiles(tmp_path))
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(TokenizerError, match="convert it"):
        load_tokenizer(FolderFiles(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"model": ' * 10_000, b"\0" * 100],
)
def test_a_damaged_tokenizer_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(FolderFiles(tmp_path))


def without_special_token_ids(spec: dict[str, Any]) -> None:
    spec["post_processor"]["special_tokens"] = {}  # the library panics when it looks <s> up


def with_a_normalizer_bomb(spec: dict[str, Any]) -> None:
    tenfold = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    spec["normalizer"] = {"type": "Sequence", "normalizers": [tenfold] * 9}


def with_a_decoder_bomb(spec: dict[str, Any]) -> None:
    spec["decoder"] = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10**6}


def with_an_endless_special_token(spec: dict[str, Any]) -> None:
    spec["added_tokens"].append(added_token(512, "x" * 10_000))


def with_an_invalid_regex(spec: dict[str, Any]) -> None:
    spec["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "("},
        "behavior": "Isolated",
        "invert": False,
    }


def with_a_huge_id(spec: dict[str, Any]) -> None:
    spec["model"]["vocab"]["x"] = 2**64


@pytest.mark.parametrize(
    "damage",
    [
        without_special_token_ids,
        with_a_normalizer_bomb,
        with_a_decoder_bomb,
        with_an_endless_special_token,
        with_an_invalid_regex,
        with_a_huge_id,
    ],
)
def test_a_hostile_tokenizer_is_refused_by_name(tmp_path: Path, damage: Any) -> None:
    spec = small_spec()
    damage(spec)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))


def test_a_regex_that_backtracks_too_often_is_an_error_in_time(tmp_path: Path) -> None:
    spec = small_spec()
    with_an_invalid_regex(spec)
    spec["pre_tokenizer"]["pattern"]["Regex"] = "a*" + "(?:a|a)" * 9 + "[bd]"
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    with pytest.raises(TokenizerError, match="can't encode this text"):
        tokenizer.encode("a" * 30_000 + "cb")


@pytest.mark.parametrize("config", [{"bos_token": 1}, {"eos_token": ["a"]}, {"pad_token": {}}])
def test_a_token_name_of_the_wrong_type_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write_tokenizer(tmp_path, small_spec(), **config)
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        load_tokenizer(FolderFiles(folder))


def test_a_damaged_tokenizer_config_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, small_spec())
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        load_tokenizer(FolderFiles(tmp_path))


def test_a_tokenizer_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match="regular file"):
        load_tokenizer(FolderFiles(tmp_path))


@pytest.mark.parametrize("work", ["encode", "decode"])
def test_other_threads_go_on_while_a_long_text_is_worked_on(work: str) -> None:
    tokenizer = load_tokenizer(FolderFiles(MODEL_FOLDERS["demo"]))
    text = "Once upon a time there was a little dog. " * 20_000
    ids = tokenizer.encode(text) * (1 if work == "encode" else 10)
    turns = 0
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(
            lambda: tokenizer.encode(text) if work == "encode" else tokenizer.decode(ids)
        )
        while not done.done():
            time.sleep(0.001)
            turns += 1
    assert turns > 10  # a thread that is kept waiting has one, when all is over


class PanicException(BaseException):
    """What the library raises, by this name, where the system refuses its threads once."""


class Threadless:
    """A tokenizer whose calls for several texts all panic, as they do after that."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        if "batch" in name:
            raise PanicException("The global thread pool has not been initialized.")
        return getattr(self._backend, name)


def test_long_texts_need_no_threads() -> None:
    tokenizer = load_tokenizer(FolderFiles(MODEL_FOLDERS["demo"]))
    text = "Once upon a time, " * 200
    ids = tokenizer.encode(text)
    tokenizer._backend = Threadless(tokenizer._backend)  # type: ignore[assignment]
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text
