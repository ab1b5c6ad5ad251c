"""`--quantize` and `--kv-dtype`: packed weights and keys, asked for on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from inferno import ops
from inferno.cli.app import app
from inferno.quantization import INT8

CAN_PACK = ops.has_kernels(torch.device("cpu"), INT8)
needs_kernels = pytest.mark.skipif(not CAN_PACK, reason="no compiled kernels here")


def generate(folder: Path, *options: str) -> Result:
    given = ["generate", "-m", str(folder), "-p", "hello", "-t", "0", "--max-tokens", "8"]
    return CliRunner().invoke(app, [*given, *options])


def footprint(folder: Path, *options: str) -> tuple[float, float]:
    """What `play` says that weights and KV cache take."""
    said = CliRunner().invoke(
        app, ["play", str(folder), "--num-blocks", "64", *options], input="\n"
    )
    found = re.search(r"weights ([\d.]+) \wB · KV cache ([\d.]+) \wB", said.stderr)
    assert found, said.output
    return float(found[1]), float(found[2])


@needs_kernels
@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_texts_come_of_packed_weights(folder: Path, quantize: str) -> None:
    result = generate(folder, "--quantize", quantize, "--kv-dtype", "int8")
    assert result.exit_code == 0, result.output
    assert result.stdout


@needs_kernels
def test_packed_weights_and_keys_take_less(folder: Path) -> None:
    weights, cache = footprint(folder)
    assert footprint(folder, "--quantize", "int8")[0] < 0.5 * weights
    assert footprint(folder, "--kv-dtype", "int8")[1] < 0.5 * cache


@pytest.mark.parametrize(
    ("option", "said"),
    [("--quantize", "--quantize=int8 needs"), ("--kv-dtype", "--kv-dtype=int8 needs")],
)
def test_without_kernels_it_is_refused_in_one_line(
    folder: Path, option: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "has_kernels", lambda device, format: False)
    result = generate(folder, option, "int8")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {said}")
    assert len(result.stderr.splitlines()) == 1


def test_keys_in_fp8_are_refused_on_a_cpu_in_one_line(folder: Path) -> None:
    result = generate(folder, "--kv-dtype", "fp8")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --kv-dtype=fp8 needs kernels that only CUDA devices")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--quantize", "--kv-dtype"])
@pytest.mark.parametrize("command", ["generate", "play"])
def test_another_word_has_exit_code_2(command: str, option: str) -> None:
    assert CliRunner().invoke(app, [command, option, "int3"]).exit_code == 2
