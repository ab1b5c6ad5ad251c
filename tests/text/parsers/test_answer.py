"""Tests of inferno.text.parsers.answer: what a conversation needs of an answer to go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inferno.model_files import FolderFiles
from inferno.text.chat import ChatTemplate, load_chat_template
from inferno.text.parsers.answer import Answer, ToolCall, assistant_message, join_pieces
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.parser import Call, Part, Piece
from tests.data import data_path
from tests.text.loaded import real_tokenizer

USER = {"role": "user", "content": "2 + 2?"}
RESULT = {"role": "tool", "content": "4"}
CALL = ToolCall("add", '{"a": 2}')


def load(name: str) -> Iterator[ChatTemplate]:
    template = load_chat_template(FolderFiles(data_path("hf", name)), real_tokenizer(f"hf/{name}"))
    assert template is not None
    yield template
    template.close()


@pytest.fixture(scope="module")
def qwen3() -> Iterator[ChatTemplate]:
    yield from load("Qwen3-0.6B")


@pytest.fixture(scope="module")
def gpt_oss() -> Iterator[ChatTemplate]:
    yield from load("gpt-oss-20b")


def after_question(template: ChatTemplate, messages: list[dict[str, Any]]) -> str:
    text = template.render(messages).text
    return text[text.index("2 + 2?") + len("2 + 2?") :]


def test_pieces_make_an_answer() -> None:
    pieces = [
        Piece(Part.REASONING, "a"),
        Piece(Part.CONTENT, "b"),
        Piece(Part.TOOL_CALL, "", Call(0, "f")),
        Piece(Part.REASONING, "c"),
        Piece(Part.TOOL_CALL, "{", Call(0, "f")),
        Piece(Part.TOOL_CALL, "}", Call(0, "f")),
        Piece(Part.TOOL_CALL, "", Call(1, "g")),
    ]
    expected = Answer("ac", "b", (ToolCall("f", "{}"), ToolCall("g", "")))
    assert join_pieces(pieces) == expected


def test_qwen3_does_not_see_the_reasoning_of_a_finished_turn_again(qwen3: ChatTemplate) -> None:
    message = assistant_message(Answer("Simple.", "Four."), Dialect.THINK)
    assert after_question(qwen3, [USER, message, USER]) == (
        "<|im_end|>\n<|im_start|>assistant\nFour.<|im_end|>\n"
        "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_qwen3_sees_the_reasoning_before_a_call_again(qwen3: ChatTemplate) -> None:
    message = assistant_message(Answer("Add.", "", (CALL,)), Dialect.THINK)
    assert after_question(qwen3, [USER, message, RESULT]) == (
        "<|im_end|>\n<|im_start|>assistant\n<think>\nAdd.\n</think>\n\n"
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_an_answer_about_the_tags_stays_whole(qwen3: ChatTemplate) -> None:
    message = assistant_message(Answer("", "It ends with </think>."), Dialect.THINK)
    assert "It ends with </think>." in qwen3.render([USER, message, USER]).text


def test_gpt_oss_does_not_see_the_reasoning_of_a_finished_turn_again(gpt_oss: ChatTemplate) -> None:
    message = assistant_message(Answer("Simple.", "Four."), Dialect.HARMONY)
    assert after_question(gpt_oss, [USER, message, USER]) == (
        "<|end|><|start|>assistant<|channel|>final<|message|>Four.<|end|>"
        "<|start|>user<|message|>2 + 2?<|end|><|start|>assistant"
    )


def test_gpt_oss_sees_the_reasoning_and_the_plan_before_a_call_again(gpt_oss: ChatTemplate) -> None:
    message = assistant_message(Answer("Add.", "I add.", (CALL,)), Dialect.HARMONY)
    assert after_question(gpt_oss, [USER, message, RESULT]) == (
        "<|end|><|start|>assistant<|channel|>analysis<|message|>Add.\n\nI add.<|end|>"
        '<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{"a": 2}<|call|>'
        '<|start|>functions.add to=assistant<|channel|>commentary<|message|>"4"<|end|>'
        "<|start|>assistant"
    )


def test_gpt_oss_may_have_answered_about_its_own_marks(gpt_oss: ChatTemplate) -> None:
    spelled = "<|channel|>final<|message|>"
    message = assistant_message(Answer(spelled, spelled), Dialect.HARMONY)
    assert spelled in after_question(gpt_oss, [USER, message, USER])


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '"a"', '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_arguments_that_are_no_object_stay_text(arguments: str) -> None:
    answer = Answer("", "", (ToolCall("f", arguments),))
    for dialect in Dialect:
        [call] = assistant_message(answer, dialect)["tool_calls"]
        assert call["function"]["arguments"] == arguments


def test_a_plain_answer_is_its_content() -> None:
    message = assistant_message(Answer("", "Four."), Dialect.PLAIN)
    assert message == {"role": "assistant", "content": "Four."}
