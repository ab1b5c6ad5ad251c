"""`inferno play` as a person at a terminal would use it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, INFERNO, UP, Terminal
from tests.hub.loopback import git_oid
from tests.tiny import edit_config

LOADS_FOR_EVER = """
import time
from inferno.cli import main
from inferno.engine import build

def load_model(*_, **__):
    print("the weights come", flush=True)
    while True:
        time.sleep(1)

build.load_model = load_model
main()
"""


def play(*arguments: str, home: Path, columns: int = 80, rows: int = 24) -> Terminal:
    variables = {"INFERNO_HOME": str(home), "HF_HOME": str(home / "hf")}
    asked = ["play", *arguments, "--threads", "1", "-t", "0"]
    return Terminal(*asked, columns=columns, rows=rows, variables=variables)


@pytest.mark.slow
def test_a_conversation_with_demo(tmp_path: Path) -> None:
    (tmp_path / "history").write_text('"/set seed 9"\n')
    with play("demo", home=tmp_path) as terminal:
        terminal.wait_for("context 1024 tokens /help lists the commands")
        while "/set seed 9" not in terminal.text:  # the history is read by and by
            terminal.type(UP)
            assert terminal.read(0.1), terminal.text
        terminal.type(ENTER)
        terminal.wait_for("seed = 9")
        terminal.type("What is 2 + 3?" + ENTER + "/stats" + ENTER)  # the second one ahead of time
        terminal.wait_for("tokens/s · first after")
        terminal.wait_for("answers 1, with")
        terminal.wait_for("model memory weights")
        question, _, answered = terminal.text.rpartition("2 + 3?")[2].partition("> /stats")
        assert "5" in question
        assert "weights" in answered
        terminal.type("/hepl" + ENTER)
        terminal.wait_for("did you mean /help? (// sends a message that begins with /) >")
        terminal.type(CTRL_C)
        terminal.wait_for("Ctrl+D or /exit leaves. >")
        terminal.type("first" + ESCAPE + ENTER + "second\\" + ENTER + "third" + CTRL_C)
        terminal.wait_for("> first second third >")
        terminal.type("/system one" + ESCAPE + ENTER + "two" + ENTER)
        terminal.wait_for("holds from the next message on")
        terminal.type('"""/not' + ENTER + 'a command"""' + ENTER)
        terminal.wait_for("there is no command /not")
        terminal.type("\x1b[200~/system pas\nted\x1b[201~" + ENTER)
        terminal.type("/system" + ENTER)
        terminal.wait_for("> /system pas ted >")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert terminal.is_echoing
        assert "Traceback" not in terminal.text
        assert terminal.text.count("Ctrl+D or /exit leaves.") == 1  # not where a text was given up
    history = [json.loads(line) for line in (tmp_path / "history").read_text().splitlines()]
    assert history[:3] == ["/set seed 9", "What is 2 + 3?", "/stats"]
    assert "/system one\ntwo" in history


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10)])
def test_an_answer_is_stopped_saved_and_goes_on(
    endless: Path, tmp_path: Path, columns: int, rows: int
) -> None:
    with play(str(endless), home=tmp_path, columns=columns, rows=rows) as terminal:
        terminal.wait_for("Ctrl+D leaves.")
        terminal.type("hello" + ENTER)
        terminal.wait_for("> hello")
        terminal.wait_for_more()
        terminal.type("typed ahead")
        terminal.resize(columns + 9, rows + 5)
        terminal.wait_for_more()
        terminal.resize(columns - 9, rows)
        terminal.wait_for_more()
        terminal.type(CTRL_C)
        terminal.wait_for("stopped; /retry asks again")
        terminal.type(CTRL_C)  # what was typed ahead is flushed by the first one
        terminal.type(f"/save {tmp_path}/talk.json" + ENTER)
        terminal.wait_for("saved as")
        terminal.type(f"/save {tmp_path}/talk.json" + ENTER)
        terminal.wait_for("exists")
        terminal.type("/set max_tokens 5" + ENTER + "again" + ENTER)
        terminal.wait_for("cut after max_tokens = 5")
        terminal.type("/exit" + ENTER)
        assert terminal.wait_for_end() == 0
        assert terminal.is_echoing
    saved = json.loads((tmp_path / "talk.json").read_text())["messages"]
    assert [message["role"] for message in saved] == ["user", "assistant"]
    assert saved[1]["stopped"]
    assert len(saved[1]["content"]) > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "columns", "rows"),
    [(["--max-model-len", "64"], 80, 24), (["--num-blocks", "4"], 24, 6)],
)
def test_an_answer_that_the_context_cuts_says_so(
    endless: Path, tmp_path: Path, limit: list[str], columns: int, rows: int
) -> None:
    place = "context of 64 tokens" if limit[0] == "--max-model-len" else "KV cache"
    with play(str(endless), *limit, home=tmp_path, columns=columns, rows=rows) as terminal:
        terminal.wait_for("Ctrl+D leaves.")
        terminal.type("hello" + ENTER)
        terminal.wait_for(f"cut: the {place} is full; /trim drops the oldest turns, /set context")
        terminal.type("again" + ENTER)
        terminal.wait_for(f"error: the {place} is full: with this message")
        terminal.wait_for("First /trim 1 or /reset, then /retry; /set context trim does so")
        terminal.type("/reset" + ENTER + "/retry" + ENTER)
        terminal.wait_for("a new conversation begins > /retry")
        terminal.wait_for("cut:", times=2)
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0


@pytest.mark.slow
def test_an_interrupt_while_it_loads_is_one_line(tmp_path: Path) -> None:
    variables = {"INFERNO_HOME": str(tmp_path)}
    asked = ["play", "demo", "--threads", "1"]
    with Terminal(*asked, start=("-c", LOADS_FOR_EVER), variables=variables) as terminal:
        terminal.wait_for("the weights come")
        terminal.type(CTRL_C)
        assert terminal.wait_for_end() == 1
        assert terminal.text.splitlines()[-1] == "interrupted"
        assert terminal.is_echoing


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"HOME": "/proc/nowhere", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"HOME": None, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "TERM": "linux"},
        {"TERM": None},
    ],
    ids=["no home, no UTF-8", "no HOME, ASCII, no colour", "no TERM"],
)
def test_odd_surroundings_are_no_crash(
    folder: Path, tmp_path: Path, variables: dict[str, str | None]
) -> None:
    cleared = {"INFERNO_HOME": None, "XDG_STATE_HOME": None, "HF_HOME": str(tmp_path)}
    asked = ["play", str(folder), "--threads", "1", "-t", "0", "--max-tokens", "30"]
    anew = INFERNO if variables.keys() & {"PYTHONUTF8", "PYTHONIOENCODING"} else None
    with Terminal(*asked, program=anew, variables={**cleared, **variables}) as terminal:
        terminal.wait_for("context 256 tokens")
        terminal.type("häuser" + ENTER)
        terminal.wait_for("cut after max_tokens")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize("no_color", [None, "1"])
def test_colours_can_be_switched_off(folder: Path, tmp_path: Path, no_color: str | None) -> None:
    variables = {"INFERNO_HOME": str(tmp_path), "NO_COLOR": no_color}
    with Terminal("play", str(folder), "--threads", "1", variables=variables) as terminal:
        terminal.wait_for("Ctrl+D leaves. >")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert bool(terminal.colours) == (no_color is None)


@pytest.mark.slow
def test_a_terminal_that_can_not_be_drawn_on_has_a_prompt_and_hints(folder: Path) -> None:
    asked = ["play", str(folder), "--threads", "1", "-t", "0", "--max-tokens", "8"]
    with Terminal(*asked, variables={"TERM": "dumb"}) as terminal:
        terminal.wait_for("/help lists the commands, Ctrl+D leaves, Ctrl+C does so at once. >")
        terminal.type("/hepl\n")
        terminal.wait_for("> /hepl error: line 1: there is no command /hepl")
        terminal.type("häuser\n")
        terminal.wait_for("8 tokens · ")
        terminal.wait_for("tokens/s · first after")
        terminal.wait_for("note: line 2: cut after max_tokens = 8")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 1  # as with a pipe, a line was refused


@pytest.mark.slow
@pytest.mark.parametrize(("key", "code"), [(CTRL_C, 1), (CTRL_D, 0)], ids=["Ctrl+C", "Ctrl+D"])
def test_the_question_which_model_can_be_left(tmp_path: Path, key: str, code: int) -> None:
    variables = {"INFERNO_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    with Terminal("play", program=INFERNO, variables=variables) as terminal:
        terminal.wait_for("Which one? [1]")
        terminal.type(key)
        while not terminal.ends_within(5):
            terminal.type(key)  # again: a signal just before Python waits for a line is seen late
        assert terminal.wait_for_end() == code
        after = terminal.text.partition("Which one? [1]")[2].split()
        assert after[-1:] == ["interrupted"] if code else not after
        assert terminal.is_at_line_start


@pytest.mark.slow
def test_the_models_on_this_machine_can_be_chosen(folder: Path, tmp_path: Path) -> None:
    for name, architecture in (("me/tiny", "LlamaForCausalLM"), ("me/odd", "NopeForCausalLM")):
        repo = tmp_path / "hf" / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repo / "snapshots" / ("a" * 40)
        for made in (snapshot, repo / "refs", repo / "blobs"):
            made.mkdir(parents=True)
        (repo / "refs" / "main").write_text("a" * 40)
        own = shutil.copytree(folder, tmp_path / name)
        edit_config(own, architectures=[architecture])
        for file in own.iterdir():
            blob = repo / "blobs" / git_oid(file.read_bytes())
            blob.write_bytes(file.read_bytes())
            (snapshot / file.name).symlink_to(blob)
    variables = {"INFERNO_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    # Python anew: the second variable is read by an import.
    with Terminal("play", "--threads", "1", program=INFERNO, variables=variables) as terminal:
        terminal.wait_for("Which one? [1]")
        assert "me/tiny" in terminal.text
        assert "LlamaForCausalLM" in terminal.text
        assert "1 more on this machine: not supported" in terminal.text
        terminal.type("9" + ENTER)
        terminal.wait_for("give a number from 1 to")
        terminal.type("me/tiny" + ENTER)
        terminal.wait_for("me/tiny · cpu")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
