"""`inferno doctor` on this machine, on invented ones, and on ones where nothing can be read."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from inferno import ops
from inferno.cli import doctor, doctor_facts
from inferno.cli.app import app
from inferno.cli.doctor import describe
from inferno.cli.doctor_facts import gather_facts, known_features, probe_torch
from inferno.cli.doctor_problems import find_problems
from inferno.compiled_kernels import why_not
from inferno.engine.execution import probe
from tests.docs.pages import rows, section
from tests.engine.execution.gpus import fake_gpus
from tests.patience import PATIENCE

INFERNO = [sys.executable, "-m", "inferno"]


# A machine with one GPU and no problem.
HEALTHY = """{
    "versions": {
        "inferno": "1.0", "python": "3.12.0", "torch": "2.9", "numpy": "2", "tokenizers": "0.22",
        "huggingface_hub": "1", "httpx": "0",
        "jinja2": "3", "typer": "1", "rich": "14", "prompt_toolkit": "3",
        "markdown-it-py": "4",
        "triton": "3.6.0", "transformers": null
    },
    "system": {
        "os": "Linux", "release": "6.1", "machine": "x86_64", "libc": "glibc 2.36",
        "nvidia_driver": "550.54.14"
    },
    "cpu": {
        "model": "Xeon", "cores": 16, "hardware_threads": 32,
        "allowed_cores": 8, "allowed_hardware_threads": 16, "quota": null,
        "features": {"avx2": true, "amx": false}, "vector_code": "AVX2"
    },
    "threads": {"inferno": 8, "torch": 8, "environment": {}},
    "memory": {"total_bytes": 64e9, "available_bytes": 60e9, "limit_bytes": null},
    "torch_error": null,
    "cuda_build": "12.8",
    "cuda": {
        "why_not": null, "why_no_kernels": null, "triton_cache": "/root/.triton/cache",
        "visible_devices": null
    },
    "devices": [
        {
            "name": "cpu", "model": null, "total_bytes": null, "available_bytes": 60e9,
            "capability": null, "error": null, "bandwidth": null, "why_unmeasured": null
        },
        {
            "name": "cuda:0", "model": "H100", "total_bytes": 80e9, "available_bytes": 79e9,
            "capability": "9.0", "error": null, "bandwidth": 2.9e12, "why_unmeasured": null
        }
    ],
    "kernels": {"isa": "avx512_bf16", "why_not": null},
    "ops": {"cpu": {"linear": "reference"}, "cuda": {"linear": "triton"}},
    "models": {
        "embedded": ["demo"], "cache": "/cache", "cache_is_writable": true,
        "cache_free_bytes": 90e9, "is_offline": false
    },
    "terminal": {
        "is_terminal": true, "encoding": "UTF-8", "columns": 80, "term": "xterm",
        "has_colour": true
    }
}"""


@pytest.fixture
def healthy() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(HEALTHY)
    return facts


def changed(facts: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy in which one value, named from the outside in, is another."""
    result = copy.deepcopy(facts)
    inner: Any = result
    *parents, last = path.split(".")
    for key in parents:
        inner = inner[int(key)] if key.isdecimal() else inner[key]
    inner[last] = value
    return result


def keys(value: object) -> object:
    """The shape of an object: names all the way down, where names are fixed."""
    if not isinstance(value, dict):
        return None
    free = ("environment", "features", "ops")
    return {name: None if name in free else keys(inner) for name, inner in value.items()}


def test_a_healthy_machine_has_no_problem(healthy: dict[str, Any]) -> None:
    assert find_problems(healthy) == []
    text = "\n".join(describe(healthy, []))
    for said in (
        "Xeon",
        "16 cores, 32 threads",
        "8 cores, 16 threads",
        "H100",
        "80.0 GB",
        "9.0",
        "copies 2900.0 GB/s",
        "CUDA 12.8; kernels by Triton 3.6.0, kept in",
        "CPU kernels: avx512_bf16",
        "triton",
    ):
        assert said in " ".join(text.split())
    assert text.endswith("problems  none")


