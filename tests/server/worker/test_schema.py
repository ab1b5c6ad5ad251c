"""docs/worker.schema.json is the protocol: what is sent and what is taken is valid by it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.http_post import parse_target
from inferno.server.worker.messages import EVENTS, protocol_schema
from inferno.server.worker.settings import Callback
from tests.server.http.serving import wait_until
from tests.server.worker.hosting import Host, answers, receiving, working

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs" / "worker.schema.json").read_text())


def is_valid(value: Any, kind: str) -> bool:
    schema = {**SCHEMA, "$ref": f"#/$defs/{kind}"}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_the_document_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_worker_schema.py"))["make_document"]()
    assert json.loads(made) == SCHEMA, "run scripts/make_worker_schema.py"
    jsonschema.Draft202012Validator.check_schema(protocol_schema())


def test_events_are_valid() -> None:
    dies = Answer(token_ids=(300, 301), delay=0.01, dies_after=1)
    script = Script(answers=(Answer(), dies), vocab_size=2048, max_model_len=1024)
    with working(lambda: ScriptedClient(script)) as host:
        events = host.execute(job_id="a", prompt="naïve 🔥", max_tokens=99)
        events += host.execute(job_id="b", prompt="x")
    assert {name for name, _ in events} == EVENTS.keys()
    for name, data in events:
        assert is_valid(data, EVENTS[name].__name__), (name, data)
        assert not is_valid({**data, next(iter(data)): {}}, EVENTS[name].__name__)


def test_the_ready_message_is_valid() -> None:
    with receiving(answers(200)) as receiver:
        wanted = Callback(target=parse_target(receiver.url(), option="--x"))
        with working(lambda: ScriptedClient(Script(vocab_size=2048)), wanted):
            wait_until(lambda: bool(receiver.posts))
        [message] = receiver.posts
    assert is_valid(message, "Ready")
    assert not is_valid({**message, "worker_id": 1}, "Ready")
    assert not is_valid({**message, "device": {"kind": "tpu", "index": 0}}, "Ready")


@pytest.mark.parametrize(
    ("kind", "job"),
    [
        ("PromptJob", {"prompt": "a"}),
        ("PromptJob", {"prompt": [1, 2], "max_tokens": 3, "stop": ["x"], "seed": 4}),
        ("PromptJob", {"prompt": "a", "n": 2}),
        ("PromptJob", {"prompt": ["a", "b"]}),
        ("PromptJob", {"prompt": "a", "stream": True, "unknown": 1}),
        ("PromptJob", {"prompt": "a", "temperature": -1}),
        ("PromptJob", {"prompt": "a", "logit_bias": {"5": 1000}}),
        ("PromptJob", {"prompt": "a", "top_p": 0.5, "top_k": 10, "min_p": 0.1}),
        ("ChatJob", {"messages": [{"role": "user", "content": "a"}]}),
        ("ChatJob", {"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}),
        ("ChatJob", {"messages": []}),
    ],
)
def test_a_job_is_taken_if_it_is_valid(echo: Host, kind: str, job: dict[str, Any]) -> None:
    whole = {"job_id": "a", **job}
    status = echo.http.post("/execute", json=whole).status_code
    assert (status == 200) == is_valid(whole, kind)
    assert not is_valid(job, kind)
