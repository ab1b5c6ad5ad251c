"""`inferno play` as a person at a terminal or a script with pipes would use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from inferno.cli.app import app
from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, INFERNO, UP, Terminal
from tests.tiny import edit_config, save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes letters and never comes to an end."""
    path = tmp_path_factory.mktemp("endless")
    save_tiny_model(path, max_position_embeddings=8192)
    vocab = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
    weights = load_file(path / "model.safetensors")
    for token, token_id in vocab.items():
        if not (len(token) == 1 and token.isascii() and token.isalnum()) and token != "Ġ":
            weights["lm_head.weight"][token_id] = 0.0  # never the largest of so many logits
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path


def run(folder: Path | str, *arguments: str, stdin: str | bytes) -> Result:
    asked = ["play", str(folder), "--threads", "1", "-t", "0", "--max-tokens", "8", *arguments]
    return CliRunner().invoke(app, asked, input=stdin)


def answer(folder: Path, message: str) -> str:
    """What the model says to a message, by way of `inferno generate`."""
    asked = ["generate", "-m", str(folder), "--chat", "-p", message, "-t", "0", "--threads", "1"]
    result = CliRunner().invoke(app, [*asked, "--max-tokens", "8", "--json"])
    text: str = json.loads(result.stdout)["text"]
    return text


# Pipes.


def test_a_line_is_a_message_and_stdout_holds_the_answers(folder: Path) -> None:
    result = run(folder, stdin="hello\n\n/reset\nbye")
    assert result.exit_code == 0
    greeting, parting = answer(folder, "hello"), answer(folder, "bye")
    assert result.stdout == f"{greeting}\na new conversation begins\n{parting}\n"
    assert "cpu, float32" in result.stderr
    assert "context 256 tokens" in result.stderr
    assert "\x1b" not in result.stderr


def test_nothing_to_read_is_no_error(folder: Path) -> None:
    result = run(folder, stdin="")
    assert (result.exit_code, result.stdout) == (0, "")


def test_what_is_refused_is_named_by_its_line_and_does_not_end_it(folder: Path) -> None:
    result = run(folder, stdin="/hepl\n" + "x" * 400 + "\nhello\n")
    assert result.exit_code == 1
    assert result.stdout == answer(folder, "hello") + "\n"
    assert "line 1: there is no command /hepl" in result.stderr
    assert "line 2: the prompt has" in result.stderr


def test_a_line_that_is_no_text_is_refused(folder: Path) -> None:
    result = run(folder, stdin=b"caf\xe9\nhello\n")
    assert result.exit_code == 1
    assert "line 1" in result.stderr
    assert "UTF-8" in result.stderr
    assert result.stdout == answer(folder, "hello") + "\n"


def test_an_answer_that_is_cut_says_so(folder: Path) -> None:
    assert "line 1: cut after max_tokens = 8" in run(folder, stdin="hello\n").stderr


def test_options_become_settings(folder: Path) -> None:
    asked = ["--top-p", "0.5", "--top-k", "3", "--min-p", "0.1", "--seed", "7", "--stop", "END"]
    result = run(folder, *asked, "--repetition-penalty", "1.5", stdin="/set\n")
    lines = result.stdout.splitlines()
    for line in ("top_p 0.5", "top_k 3", "min_p 0.1", "seed 7", 'stop "END"', "temperature 0"):
        assert line in lines
    assert "repetition_penalty 1.5" in lines
    assert "max_tokens 8" in lines


def test_the_system_prompt_is_an_option(folder: Path) -> None:
    assert run(folder, "--system", "be kind", stdin="/system\n").stdout == "be kind\n"


def cached(folder: Path, *arguments: str) -> str:
    stdin = "a first message that is long enough\nsecond\n/stats\n"
    stats = run(folder, *arguments, stdin=stdin).stdout.splitlines()
    return next(line for line in stats if line.startswith("last prompt"))


def test_the_prefix_cache_can_be_switched_off() -> None:
    assert " 0 of them cached" not in cached(Path("demo"))
    assert ", 0 of them cached" in cached(Path("demo"), "--no-prefix-cache")


def test_the_context_can_be_made_smaller(folder: Path) -> None:
    result = run(folder, "--max-model-len", "64", stdin="x" * 100 + "\n")
    assert "64" in result.stderr
    assert result.exit_code == 1


