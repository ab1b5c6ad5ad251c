"""`inferno verify` as a person or a script would use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inferno.cli.app import app
from inferno.extras import install_command
from tests.verify.faults import in_layers, set_on


def run(model: str | Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", str(model), "--threads", "1", *arguments])


def test_the_embedded_model_is_right() -> None:
    result = run("demo")
    assert result.exit_code == 0
    assert result.stdout.startswith("demo: ")
    assert "PASS: demo is computed as it should be; all 15 checkpoints" in result.stdout
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_a_mistake_ends_in_a_sentence_and_exit_code_1(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_layers(set_on("input_layernorm.eps", 1e-6))(monkeypatch)
    result = run(folder)
    assert result.exit_code == 1
    last = " ".join(result.stdout.split("FAIL: ")[-1].split())
    assert "The first of 15 checkpoints to differ is 1, RMSNorm, in layer 0" in last
    assert "Likely cause: eps differs: it is 1e-06 instead of 1e-05. Where: " in last
    assert "What to do: " in last


def test_json_has_everything(folder: Path) -> None:
    result = run(folder, "--json", "--layers", "0,-1", "-p", "hello there")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["passed"] is True
    assert found["prompt"] == "hello there"
    assert {row["layer"] for row in found["checkpoints"]} == {None, 0, 1, 2}
    [scores] = [
        measure
        for row in found["checkpoints"]
        if (row["number"], row["layer"]) == ("4", 2)
        for measure in row["measures"]
    ]
    assert scores["tap"] == "2.scores"
    assert 0 <= scores["max_error"] <= scores["tolerance"]


def test_a_saved_run_can_be_compared_with(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "laptop.safetensors"
    assert run(folder, "--save", str(path)).exit_code == 0
    result = run(folder, "--against", str(path))
    assert result.exit_code == 0
    assert "laptop.safetensors" in result.stdout


def test_quality_and_invariance_are_rows_of_their_own(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A little text to predict.")
    result = run(folder, "--quality", str(text), "--threshold", "0.01", "--invariance", "2")
    assert result.exit_code == 0, result.output
    assert "perplexity" in result.stdout
    assert "bit-identical" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--against", "llama.cpp"), "GGUF"),
        (("--against", "no-such-file"), "no-such-file"),
        (("--quantize", "int8", "--dtype", "float16"), "quantize=int8"),
        (("--threshold", "0.1"), "--threshold goes with --quality"),
        (("--quality", "no-such-text"), "no-such-text"),
        (("--layers", "0,x"), "--layers"),
        (("--layers", ""), "--layers"),
        (("--layers", "99"), "from 0 to 2"),
        (("--tolerance", "nan"), "tolerance"),
        (("--tolerance", "-1"), "tolerance"),
        (("--invariance", "-1"), "invariance"),
        (("--invariance", "1000000"), "invariance"),
        (("--save", "/no/such/folder/file"), "--save"),
        (("--prompt", "long " * 300), "--prompt"),
        (("--device", "toaster"), "device"),
        (("--device", "cuda", "--cuda", "--dtype", "float16", "--layers", "7"), ""),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run(folder, *arguments)
    assert result.exit_code == (1 if said == "no-such-file" else 2)
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_no_such_model_is_one_line() -> None:
    result = run("/no/such/model")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no folder")


def test_without_transformers_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inferno.verify.oracles.hf_transformers", None)
    result = run(folder, "--against", "transformers")
    assert result.exit_code == 1
    assert install_command("verify") in result.stderr
    assert run(folder).exit_code == 0


def test_the_command_brings_neither_torch_nor_transformers() -> None:
    program = "import sys, inferno.cli.verify; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_verification_against_the_reference_brings_no_transformers() -> None:
    program = (
        "import sys; from inferno.cli.app import app\n"
        "try: app(['verify', 'demo', '--threads', '1'])\n"
        "except SystemExit as end: sys.exit(end.code or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0
