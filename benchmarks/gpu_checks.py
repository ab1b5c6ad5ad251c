"""The kernels' tests on this device, and a part of them under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from gpu_timing import Bench, Figure

ROOT = Path(__file__).resolve().parents[1]
_FOLDER = "tests/ops/cuda"
# These compile for chips that aren't here, or ask what a launch would be: no GPU has a say.
_WITHOUT_GPU = ("test_machine_code.py", "test_forms.py", "test_chips.py")
_PYTEST = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider"]
_TESTS_SECONDS, _SANITIZER_SECONDS = 140, 50  # less than the parts have
_MOST_PROCESSES = 12  # a test takes the compiler's time more than the GPU's
_MOST_TOLD = 40
# A tool of its own that watches each access: few tests, for it is a hundred times slower.
_WATCHED = [f"{_FOLDER}/test_elementwise.py", f"{_FOLDER}/test_rotation.py"]
_OUTCOME = re.compile(
    r"(PASSED|FAILED|ERROR|SKIPPED)\s+\S+|\S+::\S.* (PASSED|FAILED|ERROR|SKIPPED)"
)
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S.*)$")


def test(bench: Bench) -> Iterator[Figure]:
    """Yield how the tests ended, and each that failed."""
    if not bench.is_gpu:
        yield Figure("tests", "on a GPU only")
        return
    ignored = [f"--ignore={_FOLDER}/{name}" for name in _WITHOUT_GPU]
    yield from outcome("tests", [*_PYTEST, *processes(), *ignored, _FOLDER], _TESTS_SECONDS)


def sanitize(bench: Bench) -> Iterator[Figure]:
    """Yield how a few tests end under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer")
    if tool is None or not bench.is_gpu:
        yield Figure("compute-sanitizer", "on a GPU only" if tool else "is not installed")
        return
    command = [tool, "--error-exitcode", "9", *_PYTEST, "-x", *_WATCHED]
    yield from outcome("compute-sanitizer", command, _SANITIZER_SECONDS)


def processes() -> list[str]:
    """Return the words that share tests among processes, where pytest can."""
    if find_spec("xdist") is None:
        return []
    return ["-n", str(max(1, min(_MOST_PROCESSES, (os.cpu_count() or 1) - 2)))]


def outcome(name: str, command: Sequence[str], seconds: float) -> Iterator[Figure]:
    """Yield how many tests passed, whether all came to their end, and each that failed."""
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)
        try:
            ending = f"exit code {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ending = f"no end after {seconds:g} s"
        told.seek(0)
        lines = told.read().splitlines()
    words = [one or other for one, other in _OUTCOME.findall("\n".join(lines))]
    counts = ", ".join(f"{words.count(word)} {word.lower()}" for word in sorted(set(words)))
    yield Figure(name, f"{ending}: {counts or 'nothing'}")
    failures = [found[1] for line in lines if (found := _FAILURE.match(line))]
    failures = failures or [line for line in lines if "FAILED" in line or "ERROR" in line]
    failures += [line for line in lines if line.startswith("========= ")]
    for failure in failures[:_MOST_TOLD]:
        yield Figure(name, failure[:500])
    print("\n".join(lines[-400:]), flush=True)
