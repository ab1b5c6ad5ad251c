"""`inferno warmup`: kernels and steps ahead, with a GPU's place taken by the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.engine import build

SMALL = ["--max-num-seqs", "2", "--num-blocks", "64", "--max-model-len", "64"]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["warmup", *arguments])


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_without_a_gpu_there_is_nothing_to_compile(device: str) -> None:
    result = invoke("nobody/has-fetched-it", "--device", device)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{device}: there is nothing to compile ahead")


def test_a_gpus_kernels_and_sizes_are_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton.knobs")
    real = build.build_engine
    asked = []

    def build_here(options: Any, progress: Any, *, captures: Any) -> Any:
        asked.append(options.device)
        knobs.runtime.jit_cache_hook(fn=SimpleNamespace(name="a_kernel"))
        return real(
            replace(options, device="cpu", gpu_memory_utilization=None), progress, captures=captures
        )

    monkeypatch.setattr(build, "build_engine", build_here)
    result = invoke("demo", "--device", "cuda:1", "--gpu-memory-utilization", "0.5", *SMALL)
    assert result.exit_code == 0, result.output
    assert asked == ["cuda:1"]
    assert re.fullmatch(
        r"cpu: 1 kernels are ready, 18 kinds of steps were tried, in [\d.]+ s\n", result.stdout
    )


def test_what_cannot_be_is_refused_in_one_line() -> None:
    for arguments, code, said in (
        (["/no/such/model", "--device", "cuda"], 1, "error: there is no folder"),
        (["demo", "--device", "cuda:x"], 2, "error: --device must be cpu, cuda, cuda:N"),
        (["demo", "--gpu-memory-utilization", "0.5"], 2, "error: --gpu-memory-utilization goes"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == code
        assert result.stderr.startswith(said)
        assert len(result.stderr.splitlines()) == 1


def test_the_command_brings_no_torch() -> None:
    program = "import sys, inferno.cli.warmup; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
