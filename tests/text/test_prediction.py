"""Predictions as token ids: those that a model writes which goes on with the prompt."""

from __future__ import annotations

from functools import cache

import pytest

from inferno.text.model_text import ModelText
from inferno.text.tokenizer import Tokenizer
from tests.data import data_path
from tests.text.loaded import MODELS

STORY = "Once upon a time, there was a little dog.\nIt liked to run, and the sun was warm. 42 cats!"


@cache
def text_of(model: str) -> ModelText:
    return ModelText(data_path(*model.split("/")))


def encode(model: str, prediction: str | None, prompt: list[int], size: int = 1000) -> list[int]:
    return list(text_of(model).encode_prediction(prediction, prompt, max_model_len=size))


def tokenized(model: str) -> tuple[Tokenizer, list[int]]:
    tokenizer = text_of(model).tokenizer
    return tokenizer, tokenizer.encode(STORY)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("end", ["Once upon a time,", "run,", "warm."])
def test_a_text_behind_whole_words_has_the_tokens_that_it_has_there(model: str, end: str) -> None:
    tokenizer, ids = tokenized(model)
    before = STORY[: STORY.index(end) + len(end)]
    prompt = tokenizer.encode(before)
    assert ids[: len(prompt)] == prompt, "the test cuts between tokens"
    assert encode(model, STORY[len(before) :], prompt) == ids[len(prompt) :]


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_put_before_it(model: str) -> None:
    tokenizer, _ = tokenized(model)
    for prompt in ([], tokenizer.encode("Hello"), tokenizer.encode("A line\n")):
        ids = encode(model, "There was a dog", prompt)
        assert not set(ids) & tokenizer.special_tokens.keys()
        assert tokenizer.decode(ids).lstrip() == "There was a dog"


def test_what_follows_a_new_line_begins_without_a_space() -> None:
    tokenizer, _ = tokenized("hf/TinyLlama-1.1B-Chat-v1.0")
    prompt = tokenizer.encode("A line\n")
    assert encode("hf/TinyLlama-1.1B-Chat-v1.0", "There", prompt) == [
        tokenizer.token_to_id("There")
    ]


def test_a_text_that_joins_the_prompts_last_word_is_taken_by_itself() -> None:
    tokenizer, _ = tokenized("hf/Qwen3-0.6B")
    prompt = tokenizer.encode("Wonder")
    assert encode("hf/Qwen3-0.6B", "ful", prompt) == tokenizer.encode("ful")


def test_no_more_of_it_counts_than_the_context_holds() -> None:
    long = "a b c d " * 100_000
    assert len(encode("hf/Qwen3-0.6B", long, [1, 2, 3], 50)) == 47
    assert encode("hf/Qwen3-0.6B", long, [1] * 60, 50) == []
    assert encode("hf/Qwen3-0.6B", None, [1]) == encode("hf/Qwen3-0.6B", "", [1]) == []
