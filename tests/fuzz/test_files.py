"""Mutated models, some of them: `python -m tests.fuzz.run --count 50000` opens more.

They end in a typed error, or have the tensors that the formats' own libraries read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inferno.weights.checkpoint import WeightsFile
from inferno.weights.open import open_checkpoint
from tests.fuzz.opening import Differs, compare
from tests.fuzz.write_seeds import write_seeds
from tests.gguf.convert import write_gguf
from tests.patience import PATIENCE
from tests.tiny import save_tiny

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=4 * PATIENCE
    )


def test_mutated_models_are_met(tmp_path: Path) -> None:
    write_seeds(tmp_path)
    models = ["--models", str(tmp_path)]
    done = python("-m", "tests.fuzz.run", "--count", "250", "--seed", "17", *models)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "250 cases" in done.stdout
    assert "tensors+text+config+ran" in done.stdout  # some are still models


PLANTED = """
from inferno.torch_start import defer_tracing
defer_tracing()
import json, os, sys, time
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
patience, said = run.PATIENCE, {}
for kind in sys.argv[1:]:
    run.PATIENCE = 0.2 if kind == "hang" else patience
    report = run.run([Seed("x", {"a.bin": b"abc", "b.bin": b"d"}, kind)], 1, range(1))
    said[kind] = " ".join([str(len(report.findings)), *report.findings])
print(json.dumps(said))
"""
FOUND = {
    "crash": "1 case 0: ends the process with status 6",
    "hang": "1 case 0: hangs",
    "memory": "MemoryError",
    "panic": "panicked at x.rs",
    "error": "ValueError: planted",
    "well": "0",
}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """Return how many findings there are where one is planted, and what is said of it."""
    done = python("-c", PLANTED, *FOUND)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", FOUND)
def test_what_goes_wrong_is_found(said: dict[str, str], kind: str) -> None:
    assert said[kind].startswith("0" if kind == "well" else "1 ")
    assert FOUND[kind] in said[kind]


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
