"""`inferno generate` as a person or a script would use it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
from typer.testing import CliRunner, Result

from inferno import SamplingParams
from inferno.cli import generate
from inferno.cli.app import app
from inferno.requests import FinishReason
from inferno.text.completion import Completion, Timings, Usage
from tests.data import data_path
from tests.forked import Program, forker, small_pipe
from tests.tiny import edit_config, save_tiny_model


def run(folder: Path, *arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(
        app, ["generate", "-m", str(folder), "--threads", "1", *arguments], input=stdin
    )


def test_one_prompt_prints_its_text_and_nothing_else(folder: Path) -> None:
    result = run(folder, "-p", "hello", "-t", "0", "--max-tokens", "8")
    as_json = run(folder, "-p", "hello", "-t", "0", "--max-tokens", "8", "--json")
    assert result.exit_code == 0
    assert result.stdout == json.loads(as_json.stdout)["text"]
    assert result.stderr == ""


def test_json_has_one_object_a_line(folder: Path) -> None:
    result = run(folder, "-p", "one", "-p", "two", "--max-tokens", "5", "--json")
    found = sorted(
        (json.loads(line) for line in result.stdout.splitlines()), key=lambda o: o["index"]
    )
    assert [one["prompt"] for one in found] == ["one", "two"]
    for one in found:
        assert set(one) == {
            "index",
            "prompt",
            "text",
            "token_ids",
            "finish_reason",
            "usage",
            "timings",
        }
        assert one["usage"]["completion_tokens"] == len(one["token_ids"]) <= 5


def test_bytes_that_are_no_text_are_told_as_the_model_reads_them(folder: Path) -> None:
    result = run(folder, "-p", "a\udcffb", "--max-tokens", "1", "--json")
    assert json.loads(result.stdout)["prompt"] == "a\ufffdb"


def test_json_objects_come_as_prompts_finish(folder: Path) -> None:
    nearly_full = "x" * 245
    result = run(
        folder, "-p", "hello", "-p", nearly_full, "--max-tokens", "99", "-t", "0", "--json"
    )
    assert [json.loads(line)["index"] for line in result.stdout.splitlines()] == [1, 0]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_exit_code_tells_of_a_prompt_that_failed(
    monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    done = Completion(
        prompt_index=0,
        sequence_index=0,
        prompt="one",
        prompt_token_ids=(1,),
        text="ab",
        token_ids=(1, 2),
        finish_reason=FinishReason.STOP,
        stop_reason=None,
        logprobs=None,
        prompt_logprobs=None,
        usage=Usage(1, 0, 2),
        timings=Timings(0.1, 0.2, None),
    )
    failed = replace(done, prompt_index=1, finish_reason=FinishReason.ERROR, error="it broke")
    llm = SimpleNamespace(
        default_params=SamplingParams(),
        max_model_len=99,
        as_completed=lambda *_, **__: iter([failed, done]),
        close=lambda: None,
    )
    monkeypatch.setattr(generate, "load_model", lambda *_, **__: llm)
    result = run(Path("demo"), "-p", "one", "-p", "two", *form)
    assert (result.exit_code, result.stderr) == (1, "error: prompt 2: it broke\n")
    if form:
        told = [json.loads(line) for line in result.stdout.splitlines()]
        assert [(one["index"], one.get("error")) for one in told] == [(1, "it broke"), (0, None)]


@pytest.mark.parametrize("form", [[], ["--json"], ["-p", "x" * 250], ["-p", "x" * 250, "--json"]])
def test_outputs_that_the_context_cuts_are_told_of_once(folder: Path, form: list[str]) -> None:
    result = run(folder, "-p", "hello", "--max-tokens", "5000", *form, "-t", "0")
    assert result.exit_code == 0
    which = "2 of 2 outputs" if "-p" in form else "the output"
    assert result.stderr == (
        f"note: {which} ended where the context of 256 tokens was full, before --max-tokens 5000\n"
    )


def test_an_output_that_max_tokens_cuts_is_as_asked(folder: Path) -> None:
    num_left = 256 - len("hello") - 1
    assert run(folder, "-p", "hello", "--max-tokens", str(num_left), "-t", "0").stderr == ""


def test_several_prompts_end_with_a_table(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("first line\n\nsecond line\n")
    result = run(folder, "-p", "given", "--prompts-file", str(file), "--max-tokens", "4")
    assert result.exit_code == 0
    for prompt in ("given", "first line", "second line", "tokens/s"):
        assert prompt in result.stdout


@pytest.mark.parametrize("arguments", [["-p", "-"], []])
def test_a_prompt_may_come_from_standard_input(folder: Path, arguments: list[str]) -> None:
    asked = ["-t", "0", "--max-tokens", "6"]
    assert (
        run(folder, *arguments, *asked, stdin="hello").stdout
        == run(folder, "-p", "hello", *asked).stdout
    )


@pytest.mark.parametrize(
    ("stdin", "prompt"),
    [
        ("hello\n", "hello"),
        ("hello\r\n", "hello"),
        ("hello\n\n", "hello\n"),
        ("hello\r\n\r\n", "hello\r\n"),
        ("hello\r", "hello\r"),
        (" two\nlines \n", " two\nlines "),
        ("\n", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("arguments", [["-p", "-"], []])
def test_one_newline_at_the_end_of_standard_input_is_no_part_of_the_prompt(
    folder: Path, arguments: list[str], stdin: str, prompt: str
) -> None:
    given = run(folder, *arguments, "--max-tokens", "1", "--json", stdin=stdin.encode())
    assert json.loads(given.stdout)["prompt"] == prompt


def test_no_new_tokens_are_told_of(folder: Path) -> None:
    result = run(folder, "-p", "hello", "--max-tokens", "0")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "note: --max-tokens 0 asks for no new tokens, so there are none\n"


def test_several_texts_are_printed_in_the_order_of_their_prompts(folder: Path) -> None:
    nearly_full = "x" * 245  # is done long before the others
    given = ["-p", "one", "-p", nearly_full, "-p", "three", "--max-tokens", "60", "-t", "0"]
    printed = run(folder, *given).stdout
    headings = [line for line in printed.splitlines() if line.startswith("=== ")]
    assert [heading[:9] for heading in headings] == ["=== 1/3: ", "=== 2/3: ", "=== 3/3: "]
    for text in (run(folder, "-p", "three", *given[6:]).stdout,):
        assert printed.count(f"=== 3/3: three\n{text}\n\n") == 1


def test_a_line_of_the_file_is_a_prompt_whatever_else_it_holds(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffone\u2028still one\r\ntwo\x0cstill two\n".encode())
    result = run(folder, "--prompts-file", str(file), "--max-tokens", "2", "--json")
    found = {json.loads(line)["prompt"] for line in result.stdout.splitlines()}
    assert found == {"one\u2028still one", "two\x0cstill two"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line(folder: Path) -> None:
    asked = ["generate", "-m", str(folder), "-p", "hello", "--max-tokens", "200"]
    with open("/dev/full", "wb") as full, tempfile.TemporaryFile() as errors:
        files = [full.fileno(), full.fileno(), errors.fileno()]
        assert forker().start(["-m", "inferno", *asked], files).wait() == 1
        errors.seek(0)
        assert errors.read() == b"error: standard output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_on_a_full_disk_is_one_line(option: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "inferno", option],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "error: standard output: No space left on device\n",
    )


@pytest.mark.slow
def test_leaving_in_the_middle_of_a_stream_keeps_the_exit_code(folder: Path) -> None:
    program = (
        "from inferno import LLM, SamplingParams\n"
        f"llm = LLM({str(folder)!r}, threads=1)\n"
        "stream = llm.stream('hello', SamplingParams(max_tokens=200, ignore_eos=True))\n"
        "next(stream)\n"
        "raise SystemExit(3)\n"
    )
    result = forker().run("-c", program)
    assert (result.returncode, result.stderr) == (3, "")


def test_chat_renders_the_template(folder: Path) -> None:
    result = run(folder, "--chat", "-p", "hello", "--max-tokens", "4", "--json")
    assert json.loads(result.stdout)["usage"]["prompt_tokens"] == len("hello") + 3


def test_a_seed_makes_it_repeatable(folder: Path) -> None:
    asked = ["-p", "hello", "--seed", "4", "--max-tokens", "9"]
    assert run(folder, *asked).stdout == run(folder, *asked).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cuda:77"], "cuda"),
        (["--prompts-file", "/no/such/file"], "/no/such/file"),
        (["-m", ""], "empty"),
        (["-m", "~no-such-user/x"], "~no-such-user"),
        (["-m", "x" * 5000], "xxx"),
        (["-p", "x" * 300_000], "characters"),
        (["-p", "x" * 400], "256"),
        (["--num-blocks", "2"], "--num-blocks"),
    ],
)
def test_bad_input_ends_in_one_line_that_names_it(
    folder: Path, arguments: list[str], said: str
) -> None:
    result = run(folder, "-p", "hello", *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-t", "nan"], "--temperature must be a number from 0 to 100, not nan"),
        (["--top-p", "2"], "--top-p must be"),
        (["--stop", ""], "--stop must be texts of 1 to 512 characters, not ''"),
        (["--device", "tpu"], "--device must be cpu, cuda, cuda:N or mps, not 'tpu'"),
        (["--cuda", "--device", "mps"], "--cuda and --device mps contradict each other"),
        (["--cuda", "--device", "cpu"], "--cuda and --device cpu contradict each other"),
        (["--revision", "main", "-m", "demo"], "revision 'main' goes with a Hugging Face id"),
        (["--reasoning-effort", "low"], "--reasoning-effort goes with --chat"),
    ],
)
def test_a_wrong_value_has_exit_code_2_and_one_line(
    folder: Path, arguments: list[str], said: str
) -> None:
    result = run(folder, "-p", "hello", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"error: {said}")


@pytest.mark.parametrize(
    "arguments",
    [["--wobble"], ["-p", "-", "-p", "-"], ["--max-tokens", "many"], ["--dtype", "int3"]],
)
def test_wrong_usage_has_exit_code_2(folder: Path, arguments: list[str]) -> None:
    result = run(folder, "-p", "hello", *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_an_unknown_architecture_lists_the_known(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    edit_config(tmp_path, architectures=["Nope"])
    result = run(tmp_path, "-p", "hello")
    assert result.exit_code == 1
    assert "LlamaForCausalLM" in result.stderr


def test_no_model_at_all_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path, "-p", "hello")
    assert result.exit_code == 1
    assert "config.json" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_debug_keeps_the_traceback(tmp_path: Path) -> None:
    result = run(tmp_path, "-p", "hello", "--debug")
    assert result.exit_code == 1
    assert result.exception is not None


def test_help_starts_without_torch() -> None:
    program = (
        "import sys; sys.argv = ['inferno', '--help']\n"
        "from inferno.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "generate" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("option", "num_lines"), [([], 1), (["--debug"], 10)])
def test_a_step_that_fails_is_one_line(folder: Path, option: list[str], num_lines: int) -> None:
    asked = ["generate", "-m", str(folder), "-p", "hello", *option]
    program = (
        "import sys\n"
        "from inferno.cli.app import app\n"
        "from inferno.engine.execution.local import LocalExecutor\n"
        "LocalExecutor.launch = lambda *_: 1 / 0\n"
        f"app({asked!r})\n"
    )
    result = forker().run("-c", program)
    lines = result.stderr.splitlines()
    assert result.returncode == 1
    assert "a step of the engine failed: ZeroDivisionError" in lines[-1]
    assert min(len(lines), 10) == num_lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [[], ["--num-blocks", "18", "-p", "Tom and Sue", "-p", "The red ball"]],
    ids=["alone", "preempted"],
)
def test_the_published_text_is_printed(options: list[str]) -> None:
    folder = data_path("stories260K")
    golden = (folder / "golden_greedy_256.txt").read_text()
    result = run(folder, "-p", "", "-t", "0", "--max-tokens", "256", *options)
    if options:
        assert golden in result.stdout
    else:
        assert result.stdout == golden


@pytest.mark.slow
def test_an_interrupt_ends_it_in_one_line(folder: Path) -> None:
    endless = ["-p", "hello", "--max-tokens", "250", "--num-blocks", "64", "--json"]
    with generating(folder, *endless, *(["-p", "x"] * 200)) as (program, out, errors):
        assert out.readline()
        os.kill(program.pid, signal.SIGINT)
        assert program.wait() == 1
        assert errors.read() == b"interrupted\n"


@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly(folder: Path) -> None:
    with generating(folder, "-p", "hello", *(["-p", "x"] * 9), "--json") as (program, out, errors):
        out.readline()
        out.close()
        assert errors.read() == b""
        program.wait()


@contextlib.contextmanager
def generating(folder: Path, *arguments: str) -> Iterator[tuple[Program, BinaryIO, BinaryIO]]:
    """The command while it runs, its output and its errors."""
    asked = ["-m", "inferno", "generate", "-m", str(folder), "--threads", "1", *arguments]
    pipes = [small_pipe(), os.pipe()]
    with open(os.devnull, "rb") as nothing:
        program = forker().start(asked, [nothing.fileno(), pipes[0][1], pipes[1][1]])
    for _, inside in pipes:
        os.close(inside)
    try:
        with os.fdopen(pipes[0][0], "rb") as out, os.fdopen(pipes[1][0], "rb") as errors:
            yield program, out, errors
    finally:
        program.kill()
