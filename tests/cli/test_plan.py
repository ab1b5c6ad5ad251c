"""`inferno plan`: within a second without PyTorch, in words and in JSON, with what would fit."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from inferno.cli import plan as command
from inferno.cli.app import app
from inferno.errors import InvalidRequest
from inferno.option_table import table
from inferno.options import EngineOptions
from inferno.plan import devices, speed
from inferno.plan.devices import Gpu
from inferno.plan.speed import MachineFigures
from tests.tiny import save_tiny_model

FIGURES = MachineFigures(
    cpu="a processor",
    threads=2,
    bandwidth=1e10,
    operations={"float32": 1e11, "bfloat16": 2e11, "int8": 4e11},
    measured_at=0.0,
)


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine was measured before."""
    monkeypatch.setattr(command, "kept_figures", lambda threads: FIGURES)
    monkeypatch.setattr(command, "available_memory", lambda: 10**10)
    monkeypatch.setattr(command, "find_gpus", list)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.output


def in_json(*arguments: object) -> dict[str, Any]:
    code, output = run(*arguments, "--json")
    values: dict[str, Any] = json.loads(output)
    assert code == (0 if values["fits"] else 1)
    return values


def test_a_plan_has_its_parts() -> None:
    code, output = run("demo")
    assert code == 0
    for part in ("weights, ", "KV cache, ", "workspace", "tokenizer", "total", "while loading"):
        assert part in output
    assert "tokens a second" in output
    assert "measured" in output


@pytest.mark.parametrize("option", ["--speculative-model", "--speculative"])
def test_a_draft_model_is_part_of_it(option: str) -> None:
    code, output = run("demo", option, "demo-draft")
    assert code == 0
    assert "draft's weights, " in output
    assert "draft's cache, " in output
    alone, both = in_json("demo"), in_json("demo", option, "demo-draft")
    assert alone["draft"] is None
    assert both["total"] > alone["total"]
    assert both["draft"]["num_blocks"] == alone["num_blocks"] == both["num_blocks"]
    # With a dtype, or else it would be another CPU's that is tight.
    tight = in_json("demo", option, "demo-draft", "--memory", "179MB", "--dtype", "bfloat16")
    assert not tight["fits"]
    assert tight["would_fit"][0]["options"] == "(no draft model)"


def test_numbers_add_up() -> None:
    values = in_json("demo", "--num-blocks", 100, "--max-model-len", 64)
    parts = ("base", "text", "weights_bytes", "workspace", "cache_bytes")
    assert values["total"] == sum(values[part] for part in parts)
    assert values["cache_bytes"] == 101 * 16 * values["token_bytes"]
    assert values["holds"]["64"] == 25  # requests of four blocks each
    assert values["speed"]["decode"] > values["speed"]["decode_full"] > 0


@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_a_token_reads_the_weights_that_are_kept(quantize: str) -> None:
    values = in_json("demo", "--quantize", quantize)
    expected = FIGURES.bandwidth / values["weights_bytes"]  # its embedding is the head too
    assert values["speed"]["decode"] == pytest.approx(expected)


def test_it_takes_the_same_options_as_an_engine() -> None:
    swap = in_json("demo", "--preemption", "swap", "--swap-space", 0.5)
    assert swap["num_host_blocks"] > 0
    with_graphs, without = in_json("demo"), in_json("demo", "--no-graphs", "--no-prefix-cache")
    assert without["workspace"] < with_graphs["workspace"]
    assert in_json("demo", "--load-format", "dummy")["text"] == 0
    for row in table(EngineOptions).values():
        assert row.facts.is_python_only or row.flag in run("--help")[1], row.name
    assert run("demo", "--memory", "1GB", "--device", "cuda")[0] != 0


def test_a_device_decides_whether_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Gpu("cuda:0", "A GPU", 2**33, 2**33), Gpu("cuda:1", "Full", 2**33, 2**20)]
    monkeypatch.setattr(command, "find_gpus", lambda: found)
    assert [run("demo", "--device", name)[0] for name in ("cpu", "cuda", "cuda:1")] == [0, 0, 1]
    code, output = run("demo", "--device", "cuda:2")
    assert code != 0
    assert "plans can be made here for cpu, cuda:0, cuda:1" in output


def test_a_share_of_gpus_stands_beside_options_of_the_cpu() -> None:
    share = ("--gpu-memory-utilization", 0.5)
    assert in_json("demo", "--memory", "1GB", *share)["fits"]
    assert run("demo", "--activations", "bfloat16", "--quantize", "int8", *share)[0] == 0
    code, output = run("demo", "--memory", "1GB", "--device", "cuda", *share)
    assert code != 0
    assert "device is cuda" in output


