"""A server whose model says what a test tells it to, in the tokens of a real tokenizer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.text.model_text import ModelText
from tests.server.hosting import Host, hosting

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
TIME: dict[str, Any] = {"type": "function", "function": {"name": "get_time"}}


class Speaker(ScriptedClient):
    """An engine that gives the answers it is told to, the last of them again and again."""

    def __init__(self, text: ModelText) -> None:
        super().__init__(Script())
        self._text = text

    def say(self, *answers: str, **more: Any) -> None:
        encode = self._text.tokenizer.encode
        told = [
            Answer(token_ids=tuple(encode(each, add_special_tokens=False)), **more)
            for each in answers
        ]
        self._answers = itertools.chain(told, itertools.repeat(told[-1]))


@contextlib.contextmanager
def speaking(text: ModelText, **settings: Any) -> Iterator[tuple[Host, Speaker]]:
    speaker = Speaker(text)
    with hosting(lambda: speaker, text, **settings) as host:
        yield host, speaker


def harmony_call(name: str, arguments: str) -> str:
    """A call as gpt-oss writes it, up to its end."""
    return (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
    )
