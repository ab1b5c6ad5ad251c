"""Calls that are forced, or stand beside a document: what a model writes keeps to the schemas."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from inferno.client.process import ProcessClient
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.text.model_text import ModelText
from tests.server.events import choices_of, events_of
from tests.server.hosting import Host, hosting

SCHEMAS: dict[str, Any] = {
    "paint": {
        "type": "object",
        "properties": {
            "color": {"enum": ["red", "blue"]},
            "layers": {"type": "integer", "minimum": 1, "maximum": 3},
        },
        "required": ["color", "layers"],
        "additionalProperties": False,
    },
    "wait": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]
# As Hermes has it, though the model never heard of that.
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    "{# <tool_call> arguments #}"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("caller")
    shutil.copytree(MODEL_FOLDERS["demo"], folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    options = EngineOptions(model=MODEL_FOLDERS["demo"], threads=1)
    with hosting(lambda: ProcessClient(options), ModelText(folder)) as host:
        yield host


def calls_of(host: Host, **fields: Any) -> list[tuple[str, Any]]:
    answer = host.chat("Paint the door.", tools=TOOLS, max_tokens=300, **fields)
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] in (None, "")
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    return [(each["name"], json.loads(each["arguments"])) for each in functions]


@pytest.mark.parametrize("seed", range(3))
def test_a_required_call_keeps_to_a_tool_and_its_schema(host: Host, seed: int) -> None:
    calls = calls_of(host, tool_choice="required", parallel_tool_calls=False, seed=seed)
    [(name, arguments)] = calls
    jsonschema.validate(arguments, SCHEMAS[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_named_tool_is_the_one_that_is_called(host: Host, name: str) -> None:
    choice = {"type": "function", "function": {"name": name}}
    [(called, arguments)] = calls_of(host, tool_choice=choice, seed=1)
    assert called == name
    jsonschema.validate(arguments, SCHEMAS[name])


def test_a_forced_call_streams_as_it_is_told_whole(host: Host) -> None:
    fields = {"tool_choice": "required", "parallel_tool_calls": False, "seed": 7}
    [(name, arguments)] = calls_of(host, **fields)
    stream = host.chat("Paint the door.", tools=TOOLS, max_tokens=300, stream=True, **fields)
    deltas = [
        call
        for choice in choices_of(events_of(stream)[:-1])
        for call in choice["delta"].get("tool_calls", [])
    ]
    assert deltas[0]["function"]["name"] == name
    assert json.loads("".join(call["function"]["arguments"] for call in deltas)) == arguments


DOOR = {
    "type": "object",
    "properties": {"is_red": {"type": "boolean"}, "size": {"enum": ["small", "large"]}},
    "required": ["is_red", "size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "door", "schema": DOOR}}


def test_an_answer_with_a_shape_is_a_document_or_calls(host: Host) -> None:
    [begins] = host.text.tokenizer.encode("<", add_special_tokens=False)
    fields = {"tools": TOOLS, "response_format": FORMAT, "max_tokens": 300, "seed": 5}
    document = host.chat("Paint the door.", logit_bias={str(begins): -100.0}, **fields)
    [choice] = document.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]
    jsonschema.validate(json.loads(choice["message"]["content"]), DOOR)
    call = host.chat("Paint the door.", logit_bias={str(begins): 100.0}, **fields)
    [choice] = call.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    for each in choice["message"]["tool_calls"]:
        name, arguments = each["function"]["name"], each["function"]["arguments"]
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])


def test_a_choice_decides_between_the_document_and_the_call(host: Host) -> None:
    fields = {"tools": TOOLS, "response_format": FORMAT, "max_tokens": 300, "seed": 5}
    none = host.chat("Paint the door.", tool_choice="none", **fields).json()["choices"][0]
    jsonschema.validate(json.loads(none["message"]["content"]), DOOR)
    required = host.chat("Paint the door.", tool_choice="required", **fields).json()["choices"][0]
    assert required["finish_reason"] == "tool_calls"


def test_a_shape_beside_tools_that_can_not_be_kept_to_names_its_field(host: Host) -> None:
    schema = {"type": "array", "uniqueItems": True}
    format = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    answer = host.chat("Paint.", tools=TOOLS, response_format=format)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"
    assert "uniqueItems" in answer.json()["error"]["message"]
