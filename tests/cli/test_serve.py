"""`inferno serve`: from the command line to an answer, and to a gentle end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai import OpenAI

from inferno.extras import install_command
from tests.cli.terminal import CTRL_C, Terminal
from tests.patience import PATIENCE

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
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_a_script_takes_the_models_place(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"answers": [{"token_ids": [300, 301]}], "vocab_size": 2048}')
    with serving("demo", "--fake-model", str(script)) as (_, url):
        client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        answer = client.completions.create(model="demo", prompt="a")
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Answers without a model, which are there at once."""
    path = tmp_path / "script.json"
    path.write_text('{"answers": [{"token_ids": [300, 301]}], "vocab_size": 2048}')
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_terminal_gets_lines_for_people_and_an_address_to_open(script: str, host: str) -> None:
    asked = ["serve", "demo", "--fake-model", script, "--port", "0", "--host", host]
    with Terminal(*asked, columns=200) as terminal:
        terminal.wait_for("INFO Open http://127.0.0.1:")
        found = re.search(r"Open (http://127\.0\.0\.1:\d+) \(Ctrl\+C stops", terminal.text)
        assert found
        models = OpenAI(base_url=found[1] + "/v1", api_key="none", max_retries=0).models.list()
        assert [model.id for model in models.data] == ["demo"]
        terminal.wait_for("GET /v1/models 200")
        assert "{" not in terminal.text
        terminal.type(CTRL_C)
        assert terminal.wait_for_end() == 0


@pytest.mark.slow
def test_a_terminal_gets_json_where_it_is_asked_for(script: str) -> None:
    asked = ["serve", "demo", "--fake-model", script, "--port", "0", "--log-format", "json"]
    with Terminal(*asked, columns=400) as terminal:
        terminal.wait_for('"message": "ready"')
        assert "Open http" not in terminal.text
        assert all(json.loads(line) for line in terminal.text.splitlines())


@pytest.mark.slow
def test_a_pipe_gets_text_where_it_is_asked_for(script: str) -> None:
    command = [*COMMAND, "demo", "--fake-model", script, "--port", "0", "--log-format", "text"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("INFO    Open http://127.0.0.1:" in line for line in process.stderr)
        process.kill()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["no such model"], 1, "no such model"),
        (["~no-such-user/model"], 1, "can't be a folder"),
        (["demo", "--port", "99999"], 2, "--port"),
        (["demo", "--host", "not a host"], 2, "--host"),
        (["demo", "--api-key", ""], 2, "--api-key"),
        (["demo", "--device", "tpu"], 2, "--device"),
        (["demo", "--request-timeout", "0"], 2, "--request-timeout"),
    ],
)
def test_bad_options_are_one_line(options: list[str], code: int, said: str) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == code
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
    assert done.stderr == f"error: fastapi is not installed: {install_command('serve')}\n"
