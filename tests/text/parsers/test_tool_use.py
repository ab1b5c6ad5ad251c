"""Tests of which calls a model's template asks for, and of its own writing, read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferno.errors import InvalidRequest
from inferno.requests import SamplingParams
from inferno.text.model_text import ModelText
from inferno.text.parsers.answer import Answer, ToolCall, assistant_message, join_pieces
from inferno.text.parsers.calls.syntax import (
    SYNTAXES,
    ToolDialect,
    ToolUse,
    choose_tool_dialect,
    make_tool_use,
)
from inferno.text.parsers.choose import Dialect
from inferno.text.sequence_texts import SequenceTexts
from tests.data import data_path
from tests.fuzz.parsers import run_case
from tests.text.loaded import MODELS, added_token, small_spec, write_tokenizer
from tests.text.parsers.calling import TOOLS, parsed, tokenizer_of
from tests.text.parsers.feeding import GPT_OSS, QWEN3
from tests.text.test_call_form import TEMPLATES, expected, source
from tests.text.test_call_form import theirs as theirs  # a fixture

DIALECTS = {
    "hermes": ToolDialect.HERMES,
    "qwen3": ToolDialect.HERMES,
    "qwen3-coder": ToolDialect.QWEN_XML,
    "qwen3.5": ToolDialect.QWEN_XML,
    "deepseek": ToolDialect.DEEPSEEK,
    "llama": ToolDialect.LLAMA,
    "nemo": ToolDialect.MISTRAL_LIST,
    "mistral-small": ToolDialect.MISTRAL_ARGS,
    "gpt-oss": ToolDialect.HARMONY,
}
# The template writes calls in them, but no tools: its model was not taught any.
WITHOUT_TOOLS = {"deepseek"}
ENDS = ("<|im_end|>", "<|eot_id|>", "<｜end▁of▁sentence｜>", "</s>", "<|call|>")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_in_which_dialect_calls_are(name: str) -> None:
    assert choose_tool_dialect(source(name)) is DIALECTS[name]


@pytest.mark.parametrize("template", [None, "", "{{ messages }}", "{# tools #}", "tools"])
def test_a_template_without_tools_has_no_dialect(template: str | None) -> None:
    assert choose_tool_dialect(template) is ToolDialect.NONE


def test_tools_in_an_unknown_dialect_are_told_apart() -> None:
    assert choose_tool_dialect("{% if tools %}{{ tools }}{% endif %}") is ToolDialect.UNKNOWN


def test_templates_of_other_models_are_told_apart() -> None:
    cases = json.loads(data_path("chat", "test-chat-template.json").read_text("utf-8"))
    found = {case["name"]: choose_tool_dialect(case["template"]) for case in cases}
    named = {name.partition(" ")[0]: dialect for name, dialect in found.items()}
    assert named["ChatGLM4"] is ToolDialect.UNKNOWN
    assert named["ibm-granite/granite-3.0-8b-instruct"] is ToolDialect.UNKNOWN
    assert named["Mistral-Large-Instruct-2407"] is ToolDialect.MISTRAL_LIST
    assert named["teknium/OpenHermes-2.5-Mistral-7B"] is ToolDialect.NONE


TOOLS_AS_TEMPLATES_TAKE_THEM = [
    {
        "type": "function",
        "function": {
            "name": "get_x",
            "description": "Gets it.",
            "parameters": {
                "type": "object",
                "properties": {
                    "s": {"type": "string", "description": "a"},
                    "n": {"type": "integer", "description": "b"},
                    "o": {"type": "object", "description": "c"},
                },
            },
        },
    }
]
ARGUMENTS = {"s": 'Zürich "West"\n<b> {&\'} 😀', "n": 2, "o": {"k": [1, None, True]}}


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_that_a_template_writes_are_read(name: str, theirs: Any) -> None:
    dialect = DIALECTS[name]
    is_text = name in WITHOUT_TOOLS
    function = {
        "name": "get_x",
        "arguments": json.dumps(ARGUMENTS, ensure_ascii=False) if is_text else ARGUMENTS,
    }
    call = {"id": "abcdefghi", "type": "function", "function": function}
    several = name in ("hermes", "qwen3", "qwen3-coder", "qwen3.5", "nemo", "mistral-small")
    calls = [call, call] if several else [call]
    said = {"role": "assistant", "content": None if is_text else "", "tool_calls": calls}
    question = {"role": "user", "content": "Now?"}
    options: dict[str, Any] = {"tools": TOOLS_AS_TEMPLATES_TAKE_THEM}
    before = expected(theirs, name, [question], add_generation_prompt=False, **options)
    whole = expected(theirs, name, [question, said], add_generation_prompt=False, **options)
    output = whole.removeprefix(before)
    for end in ENDS:
        output = output.partition(end)[0]
    for head in ("<|im_start|>assistant\n", "<|start_header_id|>assistant<|end_header_id|>\n\n"):
        output = output.removeprefix(head)
    model = GPT_OSS if name == "gpt-oss" else QWEN3
    reasoning = Dialect.HARMONY if name == "gpt-oss" else Dialect.THINK
    ids = tokenizer_of(model).encode(output, add_special_tokens=False)
    answer = join_pieces(parsed(model, dialect, [[i] for i in ids], reasoning=reasoning))
    assert [found.name for found in answer.tool_calls] == ["get_x"] * len(calls)
    assert [json.loads(found.arguments) for found in answer.tool_calls] == [ARGUMENTS] * len(calls)
    assert answer.content == ("<｜Assistant｜>" if name == "deepseek" else "")
    ids_told = [found.id for found in answer.tool_calls]
    assert ids_told == ["abcdefghi" if name == "mistral-small" else None] * len(calls)


def model_text(folder: Path, template: str, *special: str) -> ModelText:
    spec = small_spec()
    spec["added_tokens"] += [added_token(512 + i, mark) for i, mark in enumerate(special)]
    write_tokenizer(folder, spec, chat_template=template, eos_token="</s>")
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    return ModelText(folder)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages }}", "chat template takes no tools"),
        (
            "{{ messages }}<｜tool▁call▁begin｜><｜tool▁sep｜>```json",
            "chat template takes no tools",
        ),
        ("{{ messages }}{{ tools }}", r"none of those known \(hermes, qwen_xml, llama"),
        # The tokenizer lacks Harmony's marks.
        ("{{ messages }}{{ tools }}<|channel|>functions.", "none of those known"),
    ],
)
def test_tools_that_could_not_be_called_are_refused(
    template: str, message: str, tmp_path: Path
) -> None:
    text = model_text(tmp_path, template)
    with pytest.raises(InvalidRequest, match=message) as refusal:
        text.tool_use(TOOLS)
    assert refusal.value.param == "tools"
    assert text.tool_use(None) is None
    assert text.tool_use([]) is None


def test_a_template_in_place_of_the_models_own_says_how_calls_are_made(tmp_path: Path) -> None:
    text = model_text(tmp_path, "{{ messages }}")
    use = text.tool_use(TOOLS, source("qwen3"))
    assert use is not None
    assert use.dialect is ToolDialect.HERMES
    assert list(use.schemas) == ["get_x", "g"]


@pytest.mark.parametrize("model", MODELS)
def test_real_models_call_as_their_templates_say(model: str) -> None:
    text = ModelText(data_path(*model.split("/")), needs_tokenizer=False)
    expected = {QWEN3: ToolDialect.HERMES, GPT_OSS: ToolDialect.HARMONY}
    assert text.tool_dialect() is expected.get(model, ToolDialect.NONE)
    text.close()


def test_a_call_for_the_tools_environment_ends_an_answer_with_tools(tmp_path: Path) -> None:
    text = model_text(tmp_path, source("llama"), "<|eom_id|>")
    eom = text.tokenizer.token_to_id("<|eom_id|>")
    assert eom is not None
    for tools, ends in ((TOOLS, frozenset({2, eom})), (None, frozenset({2}))):
        texts = SequenceTexts(
            text.tokenizer,
            SamplingParams(),
            prompt_index=0,
            prompt=None,
            prompt_token_ids=(1,),
            tool_use=text.tool_use(tools),
        )
        request = text.request(texts, request_id="r", vocab_size=600)
        assert request.eos_token_ids == ends
    text.close()


@pytest.mark.parametrize("tools", [None, [], (), "x", [{}], [5], [{"function": {"name": 5}}]])
def test_what_is_no_tool_has_no_name(tools: object) -> None:
    use = make_tool_use(ToolDialect.HERMES, tools)
    assert use in (None, ToolUse(ToolDialect.HERMES, {}))


@pytest.mark.parametrize("dialect", [ToolDialect.UNKNOWN, ToolDialect.NONE])
def test_calls_in_no_known_dialect_are_not_sought(dialect: ToolDialect) -> None:
    assert make_tool_use(dialect, TOOLS) is None
    assert dialect not in SYNTAXES


def test_every_dialect_that_is_read_has_a_syntax_whose_marks_can_be_found() -> None:
    assert set(SYNTAXES) == {dialect for dialect in ToolDialect if dialect.is_readable}
    for syntax in SYNTAXES.values():
        assert all(mark[0] in "<[" for mark in syntax.marks)
        whole = syntax.opens + syntax.begin("f") + syntax.end + syntax.closes
        assert any(mark in whole for mark in syntax.marks) or syntax.before_name == '{"name": "'


def test_calls_go_back_with_ids_that_mistral_takes(theirs: Any) -> None:
    calls = (ToolCall("get_x", '{"n": 1}', "AbCdEfGhI"), ToolCall("g", "{}"))
    message = assistant_message(Answer("", "", calls), Dialect.PLAIN)
    assert [call["id"] for call in message["tool_calls"]] == ["AbCdEfGhI", "call00001"]
    text = expected(theirs, "nemo", [{"role": "user", "content": "Now?"}, message])
    assert '"id": "AbCdEfGhI"' in text
    assert '"id": "call00001"' in text


def test_random_outputs_are_parsed_alike_however_they_are_cut() -> None:
    """`python -m tests.fuzz.parsers --count 1000000` runs more of them."""
    kinds = set()
    for number in range(400):
        kind, problem = run_case(3, number)
        assert problem is None
        kinds.add(kind)
    assert sum("0 calls" not in kind for kind in kinds) > 10
