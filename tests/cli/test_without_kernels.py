"""Without compiled kernels, models are slow, and whoever loads one is told so, once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.cli.doctor_facts import gather_facts
from inferno.cli.doctor_problems import find_problems
from tests.bench.brief import measure_briefly
from tests.forked import Forker

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


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What makes a Python find no compiled kernels, in its environment."""
    folder = tmp_path_factory.mktemp("site")
    site = "import sys; sys.modules['inferno._native'] = None"
    (folder / "sitecustomize.py").write_text(site)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(scope="module")
def python(unbuilt: dict[str, str]) -> Iterator[Forker]:
    """Such a Python, which has imported what commands import."""
    forker = Forker(unbuilt)
    yield forker
    forker.close()


GENERATE = ("-m", "inferno", "generate", "-p", "hi", "--max-tokens", "1", "--threads", "1")


@pytest.mark.slow
@pytest.mark.parametrize("form", [(), ("--json",), ("-p", "and", "-p", "more"), ("--verbose",)])
def test_generate_says_it_in_one_line(python: Forker, form: tuple[str, ...]) -> None:
    done = python.run(*GENERATE, *form)
    assert done.returncode == 0
    assert done.stderr.count(WARNING) == 1
    if "--verbose" not in form:
        assert done.stderr == f"warning: {WARNING}\n"


@pytest.mark.slow
def test_play_says_it(python: Forker) -> None:
    done = python.run("-m", "inferno", "play", "demo", "--threads", "1")
    assert done.stderr.splitlines()[0] == f"warning: {WARNING}"


@pytest.mark.slow
def test_verify_says_it(python: Forker, folder: Path) -> None:
    done = python.run("-m", "inferno", "verify", str(folder), "--threads", "1")
    assert done.stderr == f"warning: {WARNING}\n"


@pytest.mark.slow
def test_bench_says_it(python: Forker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_briefly(monkeypatch, python)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    few = ("--prompt-tokens", "4", "--max-tokens", "2", "--num-runs", "1", "--threads", "1")
    done = CliRunner().invoke(app, ["bench", "latency", "-m", str(folder), *few])
    assert done.stderr == f"warning: {WARNING}\n"


@pytest.mark.slow
def test_the_library_says_it_once_a_process(python: Forker) -> None:
    done = python.run("-c", TWICE)
    assert (done.returncode, done.stderr) == (0, WARNING + "\n")


@pytest.mark.slow
def test_who_leaves_the_kernels_out_on_purpose_is_not_told() -> None:
    done = subprocess.run(
        [sys.executable, *GENERATE],
        env={**os.environ, "INFERNO_KERNELS": "reference"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_servers_log_says_it(unbuilt: dict[str, str]) -> None:
    environment = {**os.environ, **unbuilt}
    command = [sys.executable, "-m", "inferno", "serve", "demo", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
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
