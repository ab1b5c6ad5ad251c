"""Memory or threads that the system refuses fail a step, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inferno.compiled_kernels import why_not
from tests.mxfp4 import save_tiny_mxfp4

PYTHON = [sys.executable, "-m", "tests.quick_start"]
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src/inferno/demo/files/demo-draft"
SOURCE = Path(__file__).with_name("failing_memory.cpp")
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

_ENTER = """
import ctypes
from inferno import _native
refuser = ctypes.CDLL(None)
context = _native.KernelContext(1)
refuser.refuse_pointers(True)
try:
    context.__enter__()
except MemoryError:
    refuser.refuse_pointers(False)
    with context:
        print("entered")
"""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs a preloaded library"),
    pytest.mark.skipif(COMPILER is None, reason="needs a compiler"),
    pytest.mark.skipif(why_not() is not None, reason="needs the compiled kernels"),
    pytest.mark.skipif("san.so" in os.environ.get("LD_PRELOAD", ""), reason="has its own memory"),
]


@pytest.fixture(scope="module")
def refuser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("refuser") / "refuser.so"
    command = [str(COMPILER), "-std=c++17", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def errors(refuser: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str | None]]:
    """Return by case what requests ended with, for each allocation that was refused."""
    mixture = tmp_path_factory.mktemp("mixture")
    save_tiny_mxfp4(mixture, num_hidden_layers=1, num_local_experts=4)
    done = subprocess.run(
        [*PYTHON, "tests.engine.failing_memory", str(DEMO), str(mixture)],
        env={**os.environ, "LD_PRELOAD": str(refuser)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found: dict[str, list[str | None]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", ["none", "int4", "mixture", "int8, scalar"])
def test_memory_that_a_kernel_lacks_fails_the_step_alone(
    errors: dict[str, list[str | None]], case: str
) -> None:
    found = errors[case]
    assert sum("memory ran out" in (error or "") for error in found) > len(found) / 2 > 1


@pytest.mark.slow
def test_a_refused_thread_fails_the_step_alone(errors: dict[str, list[str | None]]) -> None:
    [error] = errors["threads"]
    assert error is not None
    assert "Resource temporarily unavailable" in error


def test_kernels_that_a_thread_could_not_enter_are_entered_later(refuser: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENTER],
        env={**os.environ, "LD_PRELOAD": str(refuser)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "entered\n"), done.stderr[-2000:]
