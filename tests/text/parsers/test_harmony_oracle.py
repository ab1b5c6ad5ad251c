"""Tests of Harmony, parsed and rendered, against OpenAI's own implementation of it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.model_files import FolderFiles
from inferno.text.chat import ChatTemplate, load_chat_template
from inferno.text.parsers.answer import Answer, ToolCall, assistant_message, join_pieces
from inferno.text.parsers.choose import Dialect, ending_ids
from tests.data import data_path
from tests.text.loaded import real_tokenizer
from tests.text.parsers.feeding import GPT_OSS, fed
from tests.text.parsers.harmony_oracle import encoding, harmony, message, prompt_ids

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CHANNELS = ("analysis", "commentary", "final")
MESSAGE = st.tuples(
    st.sampled_from(CHANNELS), TEXT, st.sampled_from([None, "functions.get_x", "python"])
)
USER = {"role": "user", "content": "What is 2 + 2?"}
TOOL = {
    "name": "add",
    "description": "Adds.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number", "description": "One."}, "b": {"type": "number"}},
        "required": ["a"],
    },
}


@settings(deadline=None, max_examples=50)
@given(said=st.lists(MESSAGE, min_size=1, max_size=5), size=st.integers(1, 9))
def test_what_it_renders_we_parse_as_it_does(
    said: list[tuple[str, str, str | None]], size: int
) -> None:
    before = [message("user", "Hi")]
    messages = [message("assistant", text, channel, to) for channel, text, to in said]
    begun = prompt_ids(before)
    ids = encoding().render_conversation_for_completion(
        harmony.Conversation.from_messages([*before, *messages]),
        harmony.Role.ASSISTANT,
        harmony.RenderConversationConfig(auto_drop_analysis=False),
    )[len(begun) : -2]
    theirs = encoding().parse_messages_from_completion_tokens(ids, harmony.Role.ASSISTANT)
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    pieces = fed(Dialect.HARMONY, real_tokenizer(GPT_OSS), parts, begun)
    assert join_pieces(pieces) == answer_of(theirs)


def answer_of(messages: list[Any]) -> Answer:
    """The answer that parsed messages make, by channel and recipient."""
    calls = [m for m in messages if m.recipient]
    thoughts = [m for m in messages if not m.recipient and m.channel == "analysis"]
    answers = [m for m in messages if not m.recipient and m.channel != "analysis"]
    return Answer(
        "\n\n".join(filter(None, map(text_of, thoughts))),
        "\n\n".join(filter(None, map(text_of, answers))),
        tuple(ToolCall(m.recipient.removeprefix("functions."), text_of(m)) for m in calls),
    )


def text_of(message: Any) -> str:
    return "".join(content.text for content in message.content)


@settings(deadline=None, max_examples=50)
@given(words=st.lists(st.text(st.sampled_from("ab.,é世"), min_size=1), min_size=1, max_size=9))
def test_a_forgotten_message_mark_is_read_as_it_reads_it(words: list[str]) -> None:
    output = f"<|channel|>analysis {' '.join(words)}<|end|>"
    ids = encoding().encode(output, allowed_special="all")
    parser = harmony.StreamableParser(encoding(), harmony.Role.ASSISTANT, strict=False)
    for token_id in ids:
        parser.process(token_id)
    [theirs] = parser.messages
    pieces = fed(Dialect.HARMONY, real_tokenizer(GPT_OSS), [ids])
    assert join_pieces(pieces) == Answer(text_of(theirs), "")


def test_what_ends_an_answer_is_what_it_says() -> None:
    expected = encoding().stop_tokens_for_assistant_actions()
    assert ending_ids(Dialect.HARMONY, real_tokenizer(GPT_OSS)) == set(expected)


@pytest.fixture(scope="module")
def template() -> Iterator[ChatTemplate]:
    template = load_chat_template(
        FolderFiles(data_path("hf", "gpt-oss-20b")), real_tokenizer(GPT_OSS)
    )
    assert template is not None
    yield template
    template.close()


def system(effort: str = "medium") -> Any:
    today = datetime.date.today().isoformat()
    content = harmony.SystemContent.new().with_required_channels(list(CHANNELS))
    content = content.with_reasoning_effort(harmony.ReasoningEffort(effort.capitalize()))
    return message("system", content.with_conversation_start_date(today))


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_the_template_renders_effort_as_it_does(template: ChatTemplate, effort: str) -> None:
    ours = template.encode([USER], kwargs={"reasoning_effort": effort})
    assert ours == prompt_ids([system(effort), message("user", USER["content"])])


def test_the_template_renders_instructions_and_tools_as_it_does(template: ChatTemplate) -> None:
    description = harmony.ToolDescription.new(**TOOL)
    developer = harmony.DeveloperContent.new().with_instructions("Be brief.")
    developer = developer.with_function_tools([description])
    theirs = prompt_ids(
        [system(), message("developer", developer), message("user", USER["content"])]
    )
    conversation = [{"role": "developer", "content": "Be brief."}, USER]
    tools = [{"type": "function", "function": TOOL}]
    assert template.encode(conversation, tools=tools) == theirs


def test_a_finished_turn_goes_on_without_its_analysis_as_it_does(template: ChatTemplate) -> None:
    answer = assistant_message(Answer("Simple.", "2 + 2 = 4."), Dialect.HARMONY)
    theirs = [
        system(),
        message("user", USER["content"]),
        message("assistant", "Simple.", "analysis"),
        message("assistant", "2 + 2 = 4.", "final"),
        message("user", USER["content"]),
    ]
    assert template.encode([USER, answer, USER]) == prompt_ids(theirs)


def test_a_turn_that_waits_for_a_tool_keeps_its_analysis_as_it_does(template: ChatTemplate) -> None:
    answer = assistant_message(
        Answer("Add them.", "", (ToolCall("add", '{"a": 2}'),)), Dialect.HARMONY
    )
    ours = template.render([USER, answer]).text
    theirs = encoding().decode(
        prompt_ids(
            [
                system(),
                message("user", USER["content"]),
                message("assistant", "Add them.", "analysis"),
                message("assistant", '{"a": 2}', "commentary", "functions.add"),
            ]
        )
    )
    # The template says `json` where the library, and the model, say `<|constrain|>json`.
    assert ours == re.sub(r"<\|constrain\|>json", "json", theirs)
