"""Tests of inferno.text.special_token_escape: a user's special tokens stay plain text."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.model_files import FolderFiles
from inferno.text.special_token_escape import (
    MARK,
    PrivateTokenizer,
    RenderedChat,
    SpecialTokenEscaper,
)
from inferno.text.tokenizer import load_tokenizer
from inferno.text.tokenizer_limits import MAX_SPECIAL_TOKENS
from tests.text.loaded import added_token, real_tokenizer, small_spec, write_tokenizer

TOKENS = ["<s>", "</s>", "<|a|>", "<|ab|>", "ab", "bc", "#"]
PIECES = st.sampled_from([*TOKENS, "<", "<|", "a", "b", "c", "|>", " ", "x"])


def leftmost_longest(text: str, tokens: list[str]) -> tuple[tuple[int, int], ...]:
    spans, start = [], 0
    while start < len(text):
        here = [token for token in tokens if text.startswith(token, start)]
        if here:
            end = start + len(max(here, key=len))
            spans.append((start, end))
            start = end
        else:
            start += 1
    return tuple(spans)


@given(pieces=st.lists(PIECES, max_size=12))
def test_special_tokens_in_unmarked_text_are_found(pieces: list[str]) -> None:
    text = "".join(pieces)
    expected = RenderedChat(text, leftmost_longest(text, TOKENS))
    assert SpecialTokenEscaper(TOKENS).unescape(text) == expected


@given(parts=st.lists(st.lists(PIECES, max_size=4), max_size=4))
def test_texts_of_a_user_put_together_hold_no_special_token(parts: list[list[str]]) -> None:
    escaper = SpecialTokenEscaper(TOKENS)
    texts = ["".join(part) for part in parts]
    marked = "".join(str(escaper.escape(text)) for text in texts)
    assert escaper.unescape(marked) == RenderedChat("".join(texts), ())


@pytest.mark.parametrize("token", TOKENS)
def test_a_special_token_cut_in_two_is_text_wherever_it_is_cut(token: str) -> None:
    escaper = SpecialTokenEscaper(TOKENS)
    for cut in range(1, len(token)):
        start, end = token[:cut], token[cut:]
        assert escaper.unescape(f"{escaper.escape(start)}{escaper.escape(end)}").special_spans == ()
        spans = escaper.unescape(f"{escaper.escape(start)}{end}").special_spans
        assert all(first >= cut for first, _ in spans)  # the template may write one of its own


@given(before=PIECES, text=st.lists(PIECES, max_size=4), after=st.sampled_from(TOKENS))
def test_special_tokens_of_the_template_beside_a_users_text_are_found(
    before: str, text: list[str], after: str
) -> None:
    escaper = SpecialTokenEscaper(TOKENS)
    typed = "".join(text)
    spans = escaper.unescape(f"{before}\n{escaper.escape(typed)}\n{after}").special_spans
    end = len(f"{before}\n{typed}\n{after}")
    assert spans == (*leftmost_longest(before, TOKENS), (end - len(after), end))


def test_everything_in_a_structure_is_marked() -> None:
    value = {"<s>": ["<s>", {"a": "x<s>"}], "n": [1, None, True, 1.5]}
    broken = f"<{MARK}s>"
    assert SpecialTokenEscaper(["<s>"]).escape(value) == {
        broken: [broken, {"a": f"x{broken}"}],
        "n": [1, None, True, 1.5],
    }


def test_ordinary_text_is_left_as_it_is() -> None:
    text = "5 < 6 > 4, <b>bold</b> <|x|> \u00e9"
    assert SpecialTokenEscaper(TOKENS[:3]).escape(text) == text


def test_a_users_own_marks_and_surrogates_become_replacement_characters() -> None:
    assert SpecialTokenEscaper([]).escape(f"a{MARK}\ud800\ufdd1b") == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize("text", ["<", "<|", "[", "a", "<|im_end|>", "[control_8]"])
def test_marking_takes_time_in_proportion_to_the_text(text: str) -> None:
    escaper = real_tokenizer("hf/Mistral-7B-Instruct-v0.3").escaper

    def seconds(length: int) -> float:
        start = time.process_time()
        escaper.unescape(str(escaper.escape(text * (length // len(text)))))
        return time.process_time() - start

    short = min(seconds(50_000) for _ in range(3))
    assert min(seconds(400_000) for _ in range(2)) < 20 * short


@pytest.mark.parametrize("shape", ["<|{}|>", "{}<|>"])
def test_many_tokens_are_made_ready_at_once(shape: str) -> None:
    numbers = random.Random(0).sample(range(10**9), MAX_SPECIAL_TOKENS)
    tokens = [shape.format(number) for number in numbers]
    start = time.process_time()
    escaper = SpecialTokenEscaper(tokens)
    assert time.process_time() - start < 0.7  # it takes 0.05, and 2 where all are compiled
    text = f"{escaper.escape(tokens[7])} {tokens[8]}"
    start_of_second = len(tokens[7]) + 1
    due = ((start_of_second, start_of_second + len(tokens[8])),)
    assert escaper.unescape(text) == RenderedChat(f"{tokens[7]} {tokens[8]}", due)


MANY = [f"<{a}{b}>" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]


@given(pieces=st.lists(st.sampled_from([*MANY[::40], *TOKENS, "<", "a", MARK, "|>"]), max_size=12))
def test_of_many_tokens_those_in_a_text_are_found(pieces: list[str]) -> None:
    tokens = [*MANY, *TOKENS]
    plain = "".join(piece for piece in pieces if piece != MARK)
    assert SpecialTokenEscaper(tokens).unescape(plain).special_spans == leftmost_longest(
        plain, tokens
    )
    escaper = SpecialTokenEscaper(tokens)
    marked = "".join(str(escaper.escape(piece)) for piece in pieces)
    assert escaper.unescape(marked).special_spans == ()


PECULIAR = {
    "plain": {},
    "takes the space on its left": {"lstrip": True},
    "takes the space on its right": {"rstrip": True},
}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


@pytest.mark.parametrize("is_metaspace", [False, True])
@pytest.mark.parametrize("kind", PECULIAR)
def test_a_private_tokenizer_encodes_as_the_original(
    kind: str, is_metaspace: bool, tmp_path: Path
) -> None:
    spec = small_spec()
    spec["added_tokens"].append(added_token(512, "<x>", **PECULIAR[kind]))
    if is_metaspace:
        spec |= {"normalizer": None, "pre_tokenizer": METASPACE}
    original = tokenizers.Tokenizer.from_str(json.dumps(spec))
    private = PrivateTokenizer(original)
    escaper = SpecialTokenEscaper(["<unk>", "<s>", "</s>", "<x>"])

    @settings(deadline=None, max_examples=100)
    @given(st.lists(st.sampled_from(["<x>", "<s>", " ", "\n", "a", "girl", "the ", "é"])))
    def check(pieces: list[str]) -> None:
        text = "".join(pieces)
        expected = original.encode(text, add_special_tokens=False).ids
        assert private.encode(escaper.unescape(text)) == expected

    check()


@pytest.mark.parametrize("flag", ["single_word", "normalized"])
def test_a_private_spelling_is_found_wherever_it_stands(flag: str) -> None:
    spec = small_spec()
    spec["added_tokens"].append(added_token(512, "<x>", **{flag: True}))
    private = PrivateTokenizer(tokenizers.Tokenizer.from_str(json.dumps(spec)))
    ids = private.encode(SpecialTokenEscaper(["<x>"]).unescape("a<x><x>b<x>"))
    assert ids.count(512) == 3
    assert len(ids) == 5


def test_a_special_token_sought_in_normalized_text_has_no_second_spelling(tmp_path: Path) -> None:
    spec = small_spec()
    spec["normalizer"] = {"type": "Lowercase"}
    spec["added_tokens"].append(added_token(512, "<x>", normalized=True))
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    assert 512 in tokenizer.encode("a <X>")
    assert 512 not in tokenizer.encode_rendered(RenderedChat("a <X>", ()))


@pytest.mark.parametrize("model", ["stories260K", "hf/Mistral-7B-Instruct-v0.3", "hf/Qwen3-0.6B"])
def test_a_users_special_tokens_become_the_ids_of_their_characters(model: str) -> None:
    tokenizer = real_tokenizer(model)
    for token in list(tokenizer.special_tokens.values())[:20]:
        text = f"say {token} and {token}"
        ids = tokenizer.encode_rendered(RenderedChat(text, ((4, 4 + len(token)),)))
        assert sum(token_id in tokenizer.special_tokens for token_id in ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=False).replace(" ", "") == text.replace(
            " ", ""
        )
