"""`inferno worker` and its three commands: from the command line to a job, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.options import WorkerOptions
from inferno.server.settings import ServerSettings
from inferno.server.worker.settings import worker_settings
from tests.patience import PATIENCE
from tests.server.worker.hosting import answers, events_of, receiving

URL = "http://127.0.0.1:9/"
WHO = ["--worker-id", "w", "--model", "demo", "--port", "0"]
GOOD = [*WHO, "--callback-url", URL, "--device", "cpu"]


def bound(device: str, *arguments: str) -> list[str]:
    """The command that is named for a device, as its entry point runs it."""
    program = f"from inferno.cli import worker_{device} as main; main()"
    return [sys.executable, "-c", program, *arguments]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--worker-id", "a b"], "error: --worker-id must be 1 to 128 letters"),
        (["--worker-id", ""], "error: --worker-id must be"),
        (["--callback-url", "a.b"], "error: --callback-url must be an http:// or https:// URL"),
        (["--callback-url", "ftp://a"], "error: --callback-url must be"),
        (["--callback-url", "http://u:p@a"], "error: --callback-url must be"),
        (["--callback-attempts", "0"], "error: --callback-attempts must be an integer"),
        (["--callback-timeout", "nan"], "error: --callback-timeout must be a number"),
        (["--cuda-device", "0"], "error: --cuda-device 0 goes with --device cuda, not with"),
        (["--metal-device", "0"], "error: --metal-device 0 goes with --device metal, not with"),
        (["--device", "metal", "--metal-device", "1"], "error: --metal-device must be 0"),
        (["--device", "cuda", "--cuda-device", "-1"], "error: --cuda-device must be an integer"),
        (["--host", "0.0.0.0"], "error: --host 0.0.0.0 doesn't say where others reach"),
        (["--uri", "here"], "error: --uri must be an http:// or https:// URL"),
        (["--port", "70000"], "error: --port must be an integer"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], said: str) -> None:
    given = ["worker", *GOOD, "--model", "/no/such/model", *arguments]
    result = CliRunner().invoke(app, given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1


def test_a_model_that_is_not_there_has_exit_code_1() -> None:
    result = CliRunner().invoke(app, ["worker", *GOOD, "--model", "/no/such/model"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: there is no folder")


@pytest.mark.parametrize("missing", ["--worker-id", "--model", "--port", "--callback-url"])
def test_nothing_is_guessed(missing: str) -> None:
    place = GOOD.index(missing)
    result = CliRunner().invoke(app, ["worker", *GOOD[:place], *GOOD[place + 2 :]])
    assert result.exit_code == 2
    assert missing in result.stderr


@pytest.mark.parametrize(
    ("kind", "device", "said"),
    [
        (
            "cuda",
            ["--device=cpu"],
            "inferno-worker-cuda has its device; leave --device cpu out, or name a number, such as "
            "--device cuda:1",
        ),
        ("cpu", ["--device", "cuda:1"], "inferno-worker-cpu has its device; leave --device cuda:1"),
        ("cuda", ["--device", "cuda:x"], "--device must be cpu, cuda, cuda:N or metal"),
        (
            "cuda",
            ["--device", "cuda:1", "--cuda-device", "0"],
            "--cuda-device 0 goes with --device cuda, not with --device cuda:1",
        ),
    ],
)
def test_a_bound_command_takes_no_other_device(kind: str, device: list[str], said: str) -> None:
    model = ["--model", "/no/such/model"]
    command = bound(kind, *WHO, "--callback-url", URL, *model, *device)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "engine_device", "index"),
    [
        ({"device": "cuda:1"}, "cuda:1", 1),
        ({"device": "cuda"}, "cuda:0", 0),
        ({"device": "cuda", "cuda_device": 2}, "cuda:2", 2),
        ({"device": "cuda:3", "cuda_device": 3}, "cuda:3", 3),
        ({"device": "cpu"}, "cpu", None),
        ({"device": "metal"}, "mps", 0),
    ],
)
def test_a_worker_computes_on_the_device_that_it_names(
    given: dict[str, Any], engine_device: str, index: int | None
) -> None:
    options = WorkerOptions(worker_id="w", callback_url=URL, **given)
    settings = worker_settings(ServerSettings(), options)
    assert (settings.engine_device, settings.device_index) == (engine_device, index)
    assert settings.device == given["device"].partition(":")[0]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "metal"])
def test_a_bound_command_refuses_to_start_without_its_device(device: str) -> None:
    if torch.cuda.is_available() if device == "cuda" else torch.backends.mps.is_available():
        pytest.skip(f"this machine has {device}")
    with receiving(answers(200)) as receiver:
        command = bound(device, *WHO, "--callback-url", receiver.url())
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert receiver.num_connections == 0
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert last.startswith(f"error: {'mps' if device == 'metal' else 'cuda:0'} was asked for, but")
    assert last.endswith("use --device cpu. That is `inferno-worker-cpu`.")


def test_a_worker_announces_itself_works_and_stops(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"answers": [{"token_ids": [300, 301]}], "vocab_size": 2048}')
    with receiving(answers(200)) as receiver:
        command = bound("cpu", *WHO, "--callback-url", receiver.url(), "--fake-model", str(script))
        environment = {**os.environ, "INFERNO_API_KEY": "secret"}
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if json.loads(line)["message"] == "callback taken":
                        break
                [ready] = receiver.posts
                assert (ready["worker_id"], ready["model"]["name"]) == ("w", "demo")
                job = {"job_id": "a", "prompt": "x"}
                refused = httpx.post(ready["uri"] + "/execute", json=job)
                assert refused.status_code == 401
                key = {"authorization": "Bearer secret"}
                told = httpx.post(ready["uri"] + "/execute", json=job, headers=key)
                assert events_of(told.text)[-1][1]["counts"]["completion_tokens"] == 2
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


def test_the_commands_bring_no_torch() -> None:
    program = "import sys, inferno.server.worker.start; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.slow
def test_the_engines_process_starts_before_the_servers_imports() -> None:
    program = (
        "import sys, inferno.client.spawned as spawned; start = spawned.spawn\n"
        "def told(log):\n"
        "    print('fastapi' in sys.modules, file=sys.stdout, flush=True)\n"
        "    return start(log)\n"
        "spawned.spawn = told\n"
        "from inferno.cli import worker_cpu as main; main()"
    )
    command = [sys.executable, "-c", program, *WHO, "--callback-url", URL, "--threads", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(json.loads(line))
                if lines[-1]["message"] == "ready":
                    break
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
            assert process.stdout.read() == "False\n"
            assert {line["process"] for line in lines} == {"server", "engine"}
        finally:
            process.kill()
