"""Tests of calls and results in conversations: rendered as transformers renders them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers import PreTrainedTokenizerFast

from inferno.errors import InvalidRequest
from inferno.text.call_form import call_form
from inferno.text.chat import ChatTemplate
from inferno.text.renderer import TemplateRenderer
from tests.data import data_path
from tests.text.loaded import real_tokenizer

TEMPLATES = {
    "hermes": "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "qwen3": "Qwen-Qwen3-0.6B",
    "qwen3-coder": "Qwen3-Coder",
    "qwen3.5": "Qwen3.5-4B",
    "deepseek": "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "llama": "meta-llama-Llama-3.1-8B-Instruct",
    "nemo": "mistralai-Mistral-Nemo-Instruct-2407",
    "mistral-small": "Mistral-Small-3.2-24B-Instruct-2506",
    "gpt-oss": "openai-gpt-oss-120b",
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the <weather> of a town & its surroundings.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where, e.g. Zürich"},
                    "days": {"type": "integer", "description": "How many", "default": 1},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Tells the time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
ARGUMENTS = {"city": 'Zürich "West" <b>&\'', "days": 2, "deep": {"list": [1, None, True, "😀"]}}
USER = {"role": "user", "content": "Weather?"}
RESULT = {
    "role": "tool",
    "name": "get_weather",
    "tool_call_id": "abcdefghi",
    "content": '{"sky": "blau & weiß"}',
}


def call(arguments: object, call_id: str = "abcdefghi") -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"type": "function", "id": call_id, "function": function}


def said(content: object, *calls: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def source(name: str) -> str:
    return data_path("templates", f"{TEMPLATES[name]}.jinja").read_text("utf-8")


@pytest.fixture(scope="module")
def renderer() -> Iterator[TemplateRenderer]:
    renderer = TemplateRenderer()
    yield renderer
    renderer.close()


@pytest.fixture(scope="module")
def theirs() -> PreTrainedTokenizerFast:
    path = Path(data_path("stories260K", "tokenizer.json"))
    return PreTrainedTokenizerFast(tokenizer_file=str(path), **TOKENS)


def ours(renderer: TemplateRenderer, name: str, messages: list[Any], **options: Any) -> str:
    tokenizer = real_tokenizer("stories260K")
    template = ChatTemplate({"default": source(name)}, TOKENS, tokenizer, renderer)
    return template.render(messages, **options).text


def expected(
    theirs: PreTrainedTokenizerFast, name: str, messages: list[Any], **options: Any
) -> str:
    options.setdefault("add_generation_prompt", True)
    if name == "deepseek":
        # transformers drops a content that is none, and so can't render this template's calls.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(source(name))
        return template.render(messages=messages, **options, **TOKENS)
    text = theirs.apply_chat_template(
        messages, chat_template=source(name), tokenize=False, **options
    )
    assert isinstance(text, str)
    return text


def conversation(name: str, arguments: object, content: object) -> list[dict[str, Any]]:
    turn = [USER, said(content, call(arguments)), RESULT]
    return [*turn, {"role": "assistant", "content": "Blue."}, USER]


@pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "no tools"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_and_results_render_as_in_transformers(
    name: str, tools: Any, renderer: TemplateRenderer, theirs: PreTrainedTokenizerFast
) -> None:
    if name == "hermes" and tools is None:
        pytest.skip("the template is for tools alone")
    wants_text = name == "deepseek"
    arguments: object = json.dumps(ARGUMENTS, ensure_ascii=False) if wants_text else ARGUMENTS
    messages = conversation(name, arguments, None if wants_text else "")
    for end in (3, 5):
        text = ours(renderer, name, messages[:end], tools=tools)
        assert text == expected(theirs, name, messages[:end], tools=tools)
        assert "get_weather" in text


@pytest.mark.parametrize("content", [None, ""])
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_calls_that_clients_send_render_as_those_that_templates_want(
    name: str, content: str | None, renderer: TemplateRenderer, theirs: PreTrainedTokenizerFast
) -> None:
    text = json.dumps(ARGUMENTS, ensure_ascii=False)
    wants_text = name == "deepseek"
    wanted = conversation(name, text if wants_text else ARGUMENTS, None if wants_text else "")
    given = conversation(name, text, content)
    options: dict[str, Any] = {"tools": TOOLS}
    assert ours(renderer, name, given, **options) == expected(theirs, name, wanted, **options)


@pytest.mark.parametrize("name", ["qwen3", "hermes", "qwen3-coder", "qwen3.5", "nemo"])
def test_several_calls_render_as_in_transformers(
    name: str, renderer: TemplateRenderer, theirs: PreTrainedTokenizerFast
) -> None:
    messages = [
        USER,
        said("I look.", call(ARGUMENTS), call({"city": "Bern"}, "123456789")),
        RESULT,
        {**RESULT, "tool_call_id": "123456789"},
    ]
    options: dict[str, Any] = {"tools": TOOLS}
    assert ours(renderer, name, messages, **options) == expected(theirs, name, messages, **options)


@pytest.mark.parametrize("name", ["nemo", "mistral-small"])
def test_ids_of_other_lengths_become_such_as_mistral_takes(
    name: str, renderer: TemplateRenderer
) -> None:
    messages = [
        USER,
        said(None, call(ARGUMENTS, "call_0123456789abcdef")),
        {**RESULT, "tool_call_id": "call_0123456789abcdef"},
    ]
    text = ours(renderer, name, messages, tools=TOOLS)
    before = '"id": "' if name == "nemo" else "[CALL_ID]"
    short = text.partition(before)[2][:9]
    assert short.isalnum()
    assert text.count(short) == 2
    assert "call_0123" not in text


def test_arguments_that_are_no_object_are_refused_where_one_is_needed(
    renderer: TemplateRenderer,
) -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.tool_calls\[0\]\.function\.arg"):
        ours(renderer, "qwen3-coder", [USER, said(None, call("{")), RESULT], tools=TOOLS)
    for name in ("qwen3", "nemo", "gpt-oss", "deepseek"):
        assert "{" in ours(renderer, name, [USER, said(None, call("{")), RESULT], tools=TOOLS)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_arguments_that_are_nested_too_deeply_are_no_object(
    renderer: TemplateRenderer, opening: str
) -> None:
    def arguments(depth: int) -> str:
        closing = "]" if opening == "[" else "}"
        return '{"x":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"

    for depth in (65, 400, 800, 5000):
        turn = [USER, said(None, call(arguments(depth))), RESULT]
        assert "x" in ours(renderer, "qwen3", turn, tools=TOOLS)
        with pytest.raises(InvalidRequest, match="nested"):
            ours(renderer, "qwen3-coder", turn, tools=TOOLS)
    turn = [USER, said(None, call(arguments(64))), RESULT]
    assert "x" in ours(renderer, "qwen3-coder", turn, tools=TOOLS)


def test_no_arguments_are_an_empty_object(renderer: TemplateRenderer) -> None:
    text = ours(renderer, "llama", [USER, said(None, call("")), RESULT], tools=TOOLS)
    assert '{"name": "get_weather", "parameters": {}}' in text


def test_an_empty_list_of_calls_is_none(renderer: TemplateRenderer) -> None:
    messages = [USER, said("Hello."), USER]
    assert "Hello." in ours(renderer, "llama", messages)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("hermes", ""),
        ("qwen3", ""),
        ("qwen3-coder", "wants_object needs_object"),
        ("qwen3.5", "wants_object needs_object takes_null"),
        ("deepseek", "wants_text takes_null"),
        ("llama", "wants_object needs_object"),
        ("nemo", "wants_object wants_short_ids"),
        ("mistral-small", "wants_object wants_short_ids"),
        ("gpt-oss", "wants_object"),
    ],
)
def test_a_template_says_the_form_of_its_calls(name: str, form: str) -> None:
    found = call_form(source(name))
    names = [each for each in found.__dataclass_fields__ if getattr(found, each)]
    assert names == form.split()
