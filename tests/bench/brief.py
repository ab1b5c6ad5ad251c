"""`bench` measures memory and arithmetic of this machine briefly, in a process that starts at once.

A real one reads a gibibyte of memory many times. tests/cli/test_bench.py has a test with one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from types import SimpleNamespace
from typing import IO, Any

import pytest

from tests.forked import Forker, forker

_PROGRAM = """
from functools import partial
from inferno.bench import measured_process, roofline
roofline._INPUTS = roofline._OUTPUTS = 64
roofline.measure_bandwidth = partial(roofline.measure_bandwidth, 2**20, 1)
roofline.measure_peak = partial(roofline.measure_peak, rounds=1)
roofline.measure_kernels = partial(roofline.measure_kernels, rounds=1)
measured_process.main()
"""


def measure_briefly(monkeypatch: pytest.MonkeyPatch, python: Forker | None = None) -> None:
    """Have `bench` start such processes in this test."""

    def start(command: Sequence[str], *, stderr: IO[bytes] | None, **_: object) -> _Measured:
        assert command[1:] == ["-P", "-m", "inferno.bench.measured_process"]
        return _Measured(python or forker(), stderr)

    started = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)
    monkeypatch.setattr("inferno.bench.run.subprocess", started)


class _Measured:
    """What `bench` uses of a Popen."""

    def __init__(self, python: Forker, stderr: IO[bytes] | None) -> None:
        inside_in, outside_in = os.pipe()
        outside_out, inside_out = os.pipe()
        self.stdin: Any = os.fdopen(outside_in, "wb")
        self.stdout: Any = os.fdopen(outside_out, "rb")
        files = [inside_in, inside_out, stderr.fileno() if stderr is not None else 2]
        with contextlib.ExitStack() as stack:
            for file in files[:2]:
                stack.callback(os.close, file)
            program = python.start(["-c", _PROGRAM], files)
        self.kill, self.wait = program.kill, program.wait
