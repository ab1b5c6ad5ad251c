"""Lines of input: messages, commands, settings, saved files, and what is refused."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from inferno import LLM, SamplingParams
from inferno.cli.chat.commands import Commands
from inferno.cli.chat.session import Session
from inferno.errors import InvalidRequest


@pytest.fixture
def session(llm: LLM) -> Session:
    return Session(llm, "tiny", SamplingParams(temperature=0.0, max_tokens=6))


@pytest.fixture
def commands(session: Session) -> Commands:
    return Commands(session)


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("hello", "hello"),
        ("two\nlines", "two\nlines"),
        ("//etc/hosts", "/etc/hosts"),
        ("a /set in the middle", "a /set in the middle"),
        ("", None),
        ("   ", None),
    ],
)
def test_a_line_without_a_slash_is_a_message(
    commands: Commands, line: str, question: str | None
) -> None:
    assert commands.run(line).question == question


@pytest.mark.parametrize("line", ["/exit", "/quit", "/exit now"])
def test_exit_leaves(commands: Commands, line: str) -> None:
    assert commands.run(line).is_over


def test_help_names_every_command(commands: Commands) -> None:
    text = commands.run("/help").text
    assert all(name in text for name in commands.names)
    assert "Alt+Enter" not in text
    assert Commands(commands._session, "Alt+Enter").run("/help").text == f"{text}\nAlt+Enter"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/hepl", "did you mean /help?"),
        ("/sett x 1", "did you mean /set?"),
        ("/zzzz", "/help lists"),
        ("/reset!", "no command"),
        ("/", "no command"),
        ("/set wobble 1", "temperature"),
        ("/set temprature 1", "did you mean temperature?"),
        ("/set temperature", "give a value"),
        ("/set temperature hot", "a number from 0 to 100 or default, not 'hot'"),
        ("/set temperature nan", "a number from 0 to 100"),
        ("/set top_p 1.5", "a number from 0 to 1"),
        ("/set top_k 1.5", "an integer from 0"),
        ("/set max_tokens -1", "an integer from 0 to 2147483647, none or default, not -1"),
        ("/set seed " + "9" * 40, "an integer from"),
        ('/set stop ""', "texts of 1 to"),
        ('/set stop "a', "stop must be"),
        ("/trim " + "9" * 5000, "a number of turns"),
        ("/trim many", "a number of turns, not 'many'"),
        ("/retry", "no message yet"),
        ("/save", "/save FILE"),
        ("/save --force", "/save FILE"),
        ("/save notes.txt", ".json or .md"),
        ("/save talk.md", "nothing to save yet"),
    ],
)
def test_what_is_refused_says_what_was_expected(commands: Commands, line: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        commands.run(line)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("/set temperature 0.7", "temperature", 0.7),
        ("/set temperature=0.7", "temperature", 0.7),
        ("/set  top_k   5", "top_k", 5),
        ("/set max_tokens none", "max_tokens", None),
        ("/set seed 42", "seed", 42),
        ('/set stop END "two words\\n"', "stop", ("END", "two words\n")),
        ("/set stop a=b", "stop", ("a=b",)),
        ("/set stop none", "stop", ()),
    ],
)
def test_set_changes_one_setting(
    session: Session, commands: Commands, line: str, name: str, value: object
) -> None:
    before = session.params
    commands.run(line)
    assert getattr(session.params, name) == value
    assert replace(session.params, **{name: getattr(before, name)}) == before


def test_set_alone_shows_what_default_restores(session: Session, commands: Commands) -> None:
    commands.run("/set max_tokens 9")
    assert "max_tokens 9\n" in commands.run("/set").text
    commands.run("/set max_tokens default")
    assert session.params.max_tokens == 6


def test_a_refused_setting_leaves_all_as_it_was(session: Session, commands: Commands) -> None:
    before = session.params
    with pytest.raises(InvalidRequest):
        commands.run("/set temperature -1")
    assert session.params == before


def test_system_shows_sets_and_removes(session: Session, commands: Commands) -> None:
    commands.run("/system You are kind.")
    assert session.system == "You are kind."
    assert commands.run("/system").text == "You are kind."
    commands.run("/system\nof two\nlines")
    assert session.system == "of two\nlines"
    commands.run('/system ""')
    assert session.system == ""


def stats(commands: Commands) -> dict[str, dict[str, str]]:
    """The groups of /stats, and what stands in each."""
    groups: dict[str, dict[str, str]] = {}
    for line in commands.run("/stats").text.splitlines():
        if line.startswith("  "):
            name, value = line.split(maxsplit=1)
            groups[[*groups][-1]][name] = value
        else:
            groups[line] = {}
    return groups


def test_stats_tell_an_answer_from_a_conversation_from_all(
    session: Session, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.cli.chat.stats.own_memory", lambda: 345_000_000)
    assert "last answer" not in stats(commands)
    list(session.ask("one")), list(session.ask("two")), commands.run("/reset")
    list(session.ask("three"))
    [turn] = session.turns
    found = stats(commands)
    assert found["last answer"]["prompt"].startswith(f"{turn.num_prompt_tokens} tokens, ")
    assert found["last answer"]["answer"].startswith("6 tokens, ")
    assert found["this conversation"]["turns"] == "1"
    assert found["since the start"]["answers"] == "3, with 18 tokens"
    assert found["since the start"]["prompts"].startswith(f"{session.totals.prompt_tokens} tokens")
    assert found["model"]["device"] == "cpu, float32"
    assert found["model"]["process"] == "345 MB of the machine's memory"


def test_stats_count_stopped_answers(session: Session, commands: Commands) -> None:
    with closing(session.ask("one")) as chunks:
        next(chunks)
    [turn] = session.turns
    found = stats(commands)["since the start"]
    assert found["prompts"] == f"{turn.num_prompt_tokens} tokens, at least 0 of them cached"
    assert found["answers"] == "1, 1 of them stopped, with 1 tokens"


def test_stats_and_trim_count_turns(session: Session, commands: Commands) -> None:
    for question in ("one", "two", "three"):
        "".join(chunk.text for chunk in session.ask(question))
    conversation = stats(commands)["this conversation"]
    assert conversation["turns"] == "3"
    assert conversation["context"] == f"{session.num_context_tokens}/256 tokens"
    expected = len(session.llm.encode_chat(session.messages[4:], add_generation_prompt=False))
    assert commands.run("/trim 2").text == (
        f"turns left: 1; the next message computes their {expected} tokens anew"
    )
    assert [turn.question for turn in session.turns] == ["three"]
    assert commands.run("/trim").text == "turns left: 0"
    with pytest.raises(InvalidRequest, match="there are 0 turns"):
        commands.run("/trim 999")


def test_retry_and_reset(session: Session, commands: Commands) -> None:
    list(session.ask("one"))
    assert commands.run("/retry").question == "one"
    list(session.ask("one"))
    commands.run("/reset")
    assert session.turns == []


def test_save_as_json(session: Session, commands: Commands, tmp_path: Path) -> None:
    session.system = "be kind"
    list(session.ask("häuser"))
    session.turns[0].completion = None  # as if it had been stopped
    path = tmp_path / "talk of today.json"
    commands.run(f"/save {path}")
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert saved["model"] == "tiny"
    assert saved["settings"]["max_tokens"] == 6
    assert saved["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "häuser"},
        {"role": "assistant", "content": session.turns[0].answer, "stopped": True},
    ]


def test_save_as_markdown(session: Session, commands: Commands, tmp_path: Path) -> None:
    list(session.ask("one"))
    path = tmp_path / "talk.md"
    commands.run(f"/save {path}")
    text = path.read_text(encoding="utf-8")
    assert "## User\n\none\n\n## Assistant\n\n" in text
    assert "stopped" not in text


def test_a_conversation_without_words_is_not_saved(
    session: Session, commands: Commands, tmp_path: Path
) -> None:
    session.system = "be kind"
    path = tmp_path / "talk.md"
    path.write_text("precious")
    with pytest.raises(InvalidRequest, match="nothing to save yet"):
        commands.run(f"/save {path} --force")
    assert path.read_text() == "precious"


@pytest.mark.parametrize("line", ["/save! {}", "/save {} --force"])
def test_save_replaces_only_by_force(
    session: Session, commands: Commands, tmp_path: Path, line: str
) -> None:
    list(session.ask("one"))
    path = tmp_path / "talk.md"
    path.write_text("precious")
    with pytest.raises(InvalidRequest, match="exists"):
        commands.run(f"/save {path}")
    assert path.read_text() == "precious"
    commands.run(line.format(path))
    assert path.read_text() != "precious"
    assert os.listdir(tmp_path) == ["talk.md"]


def test_an_impossible_name_is_refused(session: Session, commands: Commands) -> None:
    list(session.ask("one"))
    with pytest.raises(InvalidRequest, match="can't be the name of a file"):
        commands.run("/save a\0b.md")


@pytest.mark.parametrize("nowhere", ["/no/such/folder", "~no-such-user"])
def test_a_folder_that_is_not_there_is_named(
    session: Session, commands: Commands, nowhere: str
) -> None:
    list(session.ask("one"))
    path = f"{nowhere}/talk.md"
    with pytest.raises(FileNotFoundError) as refused:
        commands.run(f"/save {path}")
    assert refused.value.filename == path


def test_a_full_disk_leaves_the_old_file(
    session: Session, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(session.ask("one"))
    path = tmp_path / "talk.md"
    path.write_text("precious")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        commands.run(f"/save! {path}")
    assert os.listdir(tmp_path) == ["talk.md"]
    assert path.read_text() == "precious"


def test_what_becomes_of_a_full_context_is_a_setting(commands: Commands, session: Session) -> None:
    assert "\ncontext keep" in commands.run("/set").text
    assert "dropped by themselves" in commands.run("/set context trim").text
    assert session.trims
    assert "\ncontext trim" in commands.run("/set").text
    with pytest.raises(InvalidRequest, match="context must be trim"):
        commands.run("/set context drop")
    assert "kept until /trim or /reset" in commands.run("/set context keep").text
    assert not session.trims