def test_without_a_model_a_script_gets_demo() -> None:
    asked = ["play", "--threads", "1", "-t", "0"]
    result = CliRunner().invoke(app, asked, input="What is 2 + 3?\n")
    assert result.exit_code == 0
    assert "5" in result.stdout
    assert "demo" in result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-t", "nan"], "temperature"),
        (["--cuda", "--device", "cpu"], "contradict"),
        (["--device", "cuda:77"], "cuda"),
        (["--max-model-len", "100000"], "max_model_len"),
        (["--revision", "main"], "revision"),
    ],
)
def test_bad_options_end_in_one_line(folder: Path, arguments: list[str], said: str) -> None:
    result = run(folder, *arguments, stdin="hello\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_a_model_that_can_not_chat_names_the_command_that_can(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = {**json.loads(path.read_text()), "chat_template": None}
    path.write_text(json.dumps(config))
    result = run(tmp_path, stdin="hello\n")
    assert result.exit_code == 1
    assert "inferno generate" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_no_encoding_is_a_crash(folder: Path, encoding: str) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [*INFERNO, "play", str(folder), "--threads", "1", "--max-tokens", "30"],
        input="häuser\n/system ü日\n/system\n".encode(),
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"context 256 tokens" in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly(endless: Path) -> None:
    process = subprocess.Popen(
        [*INFERNO, "play", str(endless), "--threads", "1", "--max-tokens", "500"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello\n" * 10)
    process.stdin.flush()
    process.stdout.read(10)
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(errors.splitlines()) == 1  # the banner


@pytest.mark.slow
def test_a_hundred_answers_leave_memory_as_it_was() -> None:
    asked = ["play", "demo", "--threads", "1", "--max-tokens", "6", "--num-blocks", "32"]
    process = subprocess.Popen(
        [*INFERNO, *asked],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def resident_bytes_after(num_answers: int) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(num_answers):
            process.stdin.write(f"/reset\n/system {number}\nHello, I am {number}\n".encode())
            process.stdin.flush()
            for _ in range(3):
                assert process.stdout.readline()
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096

    before = resident_bytes_after(30)
    assert resident_bytes_after(120) - before < 10 * 2**20
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    process.stdout.close()


# A terminal.


def play(*arguments: str, home: Path, columns: int = 80, rows: int = 24) -> Terminal:
    variables = {"INFERNO_HOME": str(home), "HF_HOME": str(home / "hf")}
    asked = ["play", *arguments, "--threads", "1", "-t", "0"]
    return Terminal(*asked, columns=columns, rows=rows, variables=variables)


@pytest.mark.slow
def test_a_conversation_with_demo(tmp_path: Path) -> None:
    (tmp_path / "history").write_text('"/set seed 9"\n')
    with play("demo", home=tmp_path) as terminal:
        terminal.wait_for("context 1024 tokens /help lists the commands")
        _read_for(terminal, seconds=1.0)
        terminal.type(UP + ENTER)
        terminal.wait_for("seed = 9")
        terminal.type("What is 2 + 3?" + ENTER + "/stats" + ENTER)  # the second one ahead of time
        terminal.wait_for("tokens/s · first after")
        terminal.wait_for("all answers 1 with")
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
        _read_for(terminal, seconds=1.0)
        terminal.type("typed ahead")
        terminal.resize(columns + 9, rows + 5)
        _read_for(terminal, seconds=1.0)
        terminal.resize(columns - 9, rows)
        _read_for(terminal, seconds=1.0)
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


def _read_for(terminal: Terminal, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert terminal.read(0.1), terminal.text


@pytest.mark.slow
def test_an_interrupt_while_it_loads_is_one_line(tmp_path: Path) -> None:
    with play("demo", home=tmp_path) as terminal:
        terminal.read(0.6)
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
        {"TERM": "dumb"},
        {"TERM": None},
    ],
    ids=["no home, no UTF-8", "no HOME, ASCII, no colour", "dumb terminal", "no TERM"],
)
def test_odd_surroundings_are_no_crash(
    folder: Path, tmp_path: Path, variables: dict[str, str | None]
) -> None:
    cleared = {"INFERNO_HOME": None, "XDG_STATE_HOME": None, "HF_HOME": str(tmp_path)}
    asked = ["play", str(folder), "--threads", "1", "-t", "0", "--max-tokens", "30"]
    with Terminal(*asked, variables={**cleared, **variables}) as terminal:
        terminal.wait_for("context 256 tokens")
        terminal.type("häuser" + ENTER)
        terminal.wait_for("cut after max_tokens")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_the_models_on_this_machine_can_be_chosen(folder: Path, tmp_path: Path) -> None:
    for name, architecture in (("me/tiny", "LlamaForCausalLM"), ("me/odd", "NopeForCausalLM")):
        repo = tmp_path / "hf" / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repo / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text("a" * 40)
        for file in folder.iterdir():
            (snapshot / file.name).write_bytes(file.read_bytes())
        edit_config(snapshot, architectures=[architecture])
    with play(home=tmp_path) as terminal:
        terminal.wait_for("Which one? [1]")
        assert "me/tiny" in terminal.text
        assert "LlamaForCausalLM" in terminal.text
        assert "1 more in the Hugging Face cache: not supported" in terminal.text
        terminal.type("9" + ENTER)
        terminal.wait_for("give a number from 1 to")
        terminal.type("me/tiny" + ENTER)
        terminal.wait_for("me/tiny · cpu")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0


def test_a_chat_costs_other_commands_no_start_up_time() -> None:
    program = (
        "import sys, inferno.cli.app\n"
        "heavy = {'torch', 'prompt_toolkit', 'rich.markdown'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
