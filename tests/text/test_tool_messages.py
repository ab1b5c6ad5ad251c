"""Calls of tools, as OpenAI's clients send them back, in the templates of real models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferno.text.chat import ChatTemplate
from inferno.text.tokenizer import Tokenizer
from tests.data import data_path
from tests.text.loaded import real_tokenizer

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
]
TEMPLATES = [
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "openai-gpt-oss-120b",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return real_tokenizer("hf/Qwen3-0.6B")


@pytest.fixture(params=TEMPLATES)
def template(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Iterator[ChatTemplate]:
    source = Path(data_path("templates", f"{request.param}.jinja")).read_text()
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    template = ChatTemplate({"default": source}, tokens, tokenizer)
    yield template
    template.close()


def rendered(template: ChatTemplate, arguments: Any, **more: Any) -> str:
    call = {"name": "get_weather", "arguments": arguments}
    messages = [
        {"role": "user", "content": "Is it raining?"},
        {
            "role": "assistant",
            **more,
            "tool_calls": [{"id": "abcdefghi", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "It pours."},
    ]
    return template.render(messages, tools=TOOLS).text


def test_arguments_are_shown_once_encoded_however_they_were_sent(template: ChatTemplate) -> None:
    place = 'Rome, "Öst"'
    arguments = {"place": place}
    shown = rendered(template, json.dumps(arguments), content=None)
    assert shown == rendered(template, arguments, content=None)
    assert shown == rendered(template, json.dumps(arguments, ensure_ascii=False, indent=1))
    assert json.dumps(arguments, ensure_ascii=False) in shown or f"\n{place}\n" in shown
    assert "get_weather" in shown.partition("It is raining?")[0]
    assert "It pours." in shown
    assert "None" not in shown


def test_an_empty_content_is_none(template: ChatTemplate) -> None:
    assert rendered(template, "{}", content="") == rendered(template, "{}", content=None)


def test_no_arguments_are_an_empty_object(template: ChatTemplate) -> None:
    assert rendered(template, "") == rendered(template, {})
