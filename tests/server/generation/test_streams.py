"""A stream, put together, is the whole answer; and how it ends when something goes wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.client.scripted import Answer, Script, ScriptedClient
from tests.server.events import choices_of, events_of, joined
from tests.server.hosting import Host, hosting

SETTINGS = settings(deadline=None, max_examples=25)


def put_together(events: list[Any], key: str) -> dict[int, str]:
    texts: dict[int, str] = {}
    for choice in choices_of(events):
        delta = choice.get("delta", choice)
        texts[choice["index"]] = texts.get(choice["index"], "") + (delta.get(key) or "")
    return texts


@SETTINGS
@given(
    ids=st.lists(st.integers(0, 2047), min_size=1, max_size=30),
    stop=st.lists(st.sampled_from(["a", "e", " t", "th", "\ufffd", "é"]), max_size=2),
    interval=st.integers(1, 5),
    keeps_stop=st.booleans(),
)
def test_any_tokens_make_the_same_text_streamed_or_whole(
    echo: Host, ids: list[int], stop: list[str], interval: int, keeps_stop: bool
) -> None:
    # Half of the demo's tokens are single bytes or odd pieces: characters are often cut.
    fields = {
        "prompt": ids,
        "max_tokens": len(ids) + 1,
        "stop": stop,
        "n": 2,
        "logprobs": 0,
        "include_stop_str_in_output": keeps_stop,
        "return_token_ids": True,
        "ignore_eos": True,
    }
    whole = echo.complete(**fields).json()["choices"]
    events = events_of(echo.complete(**fields, stream=True, stream_interval=interval))
    assert events.pop() == "[DONE]"
    assert put_together(events, "text") == {each["index"]: each["text"] for each in whole}
    for each in whole:
        told = [choice for choice in choices_of(events) if choice["index"] == each["index"]]
        assert joined(choice["token_ids"] for choice in told) == each["token_ids"]
        assert told[-1]["finish_reason"] == each["finish_reason"]
        assert told[-1]["stop_reason"] == each["stop_reason"]
        for name, values in each["logprobs"].items():
            assert joined(choice["logprobs"][name] for choice in told) == values
        assert all(len(choice["token_ids"]) >= interval for choice in told[:-1])


@SETTINGS
@given(
    prompt=st.text(max_size=12),
    seed=st.integers(-(2**63), 2**63 - 1),
    stop=st.lists(st.text(min_size=1, max_size=3), max_size=3),
    temperature=st.sampled_from([0.0, 1.0, 5.0]),
)
def test_a_chat_is_the_same_streamed_or_whole(
    demo: Host, prompt: str, seed: int, stop: list[str], temperature: float
) -> None:
    fields = {"seed": seed, "stop": stop, "temperature": temperature, "max_tokens": 16, "n": 2}
    whole = demo.chat(prompt, **fields).json()["choices"]
    events = events_of(demo.chat(prompt, **fields, stream=True))
    assert events.pop() == "[DONE]"
    assert put_together(events, "content") == {
        each["index"]: each["message"]["content"] for each in whole
    }


@SETTINGS
@given(
    ids=st.lists(st.integers(0, 2047), min_size=1, max_size=30),
    stop=st.lists(st.sampled_from(["a", "e", " t", "th"]), max_size=2),
    is_echoed=st.booleans(),
)
def test_events_that_repeat_all_but_their_text_are_like_any_others(
    echo: Host, ids: list[int], stop: list[str], is_echoed: bool
) -> None:
    # Usage in each event keeps the server from making an event of the one before.
    fields = {"prompt": ids, "stop": stop, "n": 2, "echo": is_echoed, "ignore_eos": True}
    fields |= {"max_tokens": len(ids) + 1, "stream": True}
    plain = events_of(echo.complete(**fields))
    counted = events_of(echo.complete(**fields, stream_options={"continuous_usage_stats": True}))
    for index in range(2):
        mine = [told(event) for event in plain if is_of(event, index)]
        assert mine == [told(event) for event in counted if is_of(event, index)]


def test_a_chats_events_that_repeat_all_but_their_text_are_like_any_others(echo: Host) -> None:
    fields = {"stream": True, "max_tokens": 30, "n": 2, "ignore_eos": True}
    plain = events_of(echo.chat('Say "so", please: é and ü.', **fields))
    options = {"continuous_usage_stats": True}
    counted = events_of(echo.chat('Say "so", please: é and ü.', **fields, stream_options=options))
    for index in range(2):
        mine = [told(event) for event in plain if is_of(event, index)]
        assert mine == [told(event) for event in counted if is_of(event, index)]
        assert len(mine) > 8


def told(event: Any) -> Any:
    """An event without what differs from stream to stream."""
    return event if event == "[DONE]" else {**event, "id": "", "created": 0, "usage": None}


def is_of(event: Any, index: int) -> bool:
    return event != "[DONE]" and bool(event["choices"][0]["index"] == index)


def test_a_null_within_stream_options_counts_as_absent(demo: Host) -> None:
    nulls = {"include_usage": True, "continuous_usage_stats": None, "include_obfuscation": None}
    answer = demo.complete(prompt="a", max_tokens=1, stream=True, stream_options=nulls)
    assert events_of(answer)[-2]["usage"]["completion_tokens"] == 1
    answer = demo.complete(
        prompt="a", max_tokens=1, stream=True, stream_options={"include_usage": None}
    )
    assert not any("usage" in event for event in events_of(answer)[:-1])


def test_obfuscation_may_be_asked_for_to_no_effect(demo: Host) -> None:
    fields: dict[str, Any] = {"max_tokens": 5, "temperature": 0}
    asked = {"stream": True, "stream_options": {"include_obfuscation": True}}
    *events, _ = events_of(demo.chat(**fields, **asked))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == demo.chat(**fields).json()["choices"][0]["message"]["content"]
    assert not any("obfuscation" in event for event in events)


def test_usage_is_told_at_the_end_or_all_along(demo: Host) -> None:
    fields = {"stream": True, "max_tokens": 5, "temperature": 0}
    silent = events_of(demo.chat(**fields))
    assert all("usage" not in event for event in silent[:-1])
    told = events_of(demo.chat(**fields, stream_options={"include_usage": True}))[:-1]
    assert [event["usage"] for event in told[:-1]] == [None] * (len(told) - 1)
    assert (told[-1]["choices"], told[-1]["usage"]["completion_tokens"]) == ([], 5)
    both = {"include_usage": True, "continuous_usage_stats": True}
    counted = events_of(demo.chat(**fields, stream_options=both))[:-1]
    counts = [event["usage"]["completion_tokens"] for event in counted]
    assert counts == sorted(counts)
    assert counts[-1] == 5
    assert {event["usage"]["prompt_tokens"] for event in counted} == {
        told[-1]["usage"]["prompt_tokens"]
    }


def scripted(**answer: Any) -> ScriptedClient:
    script = Script(
        answers=(Answer(token_ids=(300, 301), is_endless=True, **answer),),
        vocab_size=2048,
        max_model_len=1024,
        restart_seconds=60,
    )
    return ScriptedClient(script)


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_has_what_a_client_is_not_told(
    caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    with hosting(lambda: scripted(error_after=3)) as host:
        answer = host.complete(prompt="a", max_tokens=50, stream=stream)
    assert "internal_error" in answer.text
    [failed] = [each for each in caplog.records if each.getMessage() == "a request failed"]
    told = getattr(failed, "fields", {})
    assert told["request_id"] == answer.headers["x-request-id"]
    assert told["said"]
    assert told["said"] not in answer.text


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [("error_after", 500, "internal_error"), ("dies_after", 503, "engine_died")],
)
def test_a_fault_in_mid_stream_ends_it_without_done(fault: str, status: int, code: str) -> None:
    with hosting(lambda: scripted(**{fault: 3, "delay": 0.01})) as host:
        *text, last = events_of(host.complete(prompt="a", max_tokens=50, stream=True))
        assert len(choices_of(text)) == 3
        assert last["error"]["code"] == code
        assert last["error"]["type"] == "server_error"
        assert "says so" not in last["error"]["message"]
    with hosting(lambda: scripted(**{fault: 3})) as host:
        answer = host.complete(prompt="a", max_tokens=50)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert ("retry-after" in answer.headers) == (status == 503)


def test_a_deadline_ends_a_stream_with_an_error_and_a_request_with_504() -> None:
    with hosting(lambda: scripted(delay=0.05)) as host:
        *text, last = events_of(host.complete(prompt="a", max_tokens=500, stream=True, timeout=3))
        assert text
        assert last["error"]["code"] == "deadline_exceeded"
        began = time.monotonic()
        answer = host.complete(prompt="a", max_tokens=500, timeout=1)
        assert answer.status_code == 504
        assert time.monotonic() - began > 0.9


def test_a_refusal_by_the_engine_has_its_status_in_a_stream_too() -> None:
    refusal = {"refusal": "no such thing", "param": "prompt_token_ids"}
    with hosting(lambda: scripted(**refusal)) as host:
        for is_stream in (False, True):
            answer = host.complete(prompt="a", stream=is_stream)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "prompt"
            assert host.chat(stream=is_stream).json()["error"]["param"] == "messages"


def test_silence_is_filled_with_comments() -> None:
    with hosting(lambda: scripted(first_delay=0.5), sse_keep_alive=0.1) as host:
        answer = host.complete(prompt="a", max_tokens=2, stream=True)
    comments = [block for block in answer.text.split("\n\n") if block.startswith(":")]
    assert 3 <= len(comments) <= 6
    assert answer.text.startswith(":")
    assert len(choices_of(events_of(answer)[:-1])) == 2
