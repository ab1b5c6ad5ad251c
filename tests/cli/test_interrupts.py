"""Ctrl+C at any moment of a command's start: one line, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import inferno

# Interrupts itself, as a terminal would, at the moment when a module is looked for.
PROGRAM = """
import os, signal, sys
moment, *arguments = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)

from inferno.cli import main
sys.meta_path.insert(0, Interrupting())
sys.argv = ["inferno", *arguments]
main()
"""
SERVE = ("serve", "demo", "--port", "0")
GENERATE = ("generate", "-m", "demo", "-p", "hello")
WORKER = (
    *("worker", "--worker-id", "a", "--model", "demo", "--port", "0", "--device", "cpu"),
    *("--callback-url", "http://127.0.0.1:9/"),
)


@pytest.mark.parametrize(
    ("moment", "arguments"),
    [
        ("inferno.cli.app", ("--help",)),
        ("typing", ("--version",)),
        ("typer", ("doctor",)),
        ("inferno.cli.errors", SERVE),
        ("inferno.server.settings", SERVE),
        ("uvicorn", SERVE),
        ("inferno.text.model_text", SERVE),
        ("tokenizers", SERVE),
        ("inferno.server.worker.start", WORKER),
        ("fastapi", WORKER),
        ("inferno.llm", GENERATE),
        ("torch", GENERATE),
        ("inferno._native", GENERATE),
        ("inferno.models.common", GENERATE),
        ("torch", ("verify", "demo")),
        ("inferno.bench.run", ("bench", "-m", "demo")),
    ],
)
def test_an_interrupt_while_it_imports_is_one_line(moment: str, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, moment, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "interrupted\n")


def test_nothing_is_imported_before_interrupts_are_met() -> None:
    """What would be imported then could be interrupted with a traceback."""
    look = (
        "import os, sys; before = set(sys.modules); import inferno.cli;"
        "print(*sorted(set(sys.modules) - before))"
    )
    # -S: the finder of an editable installation imports modules of its own. `site` brings os.
    sources = str(Path(inferno.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", look],
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["__future__", "inferno", "inferno.cli"]
