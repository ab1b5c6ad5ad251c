"""Answers and events are what OpenAI's own types say they are, and what they have besides is ours.

The types come from the schema that OpenAI publishes; the client reads answers leniently, so that
they are validated here: required keys, types, and the values of enumerations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.shared import ErrorObject
from pydantic import BaseModel

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.text.model_text import ModelText
from tests.data import data_path
from tests.server.events import choices_of, events_of
from tests.server.hosting import Host, hosting
from tests.server.openai.calling import TIME, harmony_call, speaking

CHATS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 3},
    {"logprobs": True, "top_logprobs": 3, "max_tokens": 4},
    {"n": 3, "seed": 1, "max_tokens": 4},
    {"stop": ["e", "a"], "temperature": 0},
    {"stream_options": {"include_usage": True}, "max_tokens": 3},
    {"stream_options": {"continuous_usage_stats": True}, "max_tokens": 3},
    {"return_token_ids": True, "max_tokens": 3},
    {"prompt_logprobs": 2, "max_tokens": 3},
]
COMPLETIONS: list[dict[str, Any]] = [
    {},
    {"prompt": ["One", "Two"], "n": 2},
    {"logprobs": 3},
    {"echo": True},
    {"stop": "e"},
    {"stream_options": {"include_usage": True}},
    {"return_token_ids": True, "prompt_logprobs": 1},
]
ERRORS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{}]}),
    ("/v1/completions", {"prompt": "a", "model": "another"}),
    ("/v1/completions", {"prompt": [1] * 5000}),
    ("/v1/nothing", {}),
]
# What vLLM's clients know, or what was asked for by a field that OpenAI doesn't have.
EXTRAS = {
    "choices.stop_reason",
    "choices.token_ids",
    "choices.prompt_token_ids",
    "choices.prompt_logprobs",
    "prompt_token_ids",
    "prompt_logprobs",
}


@pytest.mark.parametrize("fields", CHATS)
def test_chats(demo: Host, fields: dict[str, Any]) -> None:
    streams = {name: value for name, value in fields.items() if name != "prompt_logprobs"}
    whole = {name: value for name, value in fields.items() if name != "stream_options"}
    check(ChatCompletion, demo.chat(**whole).json())
    for event in events_of(demo.chat(**streams, stream=True))[:-1]:
        check(ChatCompletionChunk, event)


@pytest.mark.parametrize("fields", COMPLETIONS)
def test_completions(demo: Host, fields: dict[str, Any]) -> None:
    fields = {"prompt": "The sun", "max_tokens": 3, **fields}
    streams = {name: value for name, value in fields.items() if name != "prompt_logprobs"}
    whole = {name: value for name, value in fields.items() if name != "stream_options"}
    check(Completion, demo.complete(**whole).json())
    for event in events_of(demo.complete(**streams, stream=True))[:-1]:
        for choice in event["choices"]:
            # OpenAI's API sends null before the last event, which its schema has no place for.
            choice["finish_reason"] = choice["finish_reason"] or "length"
        check(Completion, event)


def test_models(demo: Host) -> None:
    listed = demo.http.get("/v1/models").json()
    assert listed["object"] == "list"
    extras = {"root", "parent", "permission", "max_model_len"}
    for card in [*listed["data"], demo.http.get("/v1/models/demo").json()]:
        check(Model, card, extras)


@pytest.mark.parametrize(("path", "fields"), ERRORS)
def test_errors(demo: Host, path: str, fields: dict[str, Any]) -> None:
    answer = demo.http.post(path, json=fields)
    assert answer.status_code >= 400
    assert answer.json().keys() == {"error"}
    check(ErrorObject, answer.json()["error"], set())


def test_reasoning_is_all_that_a_message_has_besides() -> None:
    text = ModelText(data_path("hf", "Qwen3-0.6B"))
    said = text.tokenizer.encode("<think>\nHm.\n</think>\n\nYes.", add_special_tokens=False)
    script = Script(answers=(Answer(token_ids=tuple(said)),))
    names = {"reasoning", "reasoning_content"}
    with hosting(lambda: ScriptedClient(script), text) as host:
        extras = EXTRAS | {f"choices.message.{name}" for name in names}
        check(ChatCompletion, host.chat().json(), extras)
        events = events_of(host.chat(stream=True))[:-1]
        assert any("reasoning" in each["choices"][0]["delta"] for each in events)
        for event in events:
            extras = EXTRAS | {f"choices.delta.{name}" for name in names}
            check(ChatCompletionChunk, event, extras)


def check(kind: type[BaseModel], value: Any, extras: set[str] = EXTRAS) -> None:
    """It is of this kind, to the letter, and has no other keys than these besides."""
    found = set(extras_of(kind.model_validate(value, strict=True)))
    assert found <= extras, found - extras


def extras_of(value: Any, place: str = "") -> Iterator[str]:
    """The paths of keys that the types don't know."""
    if isinstance(value, list):
        for each in value:
            yield from extras_of(each, place)
    elif isinstance(value, BaseModel):
        yield from (f"{place}{name}" for name in value.model_extra or {})
        for name in type(value).model_fields:
            yield from extras_of(getattr(value, name), f"{place}{name}.")


def test_the_check_finds_what_is_missing_wrong_or_foreign(demo: Host) -> None:
    good = demo.chat(max_tokens=1).json()
    [choice] = good["choices"]
    for bad in (
        {name: value for name, value in good.items() if name != "created"},
        {**good, "choices": [{**choice, "finish_reason": "because"}]},
        {**good, "choices": [{**choice, "index": "0"}]},
        {**good, "usage": {"prompt_tokens": 1}},
    ):
        with pytest.raises(ValueError):
            check(ChatCompletion, bad)
    with pytest.raises(AssertionError):
        check(ChatCompletion, {**good, "choices": [{**choice, "mood": "good"}]})


def test_calls_are_as_openai_has_them() -> None:
    text = ModelText(data_path("hf", "gpt-oss-20b"))
    with speaking(text) as (host, speaker):
        speaker.say(harmony_call("get_time", '{"zone": "CET"}'))
        for fields in ({}, {"n": 2}, {"logprobs": True, "max_tokens": 30}):
            told = host.chat(tools=[TIME], **fields).json()
            assert told["choices"][0]["message"]["tool_calls"]
            check(ChatCompletion, told)
            events = events_of(host.chat(tools=[TIME], **fields, stream=True))[:-1]
            assert any("tool_calls" in choice["delta"] for choice in choices_of(events))
            for event in events:
                check(ChatCompletionChunk, event)