@pytest.mark.parametrize(
    ("path", "value", "said", "is_fatal"),
    [
        ("versions.jinja2", None, "missing packages: jinja2", True),
        ("torch_error", "ImportError: no libc10", "no libc10", True),
        ("models.embedded", [], "embedded", False),
        ("cuda_build", None, "this PyTorch has no CUDA", False),
        ("devices", [], "finds no GPU", False),
        ("devices.1.capability", "7.5", "cuda:0, H100, has compute capability 7.5", False),
        ("devices.1.available_bytes", 3e9, "cuda:0 has 3.0 of its 80.0 GB free", False),
        ("cuda.why_no_kernels", "Triton is absent: install it", "used: Triton is absent", False),
        ("devices.1.error", "out of memory", "cuda:0 does not answer: out of memory", False),
        ("cpu.features", {"avx2": False}, "AVX2", False),
        ("kernels.why_not", "they were not built", "as they were not built", False),
        ("kernels.why_not", "INFERNO_KERNELS=reference is set", "=reference is set", False),
        ("threads.environment", {"OMP_THREAD_LIMIT": "2"}, "OMP_THREAD_LIMIT", False),
        ("threads.environment", {"OMP_PROC_BIND": "close"}, "OMP_PROC_BIND", False),
        ("memory.limit_bytes", 2 * 10**9, "grants 2.0 of the machine's 64.0 GB", False),
        ("memory.available_bytes", 10**8, "only 0.1 GB", False),
        ("models.cache_is_writable", False, "/cache is not writable", False),
        ("models.cache_free_bytes", 10**9, "1.0 GB left", False),
        ("models.cache_free_bytes", 0, "0.0 GB left", False),
        ("terminal.encoding", "ascii", "ascii", False),
        ("terminal.encoding", "no-such", "no-such", False),
    ],
)
def test_each_problem_is_found_and_has_a_cure(
    healthy: dict[str, Any], path: str, value: object, said: str, is_fatal: bool
) -> None:
    facts = changed(healthy, path, value)
    [problem] = find_problems(facts)
    assert said in problem.what
    assert problem.cure
    assert problem.is_fatal == is_fatal
    shown = " ".join(" ".join(describe(facts, [problem])).split())
    assert f"{problem.what} -> {problem.cure}" in shown


def test_without_a_gpu_it_says_why(healthy: dict[str, Any]) -> None:
    facts = changed(healthy, "devices", healthy["devices"][:1])
    facts = changed(facts, "cuda.why_not", "CUDA_VISIBLE_DEVICES is empty: unset it")
    [problem] = find_problems(facts)
    assert problem.what.endswith("the driver 550.54.14: CUDA_VISIBLE_DEVICES is empty")
    assert problem.cure == "unset it"
    text = "\n".join(describe(facts, []))
    assert "gpu       none: CUDA_VISIBLE_DEVICES is empty: unset it" in text
    facts = changed(facts, "system.nvidia_driver", None)
    assert find_problems(facts) == []  # nobody misses one


def test_gpus_that_are_chosen_and_kernels_that_are_not_there_are_told(
    healthy: dict[str, Any],
) -> None:
    shown = " ".join(describe(changed(healthy, "cuda.visible_devices", "1"), []))
    assert "CUDA 12.8, as CUDA_VISIBLE_DEVICES shows them; kernels by Triton" in " ".join(
        shown.split()
    )
    lacking = changed(healthy, "cuda.why_no_kernels", "Triton is absent: install it")
    assert "gpu       no kernels: Triton is absent: install it" in list(describe(lacking, []))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("threads.environment", {"OMP_NUM_THREADS": "64,2", "OMP_PROC_BIND": "false"}),
        ("threads.environment", {"OMP_NUM_THREADS": "", "OMP_THREAD_LIMIT": "x"}),
        ("memory.limit_bytes", 64 * 10**9),
        ("cpu.features", None),
        ("terminal.encoding", None),
        ("terminal.encoding", "utf8"),
        ("models.cache_free_bytes", None),
    ],
)
def test_what_is_usual_or_unknown_is_no_problem(
    healthy: dict[str, Any], path: str, value: object
) -> None:
    assert find_problems(changed(healthy, path, value)) == []


