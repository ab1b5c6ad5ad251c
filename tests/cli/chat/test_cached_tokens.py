"""A prompt spelled with tokens that were computed before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.cli.chat.context import with_cached_tokens
from inferno.demo import MODEL_FOLDERS
from inferno.model_files import FolderFiles
from inferno.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(FolderFiles(MODEL_FOLDERS["demo"]))


def pieces(tokenizer: Tokenizer, *texts: str) -> list[int]:
    return [i for text in texts for i in tokenizer.encode(text, add_special_tokens=False)]


def test_another_spelling_of_the_same_text_is_kept(tokenizer: Tokenizer) -> None:
    rendered = pieces(tokenizer, "Once upon a time there was a cat")
    cached = pieces(tokenizer, *"Once upon a time")
    assert cached != rendered[: len(cached)]
    found = with_cached_tokens(rendered, cached, tokenizer)
    assert found[: len(cached)] == cached
    assert tokenizer.decode(found) == tokenizer.decode(rendered)


def test_a_text_that_differs_is_left_where_it_differs(tokenizer: Tokenizer) -> None:
    rendered = pieces(tokenizer, "the cat sat")
    cached = pieces(tokenizer, "the", " dog", " sat")
    found = with_cached_tokens(rendered, cached, tokenizer)
    assert found == rendered


def test_text_never_passes_for_a_special_token(tokenizer: Tokenizer) -> None:
    [end] = [i for i, text in tokenizer.special_tokens.items() if text == "<|end|>"]
    as_text = [i for char in "<|end|>" for i in pieces(tokenizer, char)]
    assert end not in as_text
    assert with_cached_tokens(as_text, [end], tokenizer) == as_text
    assert with_cached_tokens([end], as_text, tokenizer) == [end]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["cat", " ca", "t", " the", "é", "日本", "\n", " "]), max_size=8),
    st.lists(st.sampled_from(["cat", " ca", "t", " the", "é", "日本", "\n", " "]), max_size=8),
)
def test_the_text_is_always_the_rendered_one(
    tokenizer: Tokenizer, rendered: list[str], cached: list[str]
) -> None:
    ids = pieces(tokenizer, "".join(rendered))
    found = with_cached_tokens(ids, pieces(tokenizer, *cached), tokenizer)
    assert tokenizer.decode(found) == tokenizer.decode(ids)
