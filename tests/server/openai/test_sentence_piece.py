"""Vocabularies that write spaces in front of words: the text goes on where the prompt ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.text.model_text import ModelText
from inferno.text.tokenizer import Tokenizer
from tests.data import data_path
from tests.server.events import choices_of, events_of
from tests.server.hosting import Host, hosting

PROMPT = "Once upon"
MORE = "a time, there was a girl"


@pytest.fixture(scope="module")
def text() -> ModelText:
    return ModelText(data_path("stories260K"))


@pytest.fixture(scope="module")
def host(text: ModelText) -> Iterator[Host]:
    """A model that answers with the same few words."""
    answer = Answer(token_ids=tuple(text.tokenizer.encode(MORE, add_special_tokens=False)))
    script = Script(answers=(answer,), vocab_size=512, max_model_len=512)
    with hosting(lambda: ScriptedClient(script), text) as host:
        yield host


@pytest.fixture(scope="module")
def expected(text: ModelText) -> str:
    """What decoding prompt and output together gives."""
    tokenizer: Tokenizer = text.tokenizer
    more = tokenizer.encode(MORE, add_special_tokens=False)
    return tokenizer.decode([*tokenizer.encode(PROMPT), *more])


def test_an_echo_is_one_text_with_the_output(host: Host, expected: str) -> None:
    fields: dict[str, Any] = {"max_tokens": 50, "logprobs": 0, "return_token_ids": True}
    [echoed] = host.complete(prompt=PROMPT, echo=True, **fields).json()["choices"]
    assert echoed["text"] == expected == f"{PROMPT} {MORE}"
    [plain] = host.complete(prompt=PROMPT, **fields).json()["choices"]
    assert PROMPT + plain["text"] == expected
    ids = echoed["prompt_token_ids"]
    [by_ids] = host.complete(prompt=ids, echo=True, **fields).json()["choices"]
    assert by_ids["text"] == expected


@pytest.mark.parametrize("echo", [False, True])
def test_the_stream_is_the_whole_text(host: Host, expected: str, echo: bool) -> None:
    fields = {"prompt": PROMPT, "max_tokens": 50, "echo": echo, "stream": True}
    events = events_of(host.complete(**fields))
    text = "".join(choice["text"] for choice in choices_of(events))
    assert (text if echo else PROMPT + text) == expected


@pytest.mark.parametrize("echo", [False, True])
def test_offsets_say_where_tokens_begin(host: Host, echo: bool) -> None:
    fields = {"prompt": PROMPT, "max_tokens": 50, "echo": echo, "logprobs": 0}
    [choice] = host.complete(**fields).json()["choices"]
    told = choice["logprobs"]
    spans = [*zip(told["tokens"], told["text_offset"], strict=True)]
    if echo:
        assert spans.pop(0) == ("<s>", 0)
        assert spans.pop(0) == (" Once", 0)  # whose space a beginning drops
    assert all(choice["text"].startswith(token, at) for token, at in spans)
    assert len(spans) > 8