@pytest.mark.parametrize(
    ("variables", "note"),
    [
        ({"OMP_NUM_THREADS": "1"}, "note: inferno goes by --threads, not by OMP_NUM_THREADS=1"),
        ({"MKL_NUM_THREADS": "64"}, "note: inferno goes by --threads, not by MKL_NUM_THREADS=64"),
        ({"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": ""}, None),
    ],
)
def test_a_variable_that_inferno_does_not_follow_is_noted(
    healthy: dict[str, Any], variables: dict[str, str], note: str | None
) -> None:
    lines = [
        line.strip() for line in describe(changed(healthy, "threads.environment", variables), [])
    ]
    assert [line for line in lines if line.startswith("note")] == ([note] if note else [])


@pytest.mark.parametrize("cache", ["/proc", "/proc/no/such", "{}/file", "{}/file/hub"])
def test_a_cache_that_no_file_can_be_made_in_is_not_writable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor_facts, "probe_torch", lambda _: {})
    monkeypatch.setenv("INFERNO_HOME", cache.format(tmp_path))
    assert not gather_facts()["models"]["cache_is_writable"]
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "new" / "home"))
    assert gather_facts()["models"]["cache_is_writable"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_where_nothing_can_be_read_all_is_unknown(
    healthy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_facts, "probe_torch", lambda _: {"error": "killed"})
    facts = gather_facts(tmp_path)
    assert keys(facts) == keys(healthy)
    assert facts["cpu"]["model"] is None
    assert facts["memory"] == {"total_bytes": None, "available_bytes": None, "limit_bytes": None}
    text = "\n".join(describe(facts, find_problems(facts)))
    assert "unknown, of which unknown can be allocated" in text
    assert "FATAL: PyTorch does not work: killed" in text


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise ImportError('no libc10.so')", "ImportError: no libc10.so"),
        ("import os; os.kill(os.getpid(), 4)", "exit code -4"),
        ("print('hello')", "exit code 0"),
        ("print('{}'); print([])", "no sensible answer"),
    ],
)
def test_a_probe_that_fails_is_an_error_and_no_crash(program: str, said: str) -> None:
    assert said in probe_torch([sys.executable, "-c", program], seconds=PATIENCE)["error"]


def test_a_probe_that_hangs_is_an_error() -> None:
    hangs = [sys.executable, "-c", "import time; time.sleep(1000)"]
    assert "no answer within 1 seconds" in probe_torch(hangs, seconds=1)["error"]


def test_a_probe_that_cannot_start_is_an_error() -> None:
    assert "could not be started" in probe_torch(["/no/such/python"])["error"]


def test_features_go_by_their_usual_names() -> None:
    intel = known_features(frozenset({"avx2", "amx_tile"}), "x86_64")
    assert intel is not None
    assert (intel["avx2"], intel["amx"], intel["avx512f"]) == (True, True, False)
    assert known_features(frozenset({"asimd"}), "aarch64") == {
        "neon": True,
        "dotprod": False,
        "i8mm": False,
        "bf16": False,
        "sve": False,
    }
    assert known_features(frozenset(), "x86_64") is None


def test_ops_are_named_by_who_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernels:
        """A backend of its own for `linear` alone."""

        __name__ = "inferno.ops.cpu"

        def __getattr__(self, name: str) -> object:
            return object() if name == "linear" else getattr(ops.reference, name)

    monkeypatch.setitem(ops.BACKENDS, "cpu", Kernels())
    found = probe.serving("cpu")
    assert found["linear"] == "cpu"
    assert found["attention"] == "reference"
    assert set(found) == set(ops.FORWARD_OPS)


def run(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*INFERNO, "doctor", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
    )


def test_the_report_on_this_machine_fits_a_screen() -> None:
    result = run()
    assert result.returncode == 0, result.stdout
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) <= 40
    assert max(map(len, result.stdout.splitlines())) <= 90


