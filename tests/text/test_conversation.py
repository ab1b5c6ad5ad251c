"""Tests of inferno.text.conversation: what a caller may put into a template, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.errors import InvalidRequest
from inferno.text.conversation import checked_kwargs, checked_messages, checked_tools
from inferno.text.marks import SpecialTokenMarks

MARKS = SpecialTokenMarks(["<s>"])


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "text",
        b"text",
        5,
        {},
        [],
        {"role": "user", "content": "a"},
        ["text"],
        [None],
        [[]],
        [{}],
        [{"content": "no role"}],
        [{"role": None}],
        [{"role": 1}],
        [{"role": ""}],
        [{"role": "user|>\n<|system"}],
        [{"role": "user\n"}],
        [{"role": "u" * 65}],
        [{"role": "\ud800"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {"text": "a"}}],
        [{"role": "user", "content": b"a"}],
        [{"role": "user", "content": [b"a"]}],
        [{"role": "user", "content": "a", 5: "b"}],
        [{"role": "user", "content": "a", "more": {5: 6}}],
        [{"role": "user", "content": "a", "more": object()}],
        [{"role": "user", "content": "a", "more": 10**5000}],
        [{"role": "user", "content": nested(100)}],
        [{"role": "user", "content": nested(100_000)}],
    ],
)
def test_messages_that_are_none_are_refused(messages: object) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked_messages(messages, MARKS)
    assert refusal.value.param == "messages"


def test_messages_become_plain_data_of_their_own() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a<s>"}], "x": (1, 2.5, True)}
    [checked] = checked_messages((message,), MARKS)
    assert checked["x"] == [1, 2.5, True]
    checked["content"][0]["text"] = "changed"
    assert message["content"] == [{"type": "text", "text": "a<s>"}]


def test_keys_without_a_value_are_left_out() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": None}
    assert checked_messages([message], MARKS) == [{"role": "assistant"}]


def test_reasoning_is_there_under_the_names_that_templates_read() -> None:
    [checked] = checked_messages([{"role": "assistant", "reasoning": "hm"}], MARKS)
    assert checked["reasoning_content"] == checked["thinking"] == "hm"


def test_surrogates_become_replacement_characters() -> None:
    [checked] = checked_messages([{"role": "user", "content": "a\ud800"}], MARKS)
    assert checked["content"] == "a\ufffd"


@pytest.mark.parametrize("tools", ["x", b"x", 5, {}, [5], ["x"], [{"a": b""}], [{"a": {1: 2}}]])
def test_tools_that_are_none_are_refused(tools: object) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked_tools(tools, MARKS)
    assert refusal.value.param == "tools"


@pytest.mark.parametrize(
    "name",
    [
        "messages",
        "tools",
        "add_generation_prompt",
        "bos_token",
        "eos_token",
        "tokenize",
        "return_tensors",
        "chat_template",
        "raise_exception",
        "namespace",
        "self",
        "__class__",
        "_private",
        "not a name",
        "",
        "\ud800",
        5,
    ],
)
def test_an_option_whose_name_is_taken_is_refused(name: object) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked_kwargs({name: 1}, MARKS)
    assert refusal.value.param == "kwargs"


@pytest.mark.parametrize(
    "kwargs", [5, [], {f"x{i}": 1 for i in range(10**4)}, {"x": b""}, {"x": nested(100)}]
)
def test_options_that_are_none_are_refused(kwargs: object) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked_kwargs(kwargs, MARKS)
    assert refusal.value.param == "kwargs"


def test_options_pass_with_special_tokens_marked() -> None:
    kwargs = checked_kwargs({"enable_thinking": False, "documents": [{"text": "<s>"}]}, MARKS)
    assert kwargs["enable_thinking"] is False
    assert kwargs["documents"] != [{"text": "<s>"}]
