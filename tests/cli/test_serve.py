"""`inferno serve`: from the command line to an answer, and to a gentle end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai import OpenAI

COMMAND = [sys.executable, "-m", "inferno", "serve"]


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, once it is ready, and its URL."""
    command = [*COMMAND, *options, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = ""
        try:
            for line in process.stderr:
                entry = json.loads(line)
                if entry["message"] == "listening":
                    [url] = entry["at"]
                if entry["message"] == "ready":
                    break
            assert url, "it never listened"
            yield process, url
        finally:
            process.kill()


@pytest.mark.slow
def test_the_official_client_talks_to_the_command() -> None:
    with serving("demo", "--threads", "1", "--served-model-name", "small") as (process, url):
        client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        answer = client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "What is 2 plus 2?"}],
            temperature=0,
        )
        assert "4" in (answer.choices[0].message.content or "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.slow
def test_a_script_takes_the_models_place(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"answers": [{"token_ids": [300, 301]}], "vocab_size": 2048}')
    with serving("demo", "--fake-model", str(script)) as (_, url):
        client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        answer = client.completions.create(model="demo", prompt="a")
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["no such model"], "no such model"),
        (["demo", "--port", "99999"], "--port"),
        (["demo", "--host", "not a host"], "--host"),
        (["demo", "--api-key", ""], "--api-key"),
        (["demo", "--device", "tpu"], "device"),
        (["demo", "--request-timeout", "0"], "--request-timeout"),
    ],
)
def test_bad_options_are_one_line(options: list[str], said: str) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_without_the_extra_it_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['fastapi'] = None; sys.argv[1:] = ['serve', 'demo']; "
        "from inferno.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: fastapi is not installed; pip install 'inferno-engine[serve]'\n"
