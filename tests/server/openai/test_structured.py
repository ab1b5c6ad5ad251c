"""Answers with a shape: response_format and structured_outputs."""

from __future__ import annotations

import json
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from tests.server.hosting import Host

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 10},
        "size": {"enum": ["small", "large"]},
    },
    "required": ["city", "size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
HELLO = [{"role": "user", "content": "Name a city."}]


class City(BaseModel):
    name: Literal["Rome", "Oslo"]
    is_large: bool


def text_of(host: Host, path: str, **fields: Any) -> str:
    if "chat" in path:
        fields["messages"] = HELLO
        answer = host.http.post(path, json=fields).json()
        text = answer["choices"][0]["message"]["content"]
    else:
        fields["prompt"] = "Name a city."
        answer = host.http.post(path, json=fields).json()
        text = answer["choices"][0]["text"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    return str(text)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_answers_keep_to_a_schema(demo: Host, path: str) -> None:
    for seed in range(3):
        text = text_of(demo, path, response_format=FORMAT, max_tokens=400, seed=seed)
        jsonschema.validate(json.loads(text), SCHEMA)
    outputs = {"json": SCHEMA, "disable_any_whitespace": True}
    text = text_of(demo, path, structured_outputs=outputs, max_tokens=400, seed=1)
    assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("key", ["schema", "value"])
def test_a_json_object_keeps_to_the_schema_beside_it(demo: Host, key: str) -> None:
    # llama.cpp's clients send `schema`; huggingface_hub sends `value` for any "json_schema".
    format = {"type": "json_object", key: SCHEMA}
    for seed in range(3):
        text = text_of(
            demo, "/v1/chat/completions", response_format=format, max_tokens=400, seed=seed
        )
        jsonschema.validate(json.loads(text), SCHEMA)


def test_a_json_object_with_two_schemas_is_refused(demo: Host) -> None:
    answer = demo.chat(response_format={"type": "json_object", "schema": SCHEMA, "value": {}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")
    assert "both schema and value" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_answers_are_one_of_a_choice(demo: Host, path: str) -> None:
    for choice in (["yes", "no"], ["maybe"]):
        outputs = {"choice": choice}
        assert text_of(demo, path, structured_outputs=outputs, max_tokens=20) in choice


def test_a_stream_has_the_same_document(demo: Host) -> None:
    fields = {"response_format": FORMAT, "max_tokens": 400, "seed": 5}
    whole = text_of(demo, "/v1/chat/completions", **fields)
    stream = demo.openai.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "Name a city."}],
        stream=True,
        extra_body=fields,
    )
    deltas = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(deltas) == whole


def test_openai_python_parses_an_answer(demo: Host) -> None:
    answer = demo.openai.chat.completions.parse(
        model="demo",
        messages=[{"role": "user", "content": "Name a city."}],
        response_format=City,
        max_tokens=400,
        seed=1,
    )
    assert isinstance(answer.choices[0].message.parsed, City)


def test_two_shapes_are_refused(demo: Host) -> None:
    fields = {"messages": HELLO, "response_format": FORMAT, "structured_outputs": {"regex": "a"}}
    answer = demo.http.post("/v1/chat/completions", json=fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "structured_outputs")


def test_an_answer_goes_on_inside_of_half_a_document(demo: Host) -> None:
    half = '{"city": "Ro'
    body = {
        "messages": [*HELLO, {"role": "assistant", "content": half}],
        "continue_final_message": True,
        "add_generation_prompt": False,
        "response_format": FORMAT,
        "max_tokens": 60,
        "temperature": 1.0,
    }
    for seed in range(3):
        answer = demo.http.post("/v1/chat/completions", json={**body, "seed": seed}).json()
        [choice] = answer["choices"]
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(half + choice["message"]["content"]), SCHEMA)
    body["messages"] = [*HELLO, {"role": "assistant", "content": "Well, {"}]
    refused = demo.http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert "not the beginning of an answer of this shape" in refused.json()["error"]["message"]


def test_a_structural_tag_binds_what_its_triggers_begin(demo: Host) -> None:
    tag = {
        "type": "structural_tag",
        "triggers": ["<city>"],
        "structures": [{"begin": "<city>", "schema": SCHEMA, "end": "</city>"}],
    }
    must = {
        "type": "structural_tag",
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "const_string", "value": "It is <city>"},
                {"type": "json_schema", "json_schema": SCHEMA},
                {"type": "or", "elements": [{"type": "const_string", "value": "</city>."}]},
            ],
        },
    }
    for seed in range(3):
        fields = {"response_format": must, "max_tokens": 80, "seed": seed, "temperature": 1.0}
        text = text_of(demo, "/v1/chat/completions", **fields)
        begin, end = "It is <city>", "</city>."
        assert text.startswith(begin)
        assert text.endswith(end)
        jsonschema.validate(json.loads(text.removeprefix(begin).removesuffix(end)), SCHEMA)
        fields = {"structured_outputs": {"structural_tag": tag}, "max_tokens": 20, "seed": seed}
        answer = demo.http.post("/v1/completions", json={"prompt": "A city:", **fields}).json()
        assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    refused = demo.http.post(
        "/v1/completions",
        json={"prompt": "x", "structured_outputs": {"structural_tag": {"triggers": []}}},
    )
    assert refused.status_code == 400
    assert "#/triggers must be a list" in refused.json()["error"]["message"]


def test_whitespace_and_other_properties_are_as_asked(demo: Host) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
    outputs = {
        "json": schema,
        "whitespace_pattern": "\t{0,2}",
        "disable_additional_properties": True,
    }
    fields = {"structured_outputs": outputs, "max_tokens": 40, "temperature": 1.0}
    for seed in range(3):
        text = text_of(demo, "/v1/completions", seed=seed, **fields)
        assert text.replace("\t", "") == '{"a":1}'


def test_a_budget_below_the_shortest_answer_is_refused_with_its_length(demo: Host) -> None:
    body = {"messages": HELLO, "response_format": FORMAT, "max_tokens": 2}
    refused = demo.http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "max_tokens"
    assert "the shortest answer of this shape has" in refused.json()["error"]["message"]
