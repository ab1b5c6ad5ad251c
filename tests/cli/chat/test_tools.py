"""Tools in a chat: calls are shown, the person gives results, and the conversation stays sane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from inferno import LLM, SamplingParams
from inferno.cli.app import app
from inferno.cli.chat.answer_view import AnswerView
from inferno.cli.chat.session import Session
from inferno.cli.chat.tools import argument_lines, call_line, read_tools_file, result_of
from inferno.cli.chat.transcript import as_json, as_markdown
from inferno.errors import InvalidRequest
from inferno.text import tools
from inferno.text.parsers.answer import ToolCall
from inferno.text.parsers.parser import Call, Part, Piece
from tests.cli.chat.test_markdown_stream import Screen
from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, Terminal
from tests.parrot import TOOLS, WEATHER, save_parrot


@pytest.fixture(scope="module")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parrot")
    save_parrot(folder)
    return folder


@pytest.fixture(scope="module")
def caller(parrot: Path) -> Iterator[LLM]:
    with LLM(parrot, threads=1, max_num_seqs=1) as llm:
        yield llm


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


@pytest.fixture
def session(caller: LLM, tools_file: Path) -> Session:
    params = SamplingParams(max_tokens=None)
    return Session(caller, "parrot", params, tools=read_tools_file(tools_file))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"a": 1}', 'call f {"a": 1}'),
        (' {\n  "a":\r\n 1.50,"b": 1e999\n}\n', 'call f { "a": 1.50,"b": 1e999 }'),
        ('{"a": "\\ud800 \u2028\\n"}', 'call f {"a": "\\ud800 \u2028\\n"}'),
        ('{"a": 1', 'call f "{\\"a\\": 1"'),
        ("x\ny", 'call f "x\\ny"'),
    ],
)
def test_a_call_is_a_line_with_its_arguments_as_they_are_written(arguments: str, line: str) -> None:
    assert call_line(ToolCall("f", arguments)) == line


def finish(chunks: Any) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_results_go_to_the_model_and_it_goes_on(session: Session) -> None:
    assert finish(session.ask("does it rain?")) == "Let me *see*."
    [call] = session.turns[-1].calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"place": "Rome", "days": 3})
    assert finish(session.go_on(["It pours."])) == "It **rains**, so take an umbrella."
    assert not session.turns[-1].calls
    assert finish(session.ask("both")) == ""
    assert [call.name for call in session.turns[-1].calls] == ["get_weather", "get_time"]
    assert finish(session.go_on(["Snow.", "again"])) == ""
    assert [call.name for call in session.turns[-1].calls] == ["get_time"]
    finish(session.go_on(["noon"]))
    roles = [message["role"] for message in session.messages]
    first = ["user", "assistant", "tool", "assistant"]
    second = ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert roles == [*first, *second]
    ids = [call["id"] for each in session.messages for call in each.get("tool_calls", [])]
    assert [m["tool_call_id"] for m in session.messages if m["role"] == "tool"] == ids
    assert len(set(ids)) == len(ids) == 4
    said = session.llm.tokenizer.decode(session._token_ids, skip_special_tokens=False)
    assert "[tool]Snow." in said
    assert '"name": "get_time"' in said


def test_a_turn_whose_calls_get_no_results_can_be_asked_again(session: Session) -> None:
    finish(session.ask("hello"))
    finish(session.ask("both"))
    session.take_back()
    assert session.has_unanswered
    assert [turn.question for turn in session.turns] == ["hello"]
    assert session.retry() == "both"
    finish(session.ask("both"))
    with closing(session.go_on(["Snow.", "noon"])):  # stopped before a word came
        pass
    assert session.has_unanswered
    assert [turn.question for turn in session.turns] == ["hello"]
    assert session.retry() == "both"
    assert finish(session.ask("hello")) == "Hello! What can I do?"


def test_a_call_that_is_stopped_or_cut_is_none(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = session.ask("does it rain?")
    while not any(piece.part is Part.TOOL_CALL for piece in next(chunks).pieces):
        pass
    chunks.close()
    assert session.turns[-1].calls == ()
    monkeypatch.setattr(tools, "has_grammars", lambda: False)  # which would begin no such call
    session.params = SamplingParams(max_tokens=2)
    finish(session.ask("does it rain?"))
    completion = session.turns[-1].completion
    assert completion is not None
    assert completion.tool_calls
    assert session.turns[-1].calls == ()
    session.params = SamplingParams(max_tokens=None)
    finish(session.ask("hello"))
    assert [m["role"] for m in session.messages] == ["user", "assistant"] * 3


def test_saved_conversations_have_calls_and_results(session: Session) -> None:
    finish(session.ask("does it rain?"))
    finish(session.go_on(["```\nIt pours.\n```"]))
    messages = json.loads(as_json(session))["messages"]
    assert messages == [
        {"role": "user", "content": "does it rain?"},
        {
            "role": "assistant",
            "content": "Let me *see*.",
            "tool_calls": [
                {
                    "id": messages[2]["tool_call_id"],
                    "type": "function",
                    "function": {
                        "name": "get_weather",
                        "arguments": '{"place": "Rome", "days": 3}',
                    },
                }
            ],
        },
        {
            "role": "tool",
            "tool_call_id": messages[2]["tool_call_id"],
            "content": "```\nIt pours.\n```",
        },
        {"role": "assistant", "content": "It **rains**, so take an umbrella."},
    ]
    text = as_markdown(session)
    assert '## Call of get_weather\n\n```\n{\n  "place": "Rome",' in text
    assert "## Result\n\n````\n```\nIt pours.\n```\n````\n\n## Assistant" in text


def play(folder: Path, *arguments: str, stdin: str) -> Result:
    return CliRunner().invoke(app, ["play", str(folder), "--threads", "1", *arguments], input=stdin)


def test_on_a_pipe_the_next_lines_are_the_results(
    parrot: Path, tools_file: Path, tmp_path: Path
) -> None:
    result = tmp_path / "result.txt"
    result.write_text("again")
    stdin = f"rain?\nIt pours.\nboth\n\n@{result}\n@@noon\n/tools\n"
    done = play(parrot, "--tools", str(tools_file), stdin=stdin)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "Let me *see*.",
        'call get_weather {"place": "Rome", "days": 3}',
        "It **rains**, so take an umbrella.",
        'call get_weather {"place": "Oslo"}',
        "call get_time {}",
        "call get_time {}",
        "It **rains**, so take an umbrella.",
        "get_weather: The weather of a place.",
        "get_time",
    ]


def test_on_a_pipe_missing_results_are_named(parrot: Path, tools_file: Path) -> None:
    done = play(parrot, "--tools", str(tools_file), stdin="hello\nboth\n@/nowhere\none\n")
    assert done.exit_code == 1
    assert "error: line 3: /nowhere is missing" in done.stderr
    assert "error: line 2: the input ends before the results of its calls" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "it is not valid JSON"),
        ('{"functions": []}', 'a list of tools, or {"tools": [...]}, not an object of functions'),
        ("3", "not 3"),
        ('{"tools": []}', "its list of tools is empty"),
        ('[{"name": "a b"}]', "tools[0].name must be 1 to 64 letters"),
        (None, "is missing"),
    ],
)
def test_bad_files_are_refused_by_name_before_a_model_is_loaded(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    done = play(tmp_path / "no-model", "--tools", str(path), stdin="hello\n")
    assert done.exit_code == 2
    assert said in done.stderr
    assert str(path) in done.stderr


def test_a_model_whose_template_takes_no_tools_is_refused_by_name(tools_file: Path) -> None:
    done = play(Path("demo"), "--tools", str(tools_file), stdin="hello\n")
    assert done.exit_code == 2
    assert "demo: this model's chat template takes no tools" in done.stderr


@pytest.mark.parametrize("content", [{"tools": TOOLS}, [WEATHER, {"name": "get_time"}]])
def test_files_may_have_an_object_or_bare_functions(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "tools.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode())
    assert [each.name for each in read_tools_file(path).functions] == ["get_weather", "get_time"]


def test_results_from_files_are_bounded_texts(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"x" * 1_100_000)
    with pytest.raises(InvalidRequest, match="larger than"):
        result_of(f"@{path}")
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        result_of(f"@{path}")


def test_arguments_are_shown_as_they_are_where_they_are_no_json() -> None:
    assert argument_lines('{"a": [1]}') == ["{", '  "a": [', "    1", "  ]", "}"]
    assert argument_lines("{}") == []
    assert argument_lines('{"a": \nb') == ['{"a": ', "b"]


def test_calls_are_drawn_by_name_and_with_whole_arguments() -> None:
    screen, written = Screen(), list[str]()

    def write(text: str) -> None:
        written.append(text)
        screen.write(text)

    view = AnswerView(write, screen.size)
    for letter in "Hm.":
        view.feed(Piece(Part.REASONING, letter))
    for index, name in enumerate(("f", "g\x1b[31m")):
        for letter in '{"x": "\\u001b[31m"}':
            view.feed(Piece(Part.TOOL_CALL, letter, Call(index, name)))
    first = ["Hm.", "", "call f", "  {", '    "x": "\\u001b[31m"', "  }", "", "call g\ufffd[31m"]
    assert screen.lines == [*first, "…"]
    view.finish()
    assert screen.lines == [*first, *first[3:6]]
    assert "\x1b[31m" not in "".join(written)


@pytest.mark.slow
def test_a_person_gives_results_at_a_terminal(
    parrot: Path, tools_file: Path, tmp_path: Path
) -> None:
    variables = {"INFERNO_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    asked = ["play", str(parrot), "--tools", str(tools_file), "--threads", "1"]
    with Terminal(*asked, columns=80, rows=24, variables=variables) as terminal:
        terminal.wait_for("Ctrl+D leaves.")
        terminal.type("does it rain?" + ENTER)
        terminal.wait_for('Let me see. call get_weather { "place": "Rome", "days": 3 }')
        terminal.wait_for("What is the result of get_weather? An empty line is no result, @FILE")
        terminal.wait_for("result>")
        terminal.type("@/nowhere" + ENTER)
        terminal.wait_for("error: /nowhere is missing")
        terminal.wait_for("result>", times=2)
        terminal.type("It pours." + ENTER)
        terminal.wait_for("It rains, so take an umbrella.")
        terminal.type("both" + ENTER)
        terminal.wait_for("What is the result of get_weather, 1 of 2?")
        terminal.type(ENTER)
        terminal.wait_for("What is the result of get_time, 2 of 2?")
        terminal.wait_for("result>", times=4)
        terminal.type("half a res" + CTRL_C)
        terminal.wait_for("the message is taken back, with its calls; /retry asks again")
        terminal.type("/retry" + ENTER)
        terminal.wait_for("result>", times=5)
        terminal.type(CTRL_D)
        terminal.wait_for("/retry asks again", times=2)
        terminal.type("hello" + ENTER)
        terminal.wait_for("Hello! What can I do?")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.text
    assert "It pours." not in (tmp_path / "history").read_text()
