"""Tests of all parsers on any ids: no error, no loss, and no difference however they are cut."""

from __future__ import annotations

import re
import time
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.text.parsers.answer import join_pieces
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.harmony_header import Mark
from tests.text.loaded import real_tokenizer
from tests.text.parsers.feeding import GPT_OSS, QWEN3, fed, parts_of_ids, runs

THINK_MARKS = ("<think>", "</think>")
MODELS = {GPT_OSS: tuple(Mark), QWEN3: THINK_MARKS}


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_cuts_make_no_difference(model: str, dialect: Dialect, data: st.DataObject) -> None:
    tokenizer = real_tokenizer(model)
    strategy = parts_of_ids(tokenizer, MODELS[model])
    parts = data.draw(strategy)
    prompt = list(chain(*data.draw(strategy)))
    whole = fed(dialect, tokenizer, [list(chain(*parts))], prompt)
    assert runs(fed(dialect, tokenizer, parts, prompt)) == runs(whole)


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_plain_pieces_are_the_decoded_text(model: str, data: st.DataObject) -> None:
    tokenizer = real_tokenizer(model)
    parts = data.draw(parts_of_ids(tokenizer, MODELS[model]))
    answer = join_pieces(fed(Dialect.PLAIN, tokenizer, parts))
    assert answer.content == tokenizer.decode(list(chain(*parts)))
    assert not answer.reasoning


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_think_loses_nothing_but_marks_and_space_around_them(data: st.DataObject) -> None:
    tokenizer = real_tokenizer(QWEN3)
    parts = data.draw(parts_of_ids(tokenizer, THINK_MARKS))
    pieces = fed(Dialect.THINK, tokenizer, parts)
    letters = re.compile(r"</?think>|\s")
    said = letters.sub("", "".join(piece.text for piece in pieces))
    assert said == letters.sub("", tokenizer.decode(list(chain(*parts))))


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_harmony_loses_nothing_of_a_message(data: st.DataObject) -> None:
    tokenizer = real_tokenizer(GPT_OSS)
    parts = data.draw(parts_of_ids(tokenizer, tuple(Mark)))
    said = "".join(piece.text for piece in fed(Dialect.HARMONY, tokenizer, parts))
    position = 0
    for text in message_texts(list(chain(*parts))):
        position = said.find(text, position)
        assert position >= 0
        position += len(text)


def message_texts(token_ids: list[int]) -> list[str]:
    """What stands right after each `<|message|>`, up to the next mark."""
    tokenizer = real_tokenizer(GPT_OSS)
    marks = {tokenizer.token_to_id(mark): mark for mark in Mark}
    texts: list[list[int]] = []
    follows = False
    for token_id in token_ids:
        if token_id in marks:
            follows = marks[token_id] is Mark.MESSAGE
            texts += [[]] if follows else []
        elif follows:
            texts[-1].append(token_id)
    return [tokenizer.decode(ids) for ids in texts]


@pytest.mark.parametrize(
    ("dialect", "model", "before", "repeated"),
    [
        (Dialect.THINK, QWEN3, "", "\n"),
        (Dialect.THINK, QWEN3, "<think>a", "\n"),
        (Dialect.THINK, QWEN3, "a", "</think>"),
        (Dialect.HARMONY, GPT_OSS, "", "<|channel|>"),
        (Dialect.HARMONY, GPT_OSS, "", "<|start|>"),
        (Dialect.HARMONY, GPT_OSS, "<|channel|>", "commentary"),
        (Dialect.HARMONY, GPT_OSS, "<|channel|>analysis<|message|>", " 世😀"),
    ],
)
def test_the_cost_of_a_token_does_not_grow_with_the_output(
    dialect: Dialect, model: str, before: str, repeated: str
) -> None:
    tokenizer = real_tokenizer(model)
    begun, more = (tokenizer.encode(t, add_special_tokens=False) for t in (before, repeated))

    def seconds(num_ids: int) -> float:
        ids = [*begun, *more * num_ids][:num_ids]
        start = time.process_time()
        fed(dialect, tokenizer, [[token_id] for token_id in ids])
        return time.process_time() - start

    short = min(seconds(2000) for _ in range(3))
    long = min(seconds(20_000) for _ in range(3))
    assert long < 30 * short  # ten times the tokens; a hundred times the work if all were redone
