"""Mutated models, some of them: `python -m tests.fuzz.run --count 50000` opens more.

They end in a typed error, or have the tensors that the formats' own libraries read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inferno.weights.checkpoint import WeightsFile
from inferno.weights.open import open_checkpoint
from tests.fuzz.opening import Differs, compare
from tests.gguf.convert import write_gguf
from tests.patience import PATIENCE
from tests.tiny import save_tiny

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=4 * PATIENCE
    )


def test_mutated_models_are_met() -> None:
    done = python("-m", "tests.fuzz.run", "--count", "250", "--seed", "17")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "250 cases" in done.stdout
    assert "tensors+text+config+ran" in done.stdout  # some are still models


PLANTED = """
import os, sys, time
from tests.fuzz import run
from tests.fuzz.seeds import Seed

def open_model(path, *, runs):
    kind = path.name
    if kind == "crash":
        os.abort()
    if kind == "hang":
        time.sleep(10_000)
    if kind == "memory":
        bytearray(4 << 30)
    if kind == "panic":
        os.write(2, b"thread panicked at x.rs")
    if kind == "error":
        raise ValueError("planted")
    return "nothing"

run.open_model = open_model
run.PATIENCE = float(sys.argv[2])
report = run.run([Seed("x", {"a.bin": b"abc", "b.bin": b"d"}, sys.argv[1])], 1, range(1))
print(len(report.findings), *report.findings)
"""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("crash", "1 case 0: ends the process with status 6"),
        ("hang", "1 case 0: hangs"),
        ("memory", "MemoryError"),
        ("panic", "panicked at x.rs"),
        ("error", "ValueError: planted"),
        ("well", "0"),
    ],
)
def test_what_goes_wrong_is_found(kind: str, said: str) -> None:
    done = python("-c", PLANTED, kind, "0.2" if kind == "hang" else str(PATIENCE))
    assert said in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("is_gguf", [True, False])
def test_a_value_that_is_another_is_found(
    is_gguf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hf"
    model = save_tiny(path, "llama", num_hidden_layers=1)
    if is_gguf:
        path = write_gguf(tmp_path / "model.gguf", model)
    read = WeightsFile.read_into

    def read_wrongly(file: WeightsFile, buffer: memoryview, start: int) -> None:
        read(file, buffer, start)
        buffer[0] ^= 1

    with open_checkpoint(path) as checkpoint:
        compare(checkpoint, path)
        monkeypatch.setattr(WeightsFile, "read_into", read_wrongly)
        with pytest.raises(Differs, match="has other values"):
            compare(checkpoint, path)
