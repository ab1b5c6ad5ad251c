"""`inferno bench` as a person or a script would use it: what is said, not how fast it is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inferno.bench.measurement import Job, Kind
from inferno.cli.app import app
from tests.bench.brief import measure_briefly
from tests.patience import PATIENCE

FEW = ["--threads", "1", "--prompt-tokens", "5", "--num-runs", "2"]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture
def bare(folder: Path, tmp_path: Path) -> Path:
    """A folder with a config.json and nothing else."""
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    return tmp_path


def test_latency_is_a_plain_table_where_piped(folder: Path) -> None:
    result = run("latency", "-m", folder, "--max-tokens", "3", *FEW)
    assert result.exit_code == 0, result.output
    for said in ("cold start", "first token", "decode", "tokens/s", "of the reading", "kernels"):
        assert said in result.stdout
    assert "random weights" not in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_a_draft_can_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_briefly(monkeypatch)
    one_run = ["--threads", "1", "--prompt-tokens", "5", "--num-runs", "1", "--max-tokens", "3"]
    result = run("latency", "-m", folder, "--speculative-model", folder, *one_run, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["runs"][0]["num_proposed"] >= 0


def test_throughput_of_random_weights_needs_only_a_config(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_briefly(monkeypatch)
    shape = ["--num-requests", "3", "--max-tokens", "2", "--max-num-seqs", "2"]
    how = ["--load-format", "dummy", "--dtype", "float32", "--kv-dtype", "bfloat16", "--seed", "4"]
    result = run("throughput", "-m", bare, *shape, *how, *FEW, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["bench"], found["model"], found["seed"]) == ("throughput", str(bare), 4)
    assert (found["num_requests"], found["prompt_tokens"], found["max_tokens"]) == (3, 5, 2)
    assert (found["dtype"], found["quantize"], found["kv_dtype"]) == ("float32", "none", "bfloat16")
    assert (found["load_format"], found["num_threads"]) == ("dummy", 1)
    assert found["limits"]["arithmetic"] == "float32"
    assert found["kernels"]
    assert len(found["runs"]) == 2
    assert all(value > 0 for value in found["measured"].values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["latency", "-m", "/no/such/model"], "error: there is no folder"),
        (["throughput", "-m", "/no/such/model"], "error: there is no folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], said: str) -> None:
    check_one_line(run(*arguments), 1, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["latency", "--revision", "main"], "error: revision"),
        (
            ["latency", "--prompt-tokens", "9999", "--threads", "1"],
            "error: --prompt-tokens 9999 and --max-tokens 64 don't fit into the model's context",
        ),
        (["throughput", "--threads", "0"], "error: --threads must be an integer from 1"),
    ],
)
def test_a_wrong_value_is_said_in_one_line(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_briefly(monkeypatch)
    check_one_line(run(*arguments), 2, said)


def check_one_line(result: Result, exit_code: int, said: str) -> None:
    assert result.exit_code == exit_code
    assert result.stdout == ""
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["latency", "--max-tokens", "1"],
        ["latency", "--num-runs", "0"],
        ["latency", "--quantize", "int3"],
        ["throughput", "--num-requests", "0"],
    ],
)
def test_a_wrong_option_has_exit_code_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_a_process_that_dies_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('out of luck')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("latency")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the process that is measured ended with exit code 1")
    assert result.stderr.endswith("out of luck\n")
    assert len(result.stderr.splitlines()) == 1


def test_the_measured_process_ends_with_its_parent(folder: Path) -> None:
    job = Job(
        kind=Kind.LATENCY,
        model=str(folder),
        options={"load_format": "safetensors", "threads": 1},
        num_requests=1,
        prompt_tokens=5,
        max_tokens=5,
        num_runs=10**9,
        seed=0,
    )
    subject = subprocess.Popen(
        [sys.executable, "-P", "-m", "inferno.bench.measured_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    patience = threading.Timer(PATIENCE, subject.kill)
    patience.start()
    with subject:
        assert subject.stdin is not None
        assert subject.stdout is not None
        subject.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        subject.stdin.flush()
        assert json.loads(subject.stdout.readline()) == {"first_token": True}
        subject.stdin.close()
        while subject.stdout.readline():
            pass
    patience.cancel()
    assert subject.returncode == 1


def test_the_command_brings_no_torch() -> None:
    program = "import sys, inferno.cli.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
