"""Any number of engines, threads and loads at once give right bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = [sys.executable, *(["-S"] if sys.flags.no_site else [])]  # as `make sanitize` asks
START = [*PYTHON, "-m", "tests.quick_start"]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_engines_at_once_give_what_each_gives_alone(seed: int) -> None:
    command = [*START, "tests.engine.many_engines", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.skipif("tsan" in os.environ.get("LD_PRELOAD", ""), reason="it allows no such forks")
@pytest.mark.slow
def test_a_forked_child_goes_on_with_an_engine_of_its_own() -> None:
    command = [*START, "tests.engine.process.forked", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