def test_what_does_not_fit_has_options_that_do(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model", hidden_size=512, intermediate_size=1024)
    whole = in_json(tmp_path / "model", "--num-blocks", 20_000, "--dtype", "float32")
    bound = f"{whole['total'] - whole['cache_bytes'] // 2}B"
    refused = in_json(
        tmp_path / "model", "--num-blocks", 20_000, "--dtype", "float32", "--memory", bound
    )
    assert not refused["fits"]
    assert refused["would_fit"]
    for one in refused["would_fit"]:
        flags = one["options"].split()
        # Later options win over earlier ones.
        again = in_json(tmp_path / "model", "--num-blocks", 20_000, "--memory", bound, *flags)
        assert again["fits"], one
    code, output = run(tmp_path / "model", "--num-blocks", 20_000, "--memory", bound)
    assert code == 1
    assert "--kv-dtype int8" in output


def test_a_model_that_is_nowhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run("no-such-owner/no-such-model")
    assert code == 1
    assert "Traceback" not in output


def test_a_plan_imports_no_torch() -> None:
    program = (
        "import sys; from inferno.cli import plan; from inferno.plan.speed import MachineFigures\n"
        "figures = MachineFigures(cpu='', threads=1, bandwidth=1.0, operations={}, measured_at=0)\n"
        "plan.kept_figures = lambda threads: figures; sys.argv = ['inferno', 'plan', 'demo']\n"
        "from inferno.cli.app import app\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_figures_are_kept_for_a_processor_and_its_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path))
    monkeypatch.setattr(speed, "_cpu_name", lambda: FIGURES.cpu)
    assert speed.kept_figures(2) is None
    speed._keep(FIGURES)
    assert speed.kept_figures(2) == FIGURES
    assert speed.kept_figures(3) is None
    monkeypatch.setattr(speed, "_cpu_name", lambda: "another")
    assert speed.kept_figures(2) is None


def measured_by(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineFigures:
    """What is found where this program measures the machine."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    return speed.measure_figures(2)


def test_figures_that_were_found_in_time_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speed, "_MOST_SECONDS", 5.0)
    program = """
print('{"bandwidth": 1e10}')
print('{"operations": {"float32": 1e11}}', flush=True)
import signal
signal.pause()"""
    found = measured_by(program, tmp_path, monkeypatch)
    assert (found.bandwidth, found.operations) == (1e10, {"float32": 1e11})
    assert speed.kept_figures(2) == found


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "print('no JSON')", "print('[]')"])
def test_a_machine_that_cannot_be_measured_is_not_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    found = measured_by(program, tmp_path, monkeypatch)
    assert found.bandwidth is None
    assert speed.kept_figures(2) == found
    monkeypatch.setattr(command, "kept_figures", speed.kept_figures)
    monkeypatch.setattr(command, "measure_figures", pytest.fail)
    code, output = run("demo", "--threads", 2)
    assert code == 0
    assert "this machine's speed could not be measured, as was tried just now" in output
    assert '"speed": null' in run("demo", "--threads", 2, "--json")[1]


def kept(**values: str) -> str:
    """Figures in JSON, some of which are other values."""
    known = {"cpu": '"x"', "threads": "2", "bandwidth": "1e9", "operations": "{}"}
    pairs = {**known, "measured_at": "1", **values}.items()
    return "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"cpu": 1}', "\0"),
        *(kept(operations="[]"), kept(threads="1e999"), kept(bandwidth="1" + "0" * 400)),
    ],
)
def test_damaged_figures_are_measured_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path))
    (tmp_path / "machine.json").write_text(content)
    assert speed.kept_figures(2) is None


def test_figures_that_find_no_room_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setenv("INFERNO_HOME", str(tmp_path))
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        speed._keep(FIGURES)
    assert list(tmp_path.iterdir()) == []


def test_an_age_is_in_words() -> None:
    def age(seconds: float) -> str:
        values = {**{name: getattr(FIGURES, name) for name in FIGURES.__slots__}}
        return MachineFigures(**{**values, "measured_at": time.time() - seconds}).age

    assert [age(s) for s in (1, 600, 3 * 3600, 5 * 86400)] == [
        *("just now", "10 minutes ago", "3 hours ago", "5 days ago"),
    ]


def test_each_gpu_has_a_table_of_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Gpu("cuda:0", "A GPU", 8 * 2**30, 8 * 2**30), Gpu("cuda:1", "Full", 2**33, 2**20)]
    monkeypatch.setattr(command, "find_gpus", lambda: found)
    code, output = run("demo", "--gpu-memory-utilization", 0.5)
    assert code == 0
    first, second = output.partition("On cuda:0, ")[2].split("On cuda:1, ")
    assert first.startswith("A GPU, of 8.59 GB, 8.59 GB of them free:")
    assert "share of the GPU           4.29 GB" in first
    for part in ("weights, bfloat16", "KV cache, ", "workspace", "CUDA, PyTorch"):
        assert part in first
    assert "It doesn't fit there." in second.partition("An estimate")[0]
    values = in_json("demo", "--gpu-memory-utilization", 0.5)
    assert [gpu["room"] for gpu in values["gpus"]] == [4 * 2**30, 2**20]
    assert [gpu["fits"] for gpu in values["gpus"]] == [True, False]
    assert [gpu["memory"] for gpu in values["gpus"]] == [2**33, 2**33]


def test_a_gpu_that_cannot_run_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise InvalidRequest("planted")

    monkeypatch.setattr(command, "find_gpus", lambda: [Gpu("cuda:0", "A GPU", 2**33, 2**33)])
    monkeypatch.setattr(devices, "make_plan", refuse)
    assert "it can't run there with these options" in run("demo")[1]
