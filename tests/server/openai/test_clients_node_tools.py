"""Shapes and tools by clients for Node: OpenAI's and the AI SDK, and what they send, by itself.

`make clients` installs them; where they aren't, the bodies that they sent are sent by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from inferno.client.process import ProcessClient
from inferno.options import EngineOptions
from inferno.text.model_text import ModelText
from tests.parrot import save_parrot
from tests.patience import PATIENCE
from tests.server.events import choices_of, events_of
from tests.server.hosting import Host, hosting
from tests.server.openai.test_clients_node import PACKAGES

SCRIPT = Path(__file__).with_name("node_tools.cjs")
NEEDED = ("openai", "zod", "ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai")
ANSWER = "It **rains**, so take an umbrella."
# As zod writes it for both clients.
CITY: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["Rome", "Oslo"]},
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}
_DAYS = {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}
PLACE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"place": {"type": "string"}, "days": _DAYS},
    "required": ["place", "days"],
    "additionalProperties": False,
}
EMPTY = {**PLACE, "properties": {}, "required": []}


@pytest.fixture(scope="module")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("parrot")
    save_parrot(folder)
    options = EngineOptions(model=folder, threads=1)
    with hosting(lambda: ProcessClient(options), ModelText(folder)) as host:
        yield host


@pytest.fixture(scope="module")
def said(parrot: Host) -> Any:
    """What the script has got of the server."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    missing = [name for name in NEEDED if not (PACKAGES / name).exists()]
    if missing:
        pytest.skip(f"Node packages are not installed ({', '.join(missing)}): make clients")
    done = subprocess.run(
        [node, SCRIPT, str(parrot.openai.base_url)],
        env={**os.environ, "NODE_PATH": str(PACKAGES)},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def is_rome(arguments: Any) -> bool:
    jsonschema.validate(arguments, PLACE)
    return bool(arguments["place"] == "Rome")


def test_openais_client_parses_answers_and_runs_tools(said: Any) -> None:
    made = said["openai"]
    jsonschema.validate(made["parsed"], CITY)
    jsonschema.validate(made["streamed"], CITY)
    assert is_rome(made["call"])
    assert made["results"] == ["It pours in Rome."]
    assert made["run"] == [ANSWER, ANSWER]


@pytest.mark.parametrize("provider", ["compatible", "sdk"])
def test_the_ai_sdk_makes_objects_and_calls_tools(said: Any, provider: str) -> None:
    made = said[provider]
    jsonschema.validate(made["object"], CITY)
    jsonschema.validate(made["streamed"], CITY)
    assert made["choice"] in ("x", "y")
    assert made["partial"] > 0
    assert made["text"] == [ANSWER, ANSWER]
    for calls in made["calls"]:
        assert [name for name, _ in calls] == ["get_weather"]
        assert is_rome(calls[0][1])
    assert set(made["required"]) <= {"a", "b"}
    assert made["required"]
    assert made["named"] == ["b"]
    assert made["document"]["name"] == "Rome"
    jsonschema.validate(made["document"], CITY)


# The bodies of these clients' requests (openai 6.49, ai 6.0), but for the model's name.


def tool(name: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def shaped(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"schema": schema, "strict": True, "name": name},
    }


def user(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def post(host: Host, **body: Any) -> Any:
    answer = host.http.post("/v1/chat/completions", json={"model": "demo", **body})
    assert answer.status_code == 200, answer.text
    return events_of(answer)[:-1] if body.get("stream") else answer.json()["choices"][0]


@pytest.mark.parametrize("name", ["city", "response"])
@pytest.mark.parametrize("stream", [None, False, True])
def test_a_schema_of_zod_is_kept_to(parrot: Host, name: str, stream: bool | None) -> None:
    fields: dict[str, Any] = {} if stream is None else {"stream": stream}
    if stream:
        fields["stream_options"] = {"include_usage": True}
    got = post(parrot, messages=user("hi"), response_format=shaped(CITY, name), **fields)
    if stream:
        assert got[-1]["usage"]["completion_tokens"] > 0
        text = "".join(each["delta"].get("content") or "" for each in choices_of(got))
    else:
        text = got["message"]["content"]
        assert got["message"]["refusal"] is None  # which openai's parse looks at
    jsonschema.validate(json.loads(text), CITY)


def test_enums_and_lists_of_the_ai_sdk_are_objects_around_them(parrot: Host) -> None:
    for schema in ({"type": "string", "enum": ["x", "y"]}, {"type": "array", "maxItems": 2}):
        wrapped = {**EMPTY, "properties": {"result": schema}, "required": ["result"]}
        got = post(
            parrot, messages=user("hi"), max_tokens=60, response_format=shaped(wrapped, "response")
        )
        jsonschema.validate(json.loads(got["message"]["content"]), wrapped)


@pytest.mark.parametrize(
    "more", [{"description": "", "strict": True}, {"description": "Of a place."}]
)
def test_a_tool_is_called_and_its_result_taken(parrot: Host, more: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "tools": [tool("get_weather", PLACE, **more)],
        "tool_choice": "auto",
        "stream": False,
    }
    got = post(parrot, messages=user("rain?"), **fields)
    [call] = got["message"]["tool_calls"]
    assert got["finish_reason"] == "tool_calls"
    assert is_rome(json.loads(call["function"]["arguments"]))
    # openai-node sends back the message as it came, the AI SDK one of its own.
    own = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "It pours in Rome."}
    for message in (got["message"], own):
        second = post(parrot, messages=[*user("rain?"), message, result], **fields)
        assert second["message"]["content"] == ANSWER


def test_calls_are_required_and_named(parrot: Host) -> None:
    tools = [tool("a", EMPTY), tool("b", EMPTY)]
    named = {"type": "function", "function": {"name": "b"}}
    for choice, names in (("required", {"a", "b"}), (named, {"b"})):
        got = post(parrot, messages=user("hi"), tools=tools, tool_choice=choice)
        calls = [call["function"] for call in got["message"]["tool_calls"]]
        assert {each["name"] for each in calls} <= names
        assert all(json.loads(each["arguments"]) == {} for each in calls)


def test_a_format_beside_tools_is_of_the_document(parrot: Host) -> None:
    fields: dict[str, Any] = {
        "tools": [tool("get_weather", PLACE, description="Of a place."), tool("get_time", EMPTY)],
        "tool_choice": "auto",
        "response_format": shaped(CITY, "response"),
    }
    got = post(parrot, messages=user("document"), **fields)
    document = json.loads(got["message"]["content"])
    jsonschema.validate(document, CITY)
    assert document["name"] == "Rome"
    got = post(parrot, messages=user("again"), **fields)
    assert [call["function"]["name"] for call in got["message"]["tool_calls"]] == ["get_time"]
    assert got["message"]["content"] is None
