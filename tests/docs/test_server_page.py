"""What docs/server.md shows does happen: its commands, its programs, its tables."""

from __future__ import annotations

import configparser
import contextlib
import inspect
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from inferno.cli.serve import serve
from inferno.server.docs.openapi import ERRORS
from tests.docs.pages import PAGES, blocks, dialogues, rows, section
from tests.docs.serving import Server, serving
from tests.patience import PATIENCE
from tests.server.http.serving import wait_until

PAGE = "docs/server.md"
SECTIONS = [
    heading
    for heading in re.findall(r"^## .+$", PAGES[PAGE], re.M)
    if "```console" in section(PAGE, heading)
]
FAKE = ("--fake-model", "script.json")  # spares the loading of PyTorch
NOT_RUN = ("python -m pip ", "inferno serve demo")  # a registry; the fixture runs it


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving("inferno serve demo", tmp_path_factory.mktemp("demo"), "--threads", "1") as server:
        yield server


@pytest.mark.parametrize("heading", SECTIONS)
def test_commands_print_what_is_shown(heading: str, demo: Server, tmp_path: Path) -> None:
    text = section(PAGE, heading)
    (tmp_path / "script.json").write_text("{}")
    for name, content in re.findall(r"^```text\n# (\S+)\n(.*?)^```$", text, re.M | re.S):
        (tmp_path / name).write_text(content)
    server = demo
    with contextlib.ExitStack() as running:
        for command, shown in dialogues(text):
            if command.startswith("inferno serve demo --"):
                running.close()
                server = running.enter_context(serving(command, tmp_path, *FAKE))
            elif not command.startswith(NOT_RUN):
                printed = run(server.here(command), tmp_path)
                assert not shown or is_as_shown(shown, printed), f"{command} prints {printed}"


def run(command: str, folder: Path) -> str:
    """What a command of the shell prints."""
    program = command.split()[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    quiet = re.sub(r"^curl", "curl --silent --show-error --max-time 30", command)
    done = subprocess.run(
        ["sh", "-c", quiet], cwd=folder, capture_output=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout.decode()


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether that is printed, with anything for each …, and whatever the ends of lines."""
    first, *others = flat(shown).split("…")
    text = flat(printed)
    if not others:
        return text == first
    *middle, last = others
    at = len(first)
    for part in middle:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return text.startswith(first) and text.endswith(last) and at + len(last) <= len(text)


def flat(text: str) -> str:
    return re.sub(r"\s*\n", "", text)


@pytest.mark.parametrize("program", blocks(PAGE, "python"))
def test_programs_work(program: str, demo: Server, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(demo.here(program), PAGE, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_every_metric_is_named(demo: Server) -> None:
    text = httpx.get(f"http://{demo.address}/metrics").text
    told = set(re.findall(r"^# HELP (\S+)", text, re.M))
    table = rows(section(PAGE, "## Metrics and logs"))
    named = {name for row in table for name in re.findall(r"`(inferno_\w+)`", row[0])}
    assert named == told
    labels = set(re.findall(r"[{,](\w+)=", text)) - {"le"}
    assert labels <= {label for row in table for label in re.findall(r"`(\w+)`", row[1])}


def test_every_key_of_the_log_is_named(demo: Server) -> None:
    url = f"http://{demo.address}"
    httpx.get(url + "/nowhere")
    httpx.post(url + "/v1/completions", content=b"x")
    httpx.post(url + "/v1/completions", json={"prompt": "The sun", "max_tokens": 1})
    wait_until(lambda: {"path", "rejected", "ttft_ms", "finish_reasons"} <= keys_of_log(demo))
    assert keys_of_log(demo) <= set(re.findall(r"`(\w+)`", section(PAGE, "## Metrics and logs")))


def keys_of_log(demo: Server) -> set[str]:
    return {key for line in demo.lines() if line["message"] == "request" for key in line}


def test_options_exist_and_have_these_defaults() -> None:
    options = set(re.findall(r"`(--[\w-]+)`", section("docs/cli.md", "## inferno serve")))
    prose = re.sub(r"^```.*?^```$", "", PAGES[PAGE], flags=re.M | re.S)
    named = {option for code in re.findall(r"`([^`]+)`", prose) for option in flags(code)}
    started = {
        flag for one in dialogues(PAGES[PAGE]) if "serve" in one[0] for flag in flags(one[0])
    }
    assert named | started <= options
    parameters = inspect.signature(serve).parameters
    for cell, defaults, _ in rows(section(PAGE, "## Limits"))[1:]:
        found = [parameters[name].default for name in names_of(cell) if name in parameters]
        assert [value_of(word) for word in defaults.split(", ")] == found, cell


def value_of(word: str) -> float | str:
    """Of `1,000,000`, `8 MiB` or `auto`."""
    if word == "auto":
        return word
    digits, _, unit = word.replace(",", "").partition(" ")
    return float(digits) * {"": 1, "MiB": 1 << 20}[unit]


def flags(code: str) -> list[str]:
    return re.findall(r"--[a-z][\w-]+", code)


def names_of(cell: str) -> list[str]:
    return [flag[2:].replace("-", "_") for flag in flags(cell)]


def test_statuses_are_those_of_the_server_and_raise_what_is_told() -> None:
    table = rows(section(PAGE, "## Errors"))[1:]
    statuses = {int(status) for row in table for status in row[0].split(", ")}
    assert statuses >= {int(status) for status in ERRORS}
    for row in table:
        of_row = {int(status) for status in row[0].split(", ")}
        for name in re.findall(r"`(\w+)`", row[2]):
            status = getattr(getattr(openai, name), "status_code", None)
            assert status is None or status in of_row, row


def test_the_unit_starts_a_server_with_options_that_exist() -> None:
    [text] = blocks(PAGE, "ini")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0].endswith("/inferno")
    assert words[1] == "serve"
    options = set(re.findall(r"`(--[\w-]+)`", section("docs/cli.md", "## inferno serve")))
    assert {word for word in words if word.startswith("--")} <= options
    drain = float(words[words.index("--drain-timeout") + 1])
    assert float(service["TimeoutStopSec"]) > drain
