"""Where a completion's tokens begin in its text, with and without the text of special tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.text.detokenize import token_bytes
from inferno.text.model_text import ModelText
from inferno.text.tokenizer import Tokenizer
from tests.data import data_path
from tests.server.events import choices_of, events_of, joined
from tests.server.hosting import Host, hosting

SAID = " a day{0}{1} in the sun{0} and"


@pytest.fixture(scope="module", params=["demo", "stories260K"])
def text(request: pytest.FixtureRequest) -> ModelText:
    """Of a model that spells bytes, and of one that spells spaces."""
    is_demo = request.param == "demo"
    return ModelText(MODEL_FOLDERS["demo"] if is_demo else data_path("stories260K"))


@pytest.fixture(scope="module")
def specials(text: ModelText) -> list[str]:
    return sorted(text.tokenizer.special_tokens.values())[:2]


@pytest.fixture(scope="module")
def host(text: ModelText, specials: list[str]) -> Iterator[Host]:
    """A model whose answer has special tokens in it."""
    ids = text.tokenizer.encode(SAID.format(*specials), add_special_tokens=False)
    script = Script(answers=(Answer(token_ids=tuple(ids)),), vocab_size=2048, max_model_len=512)
    with hosting(lambda: ScriptedClient(script), text) as host:
        yield host


def spans_of(choice: dict[str, Any]) -> list[tuple[str, int]]:
    told = choice["logprobs"]
    return list(zip(told["tokens"], told["text_offset"], strict=True))


FIELDS: dict[str, Any] = {"max_tokens": 100, "logprobs": 0, "ignore_eos": True}


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("prompt_kind", ["text", "ids"])
def test_tokens_follow_each_other_through_the_text(
    host: Host, specials: list[str], text: ModelText, prompt_kind: str, skip: bool, echo: bool
) -> None:
    tokenizer: Tokenizer = text.tokenizer
    prompt = "Once upon" if prompt_kind == "text" else tokenizer.encode("Once upon")
    fields = {"prompt": prompt, "echo": echo, "skip_special_tokens": skip, **FIELDS}
    [choice] = host.complete(**fields).json()["choices"]
    spans = spans_of(choice)
    num_prompt = len(tokenizer.encode("Once upon")) if echo else 0
    shows_bos = prompt_kind == "ids" and not skip
    end = 0
    for place, (token, offset) in enumerate(spans):
        assert offset == end, (place, token)
        is_shown = token not in specials or (shows_bos if place < num_prompt else not skip)
        begins_text = echo and end == 0 and is_shown and not choice["text"].startswith(token)
        shown = token[begins_text:] if is_shown else ""  # a beginning may drop a space
        assert choice["text"].startswith(shown, offset)
        end += len(shown)
    assert end == len(choice["text"])
    assert sum(token in specials for token, _ in spans) >= 3
    assert skip == (specials[0] not in choice["text"])


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("adds", [False, True])
def test_an_echoed_prompt_shows_the_special_tokens_that_it_spells(
    host: Host, text: ModelText, adds: bool, times: int, skip: bool
) -> None:
    bos = text.tokenizer.special_tokens[text.tokenizer.encode("a")[0]]
    prompt = bos * times + f"Once{bos}upon"
    fields = {"prompt": prompt, "echo": True, "skip_special_tokens": skip, **FIELDS}
    [choice] = host.complete(**fields, add_special_tokens=adds).json()["choices"]
    assert choice["text"].startswith(prompt)
    offsets = [offset for token, offset in spans_of(choice) if token == bos]
    spelled = [at for at in range(len(prompt)) if prompt.startswith(bos, at)]
    assert offsets[: len(spelled) + adds] == [0] * adds + spelled


@pytest.mark.parametrize("skip", [False, True])
def test_a_stream_tells_the_same(host: Host, skip: bool) -> None:
    fields = {"prompt": "Once upon", "echo": True, "skip_special_tokens": skip, **FIELDS}
    [whole] = host.complete(**fields).json()["choices"]
    told = choices_of(events_of(host.complete(**fields, stream=True))[:-1])
    assert "".join(choice["text"] for choice in told) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert joined(choice["logprobs"][name] for choice in told) == values


BROKEN = [
    ("中", 2, " a"),  # cut after two bytes: they become U+FFFD
    ("中", 1, " a"),
    ("\U0001f600", 3, " a"),
    ("中", 1, "中"),  # another character begins before the first is whole
    ("中", 3, " a"),  # and one that is whole
]


def test_broken_characters_are_counted(text: ModelText) -> None:
    tokenizer = text.tokenizer

    def bytes_of(character: str) -> list[int]:
        found = {token_bytes(tokenizer, i): i for i in reversed(range(tokenizer.vocab_size))}
        return [found[bytes([byte])] for byte in character.encode()]

    ids = tokenizer.encode("x", add_special_tokens=False)
    for character, num, after in BROKEN:
        ids += bytes_of(character)[:num]
        ids += (
            bytes_of(after) if after == "中" else tokenizer.encode(" a", add_special_tokens=False)
        )
    script = Script(answers=(Answer(token_ids=tuple(ids)),), vocab_size=2048, max_model_len=512)
    with hosting(lambda: ScriptedClient(script), text) as host:
        fields = {**FIELDS, "prompt": "Once upon", "logprobs": 2}
        [choice] = host.complete(**fields).json()["choices"]
        told = choice["logprobs"]
        assert "\ufffd" in choice["text"]
        for token, offset in spans_of(choice):
            if not token.startswith("bytes:"):
                assert choice["text"].startswith(token, offset), (token, offset, choice["text"])
        for token, top in zip(told["tokens"], told["top_logprobs"], strict=True):
            assert token in top
        stream = choices_of(events_of(host.complete(**fields, stream=True))[:-1])
        for name, values in told.items():
            assert joined(each["logprobs"][name] for each in stream) == values
