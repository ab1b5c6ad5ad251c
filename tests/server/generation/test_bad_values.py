"""Every value that can't be honoured is refused at once, by the name of its field."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.server.hosting import Host

HUGE = 2**70


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


BOTH: dict[str, list[Any]] = {
    "n": [0, -1, 129, 10**9, HUGE, True, 1.0, "5", [1], {}],
    "seed": [2**63, -(2**63) - 1, 2**64, 1.5, "1", True, [1]],
    "temperature": [-0.1, 100.5, HUGE, "hot", True, [1]],
    "top_p": [-0.1, -1, 1.1, "1", True],
    "top_k": [-2, 0.01, 2**31, HUGE, "3", True],
    "min_p": [-0.1, 1.1, "0", True],
    "repetition_penalty": [0, -1, 101, "1"],
    "presence_penalty": [-2.1, 2.1, "0"],
    "frequency_penalty": [-2.1, 2.1, HUGE],
    "logit_bias": [
        *({"2048": 1}, {"191222": -100}, {"-1": 1}, {"1e3": 1}, {"०": 1}, {"": 1}, {"1.0": 1}),
        *({"5": 101}, {"5": "1"}, {"5": HUGE}, {"5": None}, {"05": 1, "5": 2}, [5]),
        {str(i): 1 for i in range(5000)},
    ],
    "stop": ["", [""], ["a"] * 17, "x" * 513, [1], 5, {"a": 1}, ["a", None]],
    "stop_token_ids": [[2048], [2**31], [-1], [HUGE], [1.0], ["1"], [True], 5, [0] * 5000],
    "allowed_token_ids": [[], [2048], [-1], [2**31], [0.5], "all", [0] * (2**18 + 1)],
    "bad_words": ["word", [""], ["a"] * 129, [1]],
    "min_tokens": [-1, 2**31, 1.5, "1"],
    "prompt_logprobs": [-1, 21, 2047, 2048, HUGE, True, "1"],
    "truncate_prompt_tokens": [-2, 0, 1.5, HUGE],
    "truncation_side": ["up", 1],
    "priority": [2**31 + 1, HUGE, 1.5, "high", True],
    "cache_salt": ["a/b", "a@b", "a\\b", "a\0b", "x" * 129, 5],
    "request_id": ["", "a b", "a\nb", "a\n", "x" * 129, 5],
    "stream": ["yes", 1],
    "stream_options": [{"include_usage": True}, {"wobble": 1}, "usage"],
    "stream_interval": [0, -1, 1.5, HUGE],
    "timeout": [0, -1, 0.5, HUGE, "1"],
    "model": [5, "x" * 600, ["demo"]],
    "ignore_eos": ["no", 0],
    "skip_special_tokens": [1],
    "metadata": ["x"],
    "user": [5],
    "service_tier": ["fast", 5],
    "store": ["yes", 1],
    "response_format": [
        *("json", {}, {"type": "xml"}, {"type": "json_schema"}, {"type": "text", "more": 1}),
        {"type": "json_object", "json_schema": {"name": "a", "schema": {}}},
        {"type": "text", "triggers": ["a"]},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}, "format": {}},
        {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": []}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "http://x/y"}}},
    ],
    "structured_outputs": [
        *("json", {}, {"regex": "a", "choice": ["b"]}, {"regex": "(a"}, {"choice": []}),
        *({"json": "{"}, {"json": []}, {"grammar": "start: missing"}, {"wobble": 1}),
        {"regex": "a", "disable_any_whitespace": True},
    ],
    "thinking_token_budget": [-1, 1.5, "9", True, HUGE],
    "use_beam_search": [True, 1],
    "length_penalty": [2.0],
    "best_of": [2, 10**6],
    "logprob_token_ids": [[1], [2048], [-1], [1, 1], list(range(129)), "1", [True], 5],
    "repetition_detection": [
        *({"max_pattern_size": 3}, {"max_pattern_size": 3, "min_count": 1}, [], 5, {"size": 3}),
        {"max_pattern_size": 3, "min_pattern_size": 4, "min_count": 2},
        *({"max_pattern_size": 257, "min_count": 2}, {"max_pattern_size": 3, "min_count": 1025}),
        *({"max_pattern_size": -1}, {"max_pattern_size": 1.5}, {"min_count": "2"}),
    ],
    "spaces_between_special_tokens": [1, "no"],
    "kv_transfer_params": [{}],
}
CHAT: dict[str, list[Any]] = {
    "messages": [
        *([], "hi", {}, [5], [None], [[]], [{}], [{"role": "user", "content": 5}]),
        *([{"role": "", "content": "a"}], [{"role": "<|x|>", "content": "a"}]),
        *([{"role": 5, "content": "a"}], [{"content": "a"}]),
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [5]}],
        *([{"role": "user"}], [{"role": "user", "content": None}]),
        *([{"role": "user", "content": []}], [{"role": "assistant", "content": None}]),
        [{"role": "assistant", "content": None, "tool_calls": "f"}],
    ],
    "max_tokens": [0, -1, 2**31, 2**63 - 1, 1.5, "9", True],
    "max_completion_tokens": [0, -1, 2**31, HUGE],
    "prediction": [
        *("a text", {}, {"content": "a"}, {"type": "content"}, {"type": "text", "content": "a"}),
        *({"type": "content", "content": 5}, {"type": "content", "content": None}),
        *({"type": "content", "content": ["a"]}, {"type": "content", "content": [{"text": "a"}]}),
        {"type": "content", "content": [{"type": "image_url", "text": "a"}]},
        {"type": "content", "content": "a", "more": 1},
    ],
    "logprobs": [5, "yes"],
    "top_logprobs": [1, -1, 21, 10**6, "1"],
    "reasoning_effort": ["extreme", 5],
    "continue_final_message": [True],
    "chat_template_kwargs": [{"messages": []}, {"__class__": 1}, [1], {"a": HUGE * 2**1024}],
    "chat_template": ["{{ 1 }}"],
    "tools": [
        *({}, "f", [5], [{}], [{"type": "function"}], [{"type": "custom"}]),
        *([{"type": "custom", "function": {"name": "f"}}], [{"function": {"name": "f"}}]),
        *([tool("")], [tool("a b")], [tool("f\n")], [tool("x" * 65)], [tool("f.g")], [tool(5)]),
        [tool("f", parameters=[])],
        [tool("f", parameters={"type": "string"})],
        [tool("f", parameters={"description": "x" * 300_000})],
        [tool("f", description="x" * 40_000)],
        [tool("f", strict="yes")],
        [tool("f", wobble=1)],
        [tool("f"), tool("f")],
        [tool(f"f{i}") for i in range(129)],
        [tool("f")],  # to a model whose template takes none
    ],
    "tool_choice": [
        *("auto", "required", "any", 5, [], {}, {"type": "function"}),
        *({"type": "function", "function": {"name": "f"}}, {"type": "custom"}),
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    ],
    "parallel_tool_calls": ["no", 1],
    "add_special_tokens": ["no", 1],
    "return_prompt_text": ["yes"],
    "return_token_offsets": [True],
    "functions": [[{"name": "f"}]],
    "modalities": [["text", "audio"]],
    "audio": [{}],
}
COMPLETION: dict[str, list[Any]] = {
    "prompt": [
        *([], [[]], [[1], []], ["a", 1], [1, "a"], [1.5], [True], 5, {"a": 1}),
        *([2048], [-1], [2**31], [HUGE], [[2048]], ["a"] * 2000, [[1]] * 2000, [None]),
    ],
    "max_tokens": [-1, 2**31, 2**63 - 1, 1.5, "9"],
    "logprobs": [-1, 21, True, "1", HUGE],
    "echo": ["yes"],
    "suffix": ["end", " "],
    "prompt_embeds": ["AAAA"],
}
CASES = [
    ("/v1/chat/completions", name, value)
    for table in (BOTH, CHAT)
    for name, values in table.items()
    for value in values
] + [
    ("/v1/completions", name, value)
    for table in (BOTH, COMPLETION)
    for name, values in table.items()
    for value in values
]


def refused(host: Host, path: str, body: bytes) -> Any:
    answer = host.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert len(answer.content) < 2000
    return error


def good(path: str) -> dict[str, Any]:
    if "chat" in path:
        return {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    return {"prompt": "Hello", "max_tokens": 1}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_bad_values_are_refused_by_name(demo: Host, path: str) -> None:
    for where, name, value in CASES:
        if where == path:
            body = json.dumps({**good(path), name: value}).encode()
            error = refused(demo, path, body)
            assert error["param"] == name, (name, value, error)
    assert demo.http.post(path, json=good(path)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "seed"])
def test_numbers_that_are_none_are_refused(demo: Host, path: str, name: str, number: str) -> None:
    body = json.dumps(good(path))[:-1] + f', "{name}": {number}}}'
    assert refused(demo, path, body.encode())["param"] == name


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"messages": [], "messages": []}',
        b'{"n": 1, "n": 1000000000}',
        b"\xef\xbb\xbf{}",
        '{"prompt": "a"}'.encode("utf-16"),
        b'{"prompt": "a"} trailing',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"prompt": "a", ' + b", ".join(b'"k%d": 1' % i for i in range(400_000)) + b"}",
        b'{"prompt": "\xff"}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_bodies_that_are_no_request_are_refused(demo: Host, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        refused(demo, path, body)


@pytest.mark.parametrize("name", ["prompt", "user", "stop", "model", "request_id", "cache_salt"])
def test_half_a_character_is_refused(demo: Host, name: str) -> None:
    body = json.dumps({**good("/v1/completions"), name: "a\ud800"}).encode()
    assert refused(demo, "/v1/completions", body)["param"] == name


def test_unknown_fields_are_refused_by_name(demo: Host) -> None:
    body = json.dumps({**good("/v1/completions"), "wobble": 1, "n\r\nx": 2}).encode()
    error = refused(demo, "/v1/completions", body)
    assert error["param"] == "wobble"
    assert "'wobble', 'n\\r\\nx'" in error["message"]


def test_what_changes_nothing_is_taken(demo: Host) -> None:
    harmless = {
        "user": "me",
        "metadata": {"a": 1},
        "safety_identifier": "x",
        "prompt_cache_key": "y",
        "service_tier": "auto",
        "verbosity": "low",
        "store": False,
        "response_format": {"type": "text"},
        "tools": None,
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "n": None,
        "temperature": None,
        "stop": None,
        "logit_bias": {},
    }
    assert demo.chat(max_tokens=1, **harmless).status_code == 200
    assert demo.complete(prompt="a", max_tokens=1, best_of=1, suffix="").status_code == 200


def test_refusals_are_counted_by_their_code(demo: Host) -> None:
    def num_refused(code: str) -> float:
        metrics = demo.http.get("/metrics").text
        found = re.search(rf'^inferno_rejected_total{{reason="{code}"}} (.*)$', metrics, re.M)
        return float(found[1]) if found else 0.0

    before = num_refused("invalid_value"), num_refused("model_not_found")
    assert demo.complete(prompt="a", temperature=-1).status_code == 400
    assert demo.complete(prompt="a", model="other").status_code == 404
    assert (num_refused("invalid_value"), num_refused("model_not_found")) == (
        before[0] + 1,
        before[1] + 1,
    )
