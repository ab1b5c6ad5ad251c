"""Without compiled kernels, models are slow, and whoever loads one is told so, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferno.cli.doctor_facts import gather_facts
from inferno.cli.doctor_problems import find_problems

WARNING = (
    "inferno's compiled kernels don't run, as they were not built, for no C++ compiler was found "
    "when inferno was installed: models are many times slower; install a C++17 compiler, then "
    "inferno again"
)
TWICE = """
from inferno import LLM
for _ in range(2):
    LLM("demo", threads=1, num_blocks=4).close()
"""


@pytest.fixture
def unbuilt(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that finds no compiled kernels."""
    site = "import sys; sys.modules['inferno._native'] = None"
    (tmp_path / "sitecustomize.py").write_text(site)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def run(*arguments: str, env: dict[str, str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, input=stdin)


GENERATE = ("-m", "inferno", "generate", "-p", "hi", "--max-tokens", "1", "--threads", "1")


@pytest.mark.slow
@pytest.mark.parametrize("form", [(), ("--json",), ("-p", "and", "-p", "more"), ("--verbose",)])
def test_generate_says_it_in_one_line(unbuilt: dict[str, str], form: tuple[str, ...]) -> None:
    done = run(*GENERATE, *form, env=unbuilt)
    assert done.returncode == 0
    assert done.stderr.count(WARNING) == 1
    if "--verbose" not in form:
        assert done.stderr == f"warning: {WARNING}\n"


@pytest.mark.slow
def test_play_says_it(unbuilt: dict[str, str]) -> None:
    done = run("-m", "inferno", "play", "demo", "--threads", "1", env=unbuilt)
    assert done.stderr.splitlines()[0] == f"warning: {WARNING}"


@pytest.mark.slow
def test_verify_and_bench_say_it(unbuilt: dict[str, str], folder: Path) -> None:
    few = ("--prompt-tokens", "4", "--max-tokens", "2", "--num-runs", "1", "--threads", "1")
    for command in (("verify", str(folder)), ("bench", "latency", "-m", str(folder), *few)):
        done = run("-m", "inferno", *command, env=unbuilt)
        assert done.stderr == f"warning: {WARNING}\n", command


@pytest.mark.slow
def test_the_library_says_it_once_a_process(unbuilt: dict[str, str]) -> None:
    done = run("-c", TWICE, env=unbuilt)
    assert (done.returncode, done.stderr) == (0, WARNING + "\n")


@pytest.mark.slow
def test_who_leaves_the_kernels_out_on_purpose_is_not_told() -> None:
    done = run(*GENERATE, env={**os.environ, "INFERNO_KERNELS": "reference"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_servers_log_says_it(unbuilt: dict[str, str]) -> None:
    command = [sys.executable, "-m", "inferno", "serve", "demo", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=unbuilt) as server:
        assert server.stderr is not None
        lines = []
        try:
            for line in server.stderr:
                lines.append(json.loads(line))
                if lines[-1]["message"] == "ready":
                    break
        finally:
            server.kill()
    [told] = [line for line in lines if line["message"] == WARNING]
    assert (told["level"], told["process"]) == ("warning", "engine")


def test_doctor_gives_the_same_advice() -> None:
    facts = gather_facts()
    facts["kernels"] = {"isa": None, "why_not": "they were not built"}
    cures = [problem.cure for problem in find_problems(facts) if "kernels" in problem.what]
    assert cures
    assert WARNING.endswith(cures[0])
