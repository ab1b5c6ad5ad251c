"""Tests of inferno.text.detokenize: the stream put together is the whole decoding, however cut."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.model_files import FolderFiles
from inferno.text.detokenize import IncrementalDecoder
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.text.loaded import MODELS, real_tokenizer, small_spec, write_tokenizer


def pieces(tokenizer: Tokenizer, parts: list[list[int]], **options: Any) -> list[str]:
    decoder = IncrementalDecoder(tokenizer, **options)
    return [*(decoder.feed(part) for part in parts), decoder.finish()]


def parts_of_ids(vocab_size: int) -> st.SearchStrategy[list[list[int]]]:
    # The first ids are bytes and special tokens in every one of these vocabularies, the last too.
    token_id = st.one_of(
        st.integers(0, 300),
        st.integers(0, vocab_size - 1),
        st.integers(vocab_size - 30, vocab_size),
    )
    return st.lists(st.lists(token_id, max_size=6), max_size=12)


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=100)
@given(data=st.data(), skip_special_tokens=st.booleans())
def test_any_ids_in_any_parts_make_the_text_of_the_whole(
    model: str, data: st.DataObject, skip_special_tokens: bool
) -> None:
    tokenizer = real_tokenizer(model)
    parts = data.draw(parts_of_ids(tokenizer.vocab_size))
    whole = tokenizer.decode(list(chain(*parts)), skip_special_tokens=skip_special_tokens)
    assert "".join(pieces(tokenizer, parts, skip_special_tokens=skip_special_tokens)) == whole


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_no_piece_holds_half_a_character(model: str, text: str) -> None:
    tokenizer = real_tokenizer(model)
    ids = tokenizer.encode(text, add_special_tokens=False)
    streamed = pieces(tokenizer, [[token_id] for token_id in ids])
    assert "".join(streamed) == tokenizer.decode(ids)
    assert "".join(streamed).count("\ufffd") == text.count("\ufffd")


@pytest.mark.parametrize("model", MODELS)
def test_text_comes_with_its_token_where_it_can(model: str) -> None:
    tokenizer = real_tokenizer(model)
    ids = tokenizer.encode("Once upon a time there was a girl", add_special_tokens=False)
    *streamed, rest = pieces(tokenizer, [[token_id] for token_id in ids])
    assert all(streamed)
    assert rest == ""


@pytest.mark.parametrize("model", MODELS)
def test_the_text_after_a_prompt_keeps_its_leading_space(model: str) -> None:
    tokenizer = real_tokenizer(model)
    ids = tokenizer.encode("Once upon a time", add_special_tokens=False)
    for cut in range(1, len(ids)):
        after = "".join(pieces(tokenizer, [ids[cut:]], prompt_token_ids=ids[:cut]))
        assert tokenizer.decode(ids[:cut]) + after == "Once upon a time"


def test_what_a_prompt_left_open_is_not_said_again() -> None:
    tokenizer = real_tokenizer("stories260K")
    newline = tokenizer.token_to_id("<0x0A>")
    assert newline is not None
    [piece, _] = pieces(tokenizer, [[newline, 300]], prompt_token_ids=[300, newline])
    assert piece == tokenizer.decode([300, newline, newline, 300]).partition("\n")[2]


DECODERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "metaspace": {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": False,
    },
    "word pieces": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "no strip": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    },
    "two spaces stripped": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 2, "stop": 0},
        ],
    },
    "word ends": {"type": "BPEDecoder", "suffix": "▁"},
    "a letter for a space": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "x"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    },
}


@pytest.mark.parametrize("name", DECODERS)
def test_other_ways_of_decoding_give_the_text_of_the_whole_too(name: str, tmp_path: Path) -> None:
    spec = small_spec()
    spec["decoder"] = DECODERS[name]
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))

    @settings(deadline=None, max_examples=50)
    @given(parts=parts_of_ids(tokenizer.vocab_size))
    def check(parts: list[list[int]]) -> None:
        assert "".join(pieces(tokenizer, parts)) == tokenizer.decode(list(chain(*parts)))

    check()


@pytest.mark.parametrize("model", ["stories260K", "hf/Qwen3-0.6B"])
def test_the_cost_of_a_token_does_not_grow_with_the_text(model: str) -> None:
    tokenizer = real_tokenizer(model)
    ids = tokenizer.encode("Once upon a time é 世😀", add_special_tokens=False) * 3000

    def seconds(num_ids: int) -> float:
        start = time.process_time()
        pieces(tokenizer, [[token_id] for token_id in ids[:num_ids]])
        return time.process_time() - start

    short = min(seconds(2000) for _ in range(3))
    long = min(seconds(20_000) for _ in range(3))
    assert long < 30 * short  # ten times the tokens; a hundred times the work if all were redone
