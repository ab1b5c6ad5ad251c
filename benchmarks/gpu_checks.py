"""The kernels' tests on this device, and a part of them under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gpu_timing import Bench, Figure

ROOT = Path(__file__).resolve().parents[1]
_TESTS_SECONDS, _SANITIZER_SECONDS = 150, 60
_TESTS = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
# A tool of its own that watches each access: few tests, for it is a hundred times slower.
_WATCHED = ["tests/ops/cuda/test_elementwise.py", "tests/ops/cuda/test_rotation.py"]


def check(bench: Bench) -> Iterator[Figure]:
    """Yield how the tests ended."""
    if not bench.is_gpu:
        yield Figure("tests", "on a GPU only")
        return
    yield Figure("pytest -m gpu", _last_line([*_TESTS, "tests"], _TESTS_SECONDS))
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        yield Figure("compute-sanitizer", "is not installed")
        return
    command = [tool, "--error-exitcode", "9", *_TESTS, *_WATCHED]
    yield Figure("compute-sanitizer", _last_line(command, _SANITIZER_SECONDS))


def _last_line(command: list[str], seconds: float) -> str:
    """Return the last line that a command prints, with those that name failures before it."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        told = late.stdout or b""
        text = told.decode(errors="replace") if isinstance(told, bytes) else told
        return f"no end after {seconds:.0f} s: {text[-200:]}"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "========= "))]
    print("\n".join([*failed[:40], done.stderr[-2000:]]))
    return f"exit code {done.returncode}: {lines[-1] if lines else done.stderr[-200:]}"
