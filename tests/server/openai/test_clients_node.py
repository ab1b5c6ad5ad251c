"""OpenAI's client for Node, unchanged, over a real socket; `make clients` installs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inferno import LLM, SamplingParams
from tests.patience import PATIENCE
from tests.server.hosting import Host

PACKAGES = Path(__file__).resolve().parents[3] / "build" / "node" / "node_modules"
SCRIPT = Path(__file__).with_name("node_client.cjs")


@pytest.fixture(scope="module")
def said(demo: Host) -> Any:
    """What the script has got of the server."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (PACKAGES / "openai").exists():
        pytest.skip("the Node package openai is not installed: make clients")
    done = subprocess.run(
        [node, SCRIPT, str(demo.openai.base_url)],
        env={**os.environ, "NODE_PATH": str(PACKAGES)},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_chat_and_its_stream_say_what_the_library_says(said: Any, llm: LLM) -> None:
    messages = [{"role": "user", "content": "What is 3 plus 4?"}]
    [expected] = llm.chat(messages, SamplingParams(temperature=0.0, max_tokens=50))
    [choice] = said["chat"]["choices"]
    assert choice["message"]["content"] == expected.text == said["streamed"]["text"] != ""
    assert said["streamed"]["usage"] == {
        **said["chat"]["usage"],
        "prompt_tokens_details": said["streamed"]["usage"]["prompt_tokens_details"],
    }


def test_seeds_repeat_and_choices_differ(said: Any) -> None:
    first, again, other = said["seeds"]
    assert first == again != other
    assert len(set(first)) == 3


def test_a_stop_ends_the_text(said: Any) -> None:
    whole = said["streamed"]["text"]
    assert said["stopped"]["message"]["content"] == whole[: whole.index(said["stop"])]
    assert said["stopped"]["finish_reason"] == "stop"


def test_logprobs_come_with_their_alternatives(said: Any) -> None:
    text = "".join(entry["token"] for entry in said["logprobs"])
    assert said["streamed"]["text"].startswith(text)
    assert text
    for entry in said["logprobs"]:
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"]
        assert len(entry["top_logprobs"]) == 2


def test_completions_and_models(said: Any, llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=4)
    assert said["completions"] == [each.text for each in llm.generate(["The sun", "A dog"], params)]
    assert said["models"] == ["demo"]


def test_errors_are_the_clients_own(said: Any) -> None:
    kind = "invalid_request_error"
    assert said["errors"] == {
        "value": {"name": "BadRequestError", "status": 400, "code": "invalid_value", "type": kind},
        "field": {
            "name": "BadRequestError",
            "status": 400,
            "code": "unknown_parameter",
            "type": kind,
        },
        "model": {"name": "NotFoundError", "status": 404, "code": "model_not_found", "type": kind},
    }
