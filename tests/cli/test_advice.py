"""An option that a message proposes is one that every command has which can say it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from import_graph import PACKAGE, SOURCE, package_files
from typer.main import get_group
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.cli.errors import FLAGS, one_line_errors
from inferno.errors import NotEnoughMemory

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
NAMED = re.compile(r"`inferno ([a-z]+)[^`]*$")  # a command, whose options follow
ENGINES = (
    *("generate", "play", "serve", "worker", "warmup", "verify"),
    *("bench latency", "bench throughput"),
)
DOWNLOADING = ("generate", "play", "serve", "warmup")
CHATTING = ("generate", "play", "serve", "worker")
CONFIGS = (*ENGINES, "plan", "convert")
# Who can say what stands in a room of the package, or in a file of it: the longest name counts.
SAID_BY = {
    "bench/": ("bench latency", "bench throughput"),
    "bench/load": ("bench serve",),
    "cli/bench.py": ("bench latency", "bench throughput"),
    "cli/bench_serve.py": ("bench serve",),
    "cli/chat/": ("play",),
    "cli/convert.py": ("convert",),
    "cli/doctor": ("doctor",),
    "cli/download.py": DOWNLOADING,
    "cli/errors.py": ENGINES,
    "cli/generate.py": ("generate",),
    "cli/model_options.py": ("generate", "play"),
    "cli/models.py": ("show",),
    "cli/plan.py": ("plan",),
    "cli/play.py": ("play",),
    "cli/verify.py": ("verify",),
    "cli/warmup.py": ("warmup",),
    "cli/worker.py": ("worker",),
    "client/": ("serve", "worker"),
    "config/": CONFIGS,
    "convert/": ("convert",),
    "engine/": ENGINES,
    "engine/execution/probe.py": ("doctor",),
    "gguf/": CONFIGS,
    "layers/": ENGINES,
    "lint/": ("generate",),  # `doctor MODEL` tells how to run the model
    "model_files.py": CONFIGS,
    "models/": ENGINES,
    "ops/": ENGINES,
    "out_of_memory.py": ENGINES,
    "plan/": (*ENGINES, "plan"),
    "server/": ("serve", "worker"),
    "server/worker/": ("worker",),
    "text/": CHATTING,
    "verify/": ("verify",),
    "weights/": ENGINES,
}
_GIVEN = "said where it was given"
_OTHERS = "another program's"
# Options that stand in a text, and are no advice to whoever can't give them.
OTHERWISE = {
    "cli/__init__.py --debug": "looks for it",
    "cli/app.py --help": "declares it",
    "cli/chat/commands.py --force": "of a command of the chat",
    "cli/chat/transcript.py --force": "of a command of the chat",
    "cli/worker.py --help": "declares it",
    "cli/doctor.py --threads": "of the commands that run a model",
    "cli/doctor_problems.py --device": "of the commands that run a model",
    "cli/doctor_problems.py --model": "of the commands that run a model",
    "cli/doctor_problems.py --force-reinstall": _OTHERS,
    "convert/tokenizer.py --flag": "of a text that tokenizers are compared on",
    "engine/build.py --preemption": _GIVEN,
    "engine/execution/device.py --attention": "keys and values in int8 or fp8 were asked for",
    "engine/execution/device.py --kv-dtype": _GIVEN,
    "engine/execution/gpu.py --force-reinstall": _OTHERS,
    "engine/execution/gpu.py --gpus": _OTHERS,
    "extras.py --editable": _OTHERS,
    "hub/kinds.py --include": _GIVEN,
    "hub/url.py --include": _GIVEN,
    "ops/cuda/paged_attention.py --block-size": _GIVEN,
    "plan/devices.py --format": _OTHERS,
    "plan/devices.py --query-gpu": _OTHERS,
    "plan/report.py --kv-dtype": "a cure, and the command line leaves out those of other commands",
    "server/http/auth.py --cors-origin": "a worker is called by no page",
    "server/http/sockets.py --uds": _GIVEN,
}
DECLARING = ("options.py", "sampling_params.py", "cli/options.py")
FILES = [path.relative_to(SOURCE / PACKAGE).as_posix() for path in package_files().values()]


def flags_of_commands() -> dict[str, set[str]]:
    found = {}
    for name, command in get_group(app).commands.items():
        for part, one in getattr(command, "commands", {"": command}).items():
            flags = {flag for parameter in one.params for flag in parameter.opts}
            found[f"{name} {part}".strip()] = flags
    return found


COMMANDS = flags_of_commands()


def texts(path: Path) -> Iterator[str]:
    """The texts of a program, but for docstrings and what declares options."""
    tree = ast.parse(path.read_text())
    done = set()
    for node in ast.walk(tree):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_option = isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option"
        if is_docstring or is_option:
            done |= {id(part) for part in ast.walk(node)}
        if id(node) in done:
            continue
        if isinstance(node, ast.JoinedStr):
            done |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "-" for part in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def speakers(file: str) -> tuple[str, ...]:
    """The commands that can say what stands in a file."""
    places = [place for place in SAID_BY if file.startswith(place)]
    return SAID_BY[max(places, key=len)] if places else ()


def proposed(file: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The options in the texts of a file, and the commands of which each must be one."""
    for text in texts(SOURCE / PACKAGE / file):
        for found in FLAG.finditer(text):
            if f"{file} {found[0]}" not in OTHERWISE:
                named = NAMED.findall(text[: found.start()])
                yield found[0], (named[-1],) if named else speakers(file)


@pytest.mark.parametrize("file", [file for file in FILES if file not in DECLARING])
def test_every_option_that_is_proposed_is_there(file: str) -> None:
    for flag, commands in proposed(file):
        assert commands, f"say in SAID_BY which commands can propose {flag}"
        for command in commands:
            assert flag in COMMANDS[command], f"{command} has no {flag}, and may propose it"


def test_no_exception_is_left_of_what_is_gone() -> None:
    found = {
        f"{file} {flag}"
        for file in FILES
        for text in texts(SOURCE / PACKAGE / file)
        for flag in FLAG.findall(text)
    }
    assert not OTHERWISE.keys() - found
    assert all(any(file.startswith(place) for file in FILES) for place in SAID_BY)


def refused(
    cures: tuple[str, ...], flags: set[str] | None, capsys: pytest.CaptureFixture[str]
) -> str:
    before = FLAGS.set(None if flags is None else frozenset(flags))
    try:
        with pytest.raises(typer.Exit), one_line_errors(debug=False):
            raise NotEnoughMemory("what would fit:", cures=cures)
    finally:
        FLAGS.reset(before)
    return capsys.readouterr().err


def test_what_would_fit_is_told_where_the_command_has_the_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cures = ("  --kv-dtype int8   1 GB", "  --quantize int8   2 GB", "  (no draft model)   3 GB")
    assert refused(cures, None, capsys).splitlines()[1:] == [*cures]
    assert refused(cures, {"--quantize"}, capsys).splitlines()[1:] == [*cures[1:]]
    assert "nothing that was tried" in refused(cures[:1], {"--quantize"}, capsys)
    assert refused((), set(), capsys) == "error: what would fit:\n"


def test_verify_proposes_its_own_options_where_a_model_does_not_fit() -> None:
    # More than this process takes, and less than so many blocks do.
    tight = ["--memory", "8GB", "--num-blocks", "1000000", "--threads", "1"]
    said = CliRunner().invoke(app, ["verify", "demo", *tight]).stderr
    told = FLAG.findall(said.partition("what would fit:")[2])
    assert "--num-blocks" in told
    assert set(told) <= COMMANDS["verify"]
