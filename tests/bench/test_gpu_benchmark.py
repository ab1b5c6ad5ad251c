"""The run that times a GPU keeps what it knows, whatever becomes of a part."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

pytest.importorskip("triton")
gpu, gpu_checks = (pytest.importorskip(name) for name in ("gpu", "gpu_checks"))

# What a process of parts does, without any of what takes time.
WORKER = """
import json, os, sys, time
with open(sys.argv[1], "a") as file:
    def note(**facts):
        file.write(json.dumps(facts) + "\\n")
        file.flush()
    for part in sys.argv[2:]:
        note(part=part, begun=0)
        note(part=part, figure=part)
        if part == "raises":
            note(part=part, failed="planted")
            sys.exit(1)
        if part == "dies":
            os.abort()
        if part == "hangs":
            time.sleep(600)
        note(part=part, ended=1)
"""


def run(folder: Path, parts: Sequence[str], seconds: float = 60.0) -> list[tuple[str, str]]:
    """Return the figures of parts, and how those ended that did not end well, in their order."""
    file, script = folder / "figures", folder / "worker.py"
    file.write_text("")
    script.write_text(textwrap.dedent(WORKER))

    def command(some: Sequence[str]) -> list[str]:
        return [sys.executable, "-S", str(script), str(file), *some]

    limits = {part: 1.0 if part == "hangs" else 60.0 for part in parts}
    gpu.supervise(parts, command, file, seconds, limits)
    lines = gpu.read(file)
    return [(line["part"], key) for line in lines for key in ("figure", "failed") if key in line]


@pytest.mark.parametrize("how", ["raises", "dies", "hangs"])
def test_what_follows_a_part_that_fails_is_run(how: str, tmp_path: Path) -> None:
    found = run(tmp_path, ["first", how, "next", "last"])
    expected = [("first", "figure"), (how, "figure"), (how, "failed")]
    assert found == [*expected, ("next", "figure"), ("last", "figure")]


def test_all_parts_may_fail(tmp_path: Path) -> None:
    assert [key for _, key in run(tmp_path, ["raises", "dies"])] == ["figure", "failed"] * 2


def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    found = run(tmp_path, ["first", "hangs", "next", "last"], seconds=0.5)
    assert found[-2:] == [("next", "failed"), ("last", "failed")]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text('{"part": "a"}\n{"part": "b"')
    assert gpu.read(tmp_path / "figures") == [{"part": "a"}]


def told(script: str, seconds: float) -> list[str]:
    command = [sys.executable, "-S", "-u", "-c", script]
    return [figure.value for figure in gpu_checks.outcome("tests", command, seconds)]


@pytest.mark.parametrize("ending", ["", "import time; time.sleep(600)"])
def test_failures_are_told_whether_tests_end_or_not(ending: str) -> None:
    lines = ["[gw1] [ 2%] PASSED tests/a.py::test_one[2]", "[gw0] [ 3%] FAILED tests/a.py::two"]
    script = f"print({chr(10).join(lines)!r}); {ending or 'raise SystemExit(1)'}"
    first, *failures = told(script, 0.5 if ending else 60.0)
    assert first.endswith("1 failed, 1 passed")
    assert ("no end" in first) is bool(ending)
    assert [failure.split()[-1] for failure in failures] == ["tests/a.py::two"]


def test_all_parts_have_figures_on_a_cpu(tmp_path: Path) -> None:
    """Of those that take no time there."""
    file = tmp_path / "figures"
    file.write_text("")
    bench = gpu.Bench(gpu.torch.device("cpu"), tmp_path, gpu.Limits(1.0, 1.0))
    for name in ("limits", "tests", "Llama-3.1-8B", "sanitizer"):
        assert list(gpu.PARTS[name].figures(bench))
