"""`inferno play` as a script with pipes would use it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from typer.testing import CliRunner, Result

from inferno.cli.app import app
from tests.cli.terminal import INFERNO
from tests.forked import Program, forker, small_pipe
from tests.tiny import save_tiny_model


def run(folder: Path | str, *arguments: str, stdin: str | bytes) -> Result:
    asked = ["play", str(folder), "--threads", "1", "-t", "0", "--max-tokens", "8", *arguments]
    return CliRunner().invoke(app, asked, input=stdin)


def answer(folder: Path, message: str) -> str:
    """What the model says to a message, by way of `inferno generate`."""
    asked = ["generate", "-m", str(folder), "--chat", "-p", message, "-t", "0", "--threads", "1"]
    result = CliRunner().invoke(app, [*asked, "--max-tokens", "8", "--json"])
    text: str = json.loads(result.stdout)["text"]
    return text


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
    assert "\nerror: line 1: there is no command /hepl" in result.stderr
    assert "\nerror: line 2: the message takes" in result.stderr


def test_a_line_that_is_no_text_is_refused(folder: Path) -> None:
    result = run(folder, stdin=b"caf\xe9\nhello\n")
    assert result.exit_code == 1
    assert "error: line 1: it is not UTF-8" in result.stderr
    assert "UTF-8" in result.stderr
    assert result.stdout == answer(folder, "hello") + "\n"


def test_an_answer_that_is_cut_says_so(folder: Path) -> None:
    assert "\nnote: line 1: cut after max_tokens = 8" in run(folder, stdin="hello\n").stderr


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
    stats = run(folder, *arguments, stdin=stdin).stdout.partition("last answer\n")[2]
    return stats.splitlines()[0]


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
    ("arguments", "code", "said"),
    [
        (["-t", "nan"], 2, "--temperature"),
        (["--cuda", "--device", "cpu"], 2, "contradict"),
        (["--device", "cuda:77"], 1, "cuda"),
        (["--max-model-len", "100000"], 2, "--max-model-len"),
        (["--revision", "main"], 2, "revision"),
    ],
)
def test_bad_options_end_in_one_line(
    folder: Path, arguments: list[str], code: int, said: str
) -> None:
    result = run(folder, *arguments, stdin="hello\n")
    assert (result.exit_code, result.stdout) == (code, "")
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


@contextlib.contextmanager
def playing(
    model: str, *options: str, answers: tuple[int, int]
) -> Iterator[tuple[Program, BinaryIO, BinaryIO, BinaryIO]]:
    """The command while it runs: its input, its answers (by that pipe) and its errors."""
    asked = ["-m", "inferno", "play", model, "--threads", "1", *options]
    (inside_in, outside_in), (outside_err, inside_err) = os.pipe(), os.pipe()
    outside_out, inside_out = answers
    inside = [inside_in, inside_out, inside_err]
    program = forker().start(asked, inside)
    for file in inside:
        os.close(file)
    with (
        os.fdopen(outside_in, "wb", buffering=0) as lines,
        os.fdopen(outside_out, "rb") as out,
        os.fdopen(outside_err, "rb") as errors,
    ):
        try:
            yield program, lines, out, errors
        finally:
            program.kill()


@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly(endless: Path) -> None:
    with playing(str(endless), "--max-tokens", "50000", answers=small_pipe()) as running:
        program, lines, out, errors = running
        lines.write(b"hello\n" * 20)
        out.read(10)
        out.close()
        assert program.wait() == 1
        assert len(errors.read().splitlines()) == 1  # the banner


@pytest.mark.slow
def test_a_hundred_answers_leave_memory_as_it_was() -> None:
    options = ["--max-tokens", "6", "--num-blocks", "32"]
    with playing("demo", *options, answers=os.pipe()) as (program, lines, out, _):

        def resident_bytes_after(num_answers: int) -> int:
            for number in range(num_answers):
                lines.write(f"/reset\n/system {number}\nHello, I am {number}\n".encode())
                for _ in range(3):
                    assert out.readline()
            return int(Path(f"/proc/{program.pid}/statm").read_text().split()[1]) * 4096

        before = resident_bytes_after(30)
        assert resident_bytes_after(120) - before < 10 * 2**20
        lines.close()
        assert program.wait() == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="no folder that nobody can write to")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["play"], "2 + 3 = 5."),
        (["play", "demo"], "2 + 3 = 5."),
        (["generate", "--chat"], "2 + 3 = 5."),
        (["verify", "demo", "--layers", "0"], "PASS"),
        (["doctor"], "/proc/.cache/inferno/models is not writable"),
    ],
    ids=["play", "play demo", "generate", "verify", "doctor"],
)
def test_a_home_that_is_read_only_stops_no_command(asked: list[str], said: str) -> None:
    cleared = ("INFERNO_HOME", "HF_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    changes = {**dict.fromkeys(cleared), "HOME": "/proc", "OMP_NUM_THREADS": "1"}
    message = "What is 2 + 3?\n"
    if asked == ["play"]:  # looks through the cache of models, whose place an import reads
        merged: dict[str, str | None] = {**os.environ, **changes}
        variables = {name: value for name, value in merged.items() if value is not None}
        done = subprocess.run(
            [*INFERNO, *asked], input=message, env=variables, capture_output=True, text=True
        )
    else:
        done = forker().run("-m", "inferno", *asked, stdin=message, variables=changes)
    assert done.returncode == 0, done.stderr
    assert said in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr


def test_a_chat_costs_other_commands_no_start_up_time() -> None:
    program = (
        "import sys, inferno.cli.app\n"
        "heavy = {'torch', 'prompt_toolkit', 'rich.markdown'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
