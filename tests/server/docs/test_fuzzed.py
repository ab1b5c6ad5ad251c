"""Requests that schemathesis makes of our own /openapi.json: none is too much for the server."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from inferno.server.routes import ROUTES
from tests.server.hosting import Host

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
VOCAB_SIZE = 2048  # of the engine that echoes
UNSUITABLE = {
    *("model", "chat_template", "add_special_tokens"),
    *("allowed_token_ids", "stop_token_ids", "logit_bias", "logprob_token_ids"),
    *("tools", "tool_choice", "repetition_detection"),
}
OPERATIONS = [(route.template, route.methods[0]) for route in ROUTES if route.tag is not None]


@pytest.fixture(scope="module")
def described(echo: Host) -> Any:
    """The description, with what makes requests of it."""
    return schemathesis.openapi.from_url(f"{echo.http.base_url}/openapi.json")


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        (path, method, mode)
        for path, method in OPERATIONS
        for mode in GenerationMode
        if method == "POST" or mode is GenerationMode.POSITIVE  # a GET has nothing to get wrong
    ],
)
def test_answers_are_as_described(
    described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    statuses: list[int] = []

    @settings(
        max_examples=40,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and method == "POST":
            case.body = sensible(path, case.body)
        statuses.append(case.call_and_validate(checks=CHECKS).status_code)

    check()
    if method == "POST":
        expected = 200 if mode is GenerationMode.POSITIVE else 400
        assert statuses.count(expected) > len(statuses) / 2


def sensible(path: str, body: Any) -> Any:
    """The body without what JSON Schema can't tell to be wrong, so that most are answered."""
    fields = {name: whole(value) for name, value in body.items() if name not in UNSUITABLE}
    if path == "/tokenize":
        fields["prompt"] = None if fields.get("messages") else fields.get("prompt") or "a"
    for message in fields.get("messages") or ():
        message["role"] = "user"
        if message.get("content") is None:  # as an assistant's may be
            message["content"] = "a"
    if isinstance(items := fields.get("input"), list):  # of which demo's template knows two roles
        known_items = [item for item in items if item.get("type") != "function_call_output"]
        said = {"role": "user", "content": "a"}
        fields["input"] = [
            {**item, "role": "user"} if "role" in item else item for item in [*known_items, said]
        ]
    for name in {"tokens", "prompt"} & fields.keys():
        fields[name] = known(fields[name])
    return fields


def whole(value: Any) -> Any:
    """Whole numbers as integers: 1.0 is one to JSON Schema."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [whole(each) for each in value]
        case dict():
            return {name: whole(each) for name, each in value.items()}
    return value


def known(value: Any) -> Any:
    """Token ids that the model has."""
    if isinstance(value, list):
        return [known(each) for each in value]
    return value % VOCAB_SIZE if isinstance(value, int) else value