def test_json_is_one_object_with_fixed_names(tmp_path: Path, healthy: dict[str, Any]) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('a file of the working folder was run')")
    result = run("--json", cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    found = json.loads(result.stdout)
    assert isinstance(found.pop("problems"), list)
    assert keys(found) == keys(healthy)
    assert found["devices"][0].keys() == healthy["devices"][0].keys()


def test_kernels_that_are_left_out_are_told() -> None:
    result = run("--json", INFERNO_KERNELS="reference")
    found = json.loads(result.stdout)
    assert found["kernels"] == {"isa": None, "why_not": "INFERNO_KERNELS=reference is set"}
    assert any(problem["cure"] == "unset INFERNO_KERNELS" for problem in found["problems"])
    lines = " ".join(run(INFERNO_KERNELS="reference").stdout.split())
    assert "CPU kernels: none, as INFERNO_KERNELS=reference is set" in lines
    assert json.loads(run("--json").stdout)["kernels"]["isa"] == native_isa()


def native_isa() -> str | None:
    return None if why_not() else ops.isa(torch.device("cpu"))


def test_no_home_and_a_broken_pytorch_end_in_a_report(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libc10.so: no such file')")
    (tmp_path / "file").touch()
    result = run(
        PYTHONPATH=str(tmp_path),
        HOME="/no/such/home",
        INFERNO_HOME=str(tmp_path / "file" / "home"),
        PYTHONIOENCODING="latin-1",
    )
    assert result.returncode == 1
    assert result.stderr == ""
    assert "FATAL: PyTorch does not work: ImportError: libc10.so" in result.stdout
    assert "lacks most characters" in result.stdout
    assert "is not writable" in " ".join(result.stdout.split())


def test_the_page_has_every_key(healthy: dict[str, Any]) -> None:
    table = rows(section("docs/doctor.md", "## The keys of --json"))
    documented = {name for row in table for name in re.findall(r"`([\w.]+)`", row[0])}
    inner = {
        f"{name}.{key}"
        for name, value in healthy.items()
        for key in (value if isinstance(value, dict) and name not in ("versions", "ops") else ())
    }
    outer = {name for name in healthy if not any(key.startswith(f"{name}.") for key in inner)}
    assert documented == inner | outer | {"problems"}


def test_doctor_is_a_command_with_help() -> None:
    assert "--json" in CliRunner().invoke(app, ["doctor", "--help"]).stdout


def test_the_bandwidth_of_each_gpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = fake_gpus(monkeypatch)
    gpus.capabilities = [(9, 0), (8, 0)]
    monkeypatch.setattr(probe, "copy_bandwidth", lambda device: 1e12 * (1 + device.index))
    found = {each.name: each.bandwidth for each in probe._devices(measures_all=False)}
    assert found == {"cpu": None, "cuda:0": 1e12, "cuda:1": 2e12}
    gpus.problem_of_one = RuntimeError("CUDA error: busy\nmore")
    assert [each.error for each in probe._devices(measures_all=True)][1:] == [
        "CUDA error: busy"
    ] * 2


def test_a_gpu_without_room_for_the_measurement_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_gpus(monkeypatch)

    def find_no_room(_: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(probe, "copy_bandwidth", find_no_room)
    _, gpu = probe._devices(measures_all=True)
    assert (gpu.model, gpu.error, gpu.bandwidth) == ("Fake H100", None, None)
    assert "copies not measured: its memory has no room" in doctor._device(asdict(gpu))


def test_a_gpu_that_others_use_is_measured_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = fake_gpus(monkeypatch)
    gpus.free = gpus.total // 2
    monkeypatch.setattr(probe, "copy_bandwidth", lambda _device: 1e12)
    _, gpu = probe._devices(measures_all=False)
    assert gpu.bandwidth is None
    assert "not measured: others hold 4" in doctor._device(asdict(gpu))
    assert "; see --measure" in doctor._device(asdict(gpu))
    _, gpu = probe._devices(measures_all=True)
    assert gpu.bandwidth == 1e12


def test_a_gpu_that_fails_while_it_is_measured_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_gpus(monkeypatch)

    def fail(_: object) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(probe, "copy_bandwidth", fail)
    _, gpu = probe._devices(measures_all=True)
    assert gpu.error == "CUDA error: an illegal memory access was encountered"


def test_measuring_without_a_gpu_is_no_error() -> None:
    result = run("--measure")
    assert result.returncode == 0, result.stdout
    refused = run("demo", "--measure")
    assert refused.returncode == 2
    assert "--measure goes without a MODEL" in refused.stderr
