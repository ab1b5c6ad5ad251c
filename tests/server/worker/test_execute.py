"""POST /execute: a job's events tell the whole of it, token by token."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from inferno import LLM, SamplingParams
from inferno.client.process import ProcessClient
from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.requests import Request, TokenEvent
from inferno.server.api_keys import read_keys
from inferno.text.model_text import ModelText
from tests.data import data_path
from tests.server.openai.calling import TIME, Speaker, harmony_call
from tests.server.worker.hosting import Host, working


def names(events: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in events]


def tokens(events: list[tuple[str, Any]]) -> list[Any]:
    return [data for name, data in events if name == "token"]


def error(host: Host, **fields: Any) -> tuple[int, str, str | None]:
    answer = host.http.post("/execute", json=fields)
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_a_job_begins_tells_its_tokens_and_ends(echo: Host) -> None:
    prompt = [300, 301, 302]
    events = echo.execute(job_id="a", prompt=prompt, max_tokens=10)
    assert names(events) == ["started", "token", "token", "token", "metrics", "end"]
    assert events[0][1] == {"job_id": "a", "prompt_tokens": 3}
    told = tokens(events)
    assert [token["id"] for token in told] == prompt
    assert [token["index"] for token in told] == [0, 1, 2]
    assert "".join(token["text"] for token in told) == echo.text.tokenizer.decode(prompt)
    end = events[-1][1]
    assert (end["job_id"], end["stop_reason"], end["stop"]) == ("a", "stop", None)
    assert end["counts"] == {
        "prompt_tokens": 3,
        "cached_tokens": 0,
        "completion_tokens": 3,
        "reasoning_tokens": 0,
    }
    assert 0 < end["timings"]["time_to_first_token_ms"] <= end["timings"]["total_ms"]
    assert events[-2][1]["completion_tokens"] == 3


def test_every_token_is_told_though_its_character_comes_later(echo: Host) -> None:
    text = "naïve 🔥🧊 日本"
    prompt = echo.text.tokenizer.encode(text, add_special_tokens=False)
    told = tokens(echo.execute(job_id="b", prompt=prompt, max_tokens=99))
    assert [token["id"] for token in told] == prompt
    assert [token["index"] for token in told] == list(range(len(prompt)))
    assert "".join(token["text"] for token in told) == text
    assert any(token["text"] == "" for token in told)


@pytest.mark.parametrize("is_in_text", [False, True])
def test_a_stop_string_ends_the_text_and_is_named(echo: Host, is_in_text: bool) -> None:
    events = echo.execute(
        job_id="c",
        prompt="one two three four",
        max_tokens=99,
        stop=[" three"],
        include_stop_str_in_output=is_in_text,
    )
    text = "".join(token["text"] for token in tokens(events))
    assert text == ("one two three" if is_in_text else "one two")
    assert (events[-1][1]["stop_reason"], events[-1][1]["stop"]) == ("stop", " three")


def test_a_token_that_ends_the_text_is_told_without_text(echo: Host) -> None:
    events = echo.execute(job_id="d", prompt=[300, 301, 302], max_tokens=9, stop_token_ids=[301])
    told = tokens(events)
    assert [token["id"] for token in told] == [300, 301]
    assert "".join(token["text"] for token in told) == echo.text.tokenizer.decode([300])
    assert events[-1][1]["stop"] == 301


def test_the_models_own_end_is_no_stop_of_the_job(echo: Host) -> None:
    [eos, *_] = echo.text.eos_token_ids(2048)
    events = echo.execute(job_id="g", prompt=[300, eos, 301], max_tokens=9)
    assert [token["id"] for token in tokens(events)] == [300, eos]
    assert (events[-1][1]["stop_reason"], events[-1][1]["stop"]) == ("stop", None)


def test_max_tokens_ends_by_length(echo: Host) -> None:
    end = echo.execute(job_id="e", prompt=[300, 301, 302], max_tokens=2)[-1][1]
    assert (end["stop_reason"], end["counts"]["completion_tokens"]) == ("length", 2)


def test_one_request_in_bits_and_pieces_still_has_events_of_its_own(echo: Host) -> None:
    answer = echo.http.post("/execute", json={"job_id": "f", "prompt": "a b c"})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "[DONE]" not in answer.text
    assert answer.text.endswith("\n\n")


class AtOnce(ScriptedClient):
    """Gives all tokens of a request in one event, as a reader who was busy gets them."""

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        events = [event async for event in super().generate(request)]
        yield events[-1]._replace(token_ids=tuple(i for each in events for i in each.token_ids))


def test_each_token_has_its_own_text_though_several_come_together(echo: Host) -> None:
    prompt = echo.text.tokenizer.encode("one two, three 🔥 four", add_special_tokens=False)
    fields = {"prompt": prompt, "max_tokens": 99, "stop": ["never"]}
    expected = tokens(echo.execute(job_id="one-by-one", **fields))
    assert sum(bool(token["text"]) for token in expected) > 3
    script = Script(vocab_size=2048, max_model_len=1024)
    with working(lambda: AtOnce(script)) as host:
        events = host.execute(job_id="at-once", **fields)
    assert tokens(events) == expected
    assert events[-1][1]["timings"]["tokens_per_second"] is None
    assert events[-2][1]["tokens_per_second"] is None


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": "a"}, "invalid_value", "job_id"),
        ({"job_id": "x y", "prompt": "a"}, "invalid_value", "job_id"),
        ({"job_id": "x" * 129, "prompt": "a"}, "invalid_value", "job_id"),
        ({"job_id": "x"}, "invalid_value", "prompt"),
        ({"job_id": "x", "prompt": []}, "invalid_value", "prompt"),
        ({"job_id": "x", "prompt": ["a", "b"]}, "invalid_value", "prompt"),
        ({"job_id": "x", "prompt": [1, -1]}, "invalid_value", "prompt"),
        ({"job_id": "x", "messages": []}, "invalid_value", "messages"),
        ({"job_id": "x", "messages": [{"role": "user"}], "prompt": "a"}, "*", "prompt"),
        ({"job_id": "x", "prompt": "a", "n": 2}, "unsupported_parameter", "n"),
        ({"job_id": "x", "prompt": "a", "stream": False}, "unsupported_parameter", "stream"),
        ({"job_id": "x", "prompt": "a", "logprobs": 1}, "unsupported_parameter", "logprobs"),
        ({"job_id": "x", "prompt": "a", "echo": True}, "unsupported_parameter", "echo"),
        ({"job_id": "x", "prompt": "a", "request_id": "y"}, "*", "request_id"),
        ({"job_id": "x", "prompt": "a", "temperature": -1}, "invalid_value", "temperature"),
        ({"job_id": "x", "prompt": "a", "tempreature": 1}, "unknown_parameter", "tempreature"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    echo: Host, fields: dict[str, Any], code: str, param: str
) -> None:
    status, told, about = error(echo, **fields)
    assert (status, about) == (400, param)
    assert told == ("unsupported_parameter" if code == "*" else code)


@pytest.mark.parametrize("field", ["callback_url", "url", "webhook", "image_url"])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "http://[::1]/", "file:///etc/passwd", "http://2130706433/"]
)
def test_no_job_can_name_a_url(echo: Host, field: str, url: str) -> None:
    assert error(echo, job_id="x", prompt="a", **{field: url})[:2] == (400, "unknown_parameter")


def test_a_null_counts_as_absent(echo: Host) -> None:
    events = echo.execute(job_id="h", prompt=[300], messages=None, max_tokens=1)
    assert events[-1][0] == "end"


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"{", b'"messages"', b'{"messages": 1}', b"\xff"),
        *(b"[" * 100_000, b'{"x":' * 100_000, b'{"messages":' + b"[" * 100_000),
        b'{"job_id": "a", "prompt": "x", "messages": null, "messages": []}',
    ],
)
def test_what_is_no_job_is_refused(echo: Host, raw: bytes) -> None:
    answer = echo.http.post("/execute", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_a_job_that_fails_ends_with_an_error() -> None:
    answer = Answer(token_ids=(300,), is_endless=True, dies_after=2)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=1024)
    with working(lambda: ScriptedClient(script)) as host:
        events = host.execute(job_id="a", prompt="x", max_tokens=9)
        assert names(events) == ["started", "token", "token", "error"]
        assert events[-1][1]["error"]["code"] == "engine_died"


def test_keys_guard_jobs_but_not_health() -> None:
    api_keys = read_keys(["secret"], None, {})
    job = {"job_id": "a", "prompt": "x"}
    with working(lambda: ScriptedClient(Script(vocab_size=2048)), api_keys=api_keys) as host:

        def post(path: str, body: object, **headers: str) -> int:
            url = host.http.base_url.join(path)
            return httpx.post(url, json=body, headers=headers).status_code

        assert host.http.get("/health").json() == {"status": "ok"}
        assert post("/execute", job) == 401
        assert post("/cancel", {"job_id": "a"}) == 401
        assert post("/execute", job, authorization="Bearer wrong") == 401
        assert post("/execute", job, authorization="Bearer secret") == 200


def test_it_serves_jobs_and_nothing_else(echo: Host) -> None:
    for path in ("/v1/models", "/openapi.json", "/docs", "/"):
        assert echo.http.get(path).status_code == 404
    assert echo.http.get("/execute").status_code == 405


@pytest.mark.slow
def test_the_demo_model_answers_as_the_library_does() -> None:
    options = EngineOptions(model=MODEL_FOLDERS["demo"], threads=1)
    messages = [{"role": "user", "content": "What is 2 plus 2?"}]
    with working(lambda: ProcessClient(options)) as host, LLM("demo", threads=1) as llm:
        events = host.execute(job_id="a", messages=messages, temperature=0, max_tokens=20)
        [expected] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=20))
        told = tokens(events)
        assert [token["id"] for token in told] == list(expected.token_ids)
        assert "".join(token["text"] for token in told) == expected.text
        metrics = dict(events)["metrics"]
        assert metrics["device_bytes"]["weights"] > 0
        assert json.loads(host.http.get("/health").text) == {"status": "ok"}


def test_calls_of_tools_come_with_the_tokens_that_say_them() -> None:
    text = ModelText(data_path("hf", "gpt-oss-20b"))
    speaker = Speaker(text)
    speaker.say(harmony_call("get_time", '{"zone": "CET"}'))
    with working(lambda: speaker, text=text) as host:
        messages = [{"role": "user", "content": "What time is it?"}]
        events = host.execute(job_id="a", messages=messages, tools=[TIME])
    told = [call for token in tokens(events) for call in token.get("tool_calls", [])]
    assert told[0]["function"]["name"] == "get_time"
    assert "".join(call["function"]["arguments"] for call in told) == '{"zone": "CET"}'
    assert events[-1][1]["stop_reason"] == "tool_calls"
