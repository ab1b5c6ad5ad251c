"""Responses: what a request's items tell the model, and the answer's items, whole and streamed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.server.openai.responses.items import messages_of
from inferno.text.model_text import ModelText
from tests.data import data_path
from tests.server.hosting import Host, hosting
from tests.server.openai import calling
from tests.server.openai.calling import Speaker, harmony_call, speaking

WEATHER: dict[str, Any] = {"type": "function", **calling.WEATHER["function"]}
TIME: dict[str, Any] = {"type": "function", **calling.TIME["function"]}
ROME = '{"place": "Rome", "days": 3}'
THOUGHT = "<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant"
SAID = "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant"
CALL = harmony_call("get_weather", ROME)
FINAL = "<|channel|>final<|message|>It pours.<|return|>"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "size": {"type": "integer", "maximum": 9}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


class City(BaseModel):
    city: Literal["Rome", "Oslo"]
    size: int


@pytest.fixture(scope="module")
def gpt() -> Iterator[tuple[Host, Speaker]]:
    with speaking(ModelText(data_path("hf", "gpt-oss-20b"))) as both:
        yield both


def ask(host: Host, input: Any = "Hello", /, **fields: Any) -> Any:
    answer = host.http.post("/v1/responses", json={"input": input, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def events_of(host: Host, input: Any = "Hello", /, **fields: Any) -> list[Any]:
    """The events of a stream, whose names and numbers are as they must be."""
    body = {"input": input, **fields, "stream": True}
    answer = host.http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [each for each in answer.text.split("\n\n") if each and not each.startswith(":")]
    events = []
    for number, block in enumerate(blocks):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def put_together(events: list[Any]) -> list[Any]:
    """The output that a stream's deltas make, item by item."""
    output: list[Any] = []
    for event in events:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(output)
                output.append(json.loads(json.dumps(event["item"])))
            case "content_part.added":
                item = output[event["output_index"]]
                assert (event["item_id"], event["content_index"]) == (item["id"], 0)
                item["content"].append(dict(event["part"]))
            case "output_text.delta" | "reasoning_text.delta":
                part = output[event["output_index"]]["content"][0]
                part["text"] += event["delta"]
                part.setdefault("logprobs", []).extend(event.get("logprobs", []))
            case "function_call_arguments.delta":
                output[event["output_index"]]["arguments"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                part = output[event["output_index"]]["content"][0]
                assert event["text"] == part["text"]
                assert event.get("logprobs", []) == part.get("logprobs", [])
            case "function_call_arguments.done":
                assert event["arguments"] == output[event["output_index"]]["arguments"]
            case "output_item.done":
                output[event["output_index"]]["status"] = event["item"]["status"]
                assert bare(event["item"]) == bare(output[event["output_index"]])
    return output


def bare(value: Any) -> Any:
    """The value without ids, which are new each time, times, and lists that have nothing."""
    match value:
        case dict():
            return {
                key: bare(each)
                for key, each in value.items()
                if key not in ("id", "call_id", "created_at", "completed_at") and each != []
            }
        case list():
            return [bare(each) for each in value]
    return value


def texts_of(response: Any) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def test_the_answer_is_a_response_as_openai_has_it(demo: Host) -> None:
    found = ask(
        demo, "What is 3 plus 4?", temperature=0, top_p=0.5, metadata={"a": "b"}, instructions="Say"
    )
    response = Response.model_validate(found, strict=True)
    chat = [{"role": "system", "content": "Say"}, {"role": "user", "content": "What is 3 plus 4?"}]
    asked = demo.http.post("/v1/chat/completions", json={"messages": chat, "temperature": 0}).json()
    assert response.output_text == asked["choices"][0]["message"]["content"]
    assert (response.status, response.error, response.incomplete_details) == ("completed",) + (
        (None,) * 2
    )
    assert response.id.startswith("resp_")
    assert (response.temperature, response.top_p, response.metadata) == (0, 0.5, {"a": "b"})
    assert (response.instructions, response.tool_choice, response.tools) == ("Say", "auto", [])
    assert found["store"] is False
    [item] = response.output
    assert item.type == "message"
    assert (item.status, item.content[0].type) == ("completed", "output_text")
    assert response.usage is not None
    assert response.usage.input_tokens == asked["usage"]["prompt_tokens"]
    assert response.usage.output_tokens == asked["usage"]["completion_tokens"]
    assert response.usage.total_tokens == asked["usage"]["total_tokens"]


def test_an_answer_that_is_cut_off_is_incomplete(demo: Host) -> None:
    found = ask(demo, "Tell me a story.", max_output_tokens=5, seed=1)
    assert (found["status"], found["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert found["output"][-1]["status"] == "incomplete"
    assert found["usage"]["output_tokens"] == 5
    last = events_of(demo, "Tell me a story.", max_output_tokens=5, seed=1)[-1]
    assert last["type"] == "response.incomplete"
    assert bare(last["response"]) == bare(found)


@pytest.mark.parametrize("include", [[], ["message.output_text.logprobs"]])
def test_a_stream_is_equal_to_the_whole_answer(demo: Host, include: list[str]) -> None:
    fields: dict[str, Any] = {"seed": 3, "max_output_tokens": 60, "include": include}
    whole = ask(demo, "Tell me a story.", **fields)
    events = events_of(demo, "Tell me a story.", **fields)
    assert [each["type"] for each in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert bare(put_together(events)) == bare(whole["output"])
    assert bare(events[-1]["response"]) == bare(whole)
    entries = whole["output"][0]["content"][0]["logprobs"]
    assert len(entries) == (whole["usage"]["output_tokens"] if include else 0)


def test_reasoning_a_text_and_calls_stand_in_their_order(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(THOUGHT + SAID + CALL)
    whole = ask(host, "Rain?", tools=[WEATHER, TIME])
    Response.model_validate(whole, strict=True)
    reasoning, message, call = whole["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "I should look."}]
    assert message["content"][0]["text"] == "Let me see."
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "get_weather", ROME)
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert [tool["name"] for tool in whole["tools"]] == ["get_weather", "get_time"]
    events = events_of(host, "Rain?", tools=[WEATHER, TIME])
    assert bare(put_together(events)) == bare(whole["output"])
    assert bare(events[-1]["response"]) == bare(whole)
    hidden = ask(host, "Rain?", tools=[WEATHER, TIME], include_reasoning=False)
    assert [item["type"] for item in hidden["output"]] == ["message", "function_call"]


def test_an_answer_without_text_is_an_empty_message(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(THOUGHT.removesuffix("<|start|>assistant"))
    whole = ask(host)
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    assert texts_of(whole) == ""
    assert bare(put_together(events_of(host))) == bare(whole["output"])


def test_items_become_the_messages_of_a_chat() -> None:
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "Rain?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
            {"type": "reasoning_text", "text": "Look."}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [
            {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}", "odd": 1},
        {"type": "function_call_output", "call_id": "c1", "output": "wet"},
        {"type": "function_call_output", "call_id": "c2", "output": [
            {"type": "input_text", "text": "dry"}]},
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]  # fmt: skip
    messages, ignored = messages_of(items, "Say.")
    assert messages == [
        {"role": "system", "content": "Say."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Rain?"},
        {
            "role": "assistant",
            "reasoning": "Look.",
            "content": [{"type": "text", "text": "Let me see."}],
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "wet"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "dry"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "No."}],
            "tool_calls": [
                {"id": "c3", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
    ]
    assert ignored == ("input[].odd",)


def test_reasoning_in_many_items_takes_time_by_its_length() -> None:
    def seconds(count: int) -> float:
        item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a" * 1000}]}
        began = time.process_time()
        [message], _ = messages_of([item] * count, None)
        took = time.process_time() - began
        assert message["reasoning"] == "a" * 1000 * count
        return took

    few = min(seconds(400) for _ in range(3))
    assert seconds(4000) < 40 * few


def test_a_call_and_its_result_come_back_to_the_model(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(THOUGHT + CALL, FINAL)
    create: Any = host.openai.responses.create
    items: list[Any] = [{"role": "user", "content": "Rain in Rome?"}]
    first = create(model="demo", input=items, tools=[WEATHER])
    call = first.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "get_weather",
        json.loads(ROME),
    )
    items += first.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Rain."})
    second = create(model="demo", input=items, tools=[WEATHER])
    assert second.output_text == "It pours."
    # What the model was shown is what a chat with the same messages shows it.
    messages = messages_of([each if isinstance(each, dict) else each.to_dict() for each in items],
                           None)[0]  # fmt: skip
    tools = [{"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}]
    body = {"messages": messages, "tools": tools}
    told = host.http.post("/tokenize", json=body).json()["count"]
    assert second.usage.input_tokens == told


def test_choices_of_tools(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(FINAL)
    named = ask(host, tools=[WEATHER], tool_choice="none")
    assert (named["tool_choice"], texts_of(named)) == ("none", "It pours.")
    assert ask(host, tools=[], tool_choice="auto")["tools"] == []
    speaker.say(CALL)
    choice = {"type": "function", "name": "get_weather"}
    forced = ask(host, tools=[WEATHER, TIME], tool_choice=choice)
    assert forced["tool_choice"] == choice
    assert forced["output"][0]["name"] == "get_weather"


def test_answers_keep_to_a_schema(demo: Host) -> None:
    format = {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}
    found = ask(demo, "Name a city.", text={"format": format}, seed=1)
    jsonschema.validate(json.loads(texts_of(found)), SCHEMA)
    assert found["text"]["format"] == format
    free = ask(demo, "Name a city.", text={"format": {"type": "json_object"}}, seed=1)
    assert isinstance(json.loads(texts_of(free)), dict)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the earlier items"),
        ({"conversation": "conv_1"}, "conversation", "send the earlier items"),
        ({"background": True}, "background", "stream: true"),
        ({"prompt": {"id": "p"}}, "prompt", "instructions and input"),
        ({"truncation": "auto"}, "truncation", '"disabled"'),
        ({"messages": []}, "messages", "Unknown field"),
        ({"input": []}, "input", "at least one item"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input", "no text"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input", "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "nothing is stored here"),
        ({"input": [{"type": "computer_call"}]}, "input", "'computer_call'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input",
            "input[0].content[0] is of type 'input_image'",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools", "tools[0] is of type 'web_search'"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools", "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "name and schema"),
        (
            {"text": {"format": {"type": "text", "name": "a"}}},
            "text.format",
            "takes no name",
        ),
        (
            {"text": {"format": {"type": "json_object"}}, "structured_outputs": {"choice": ["a"]}},
            "structured_outputs",
            "text.format and structured_outputs",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "x"}}}},
            "text.format",
            "can't be honoured",
        ),
        ({"input": "word " * 3000}, "input", "too long"),
        ({"max_output_tokens": 0}, "max_output_tokens", ">= 1"),
        (
            {"max_output_tokens": 2, "min_tokens": 5},
            "min_tokens",
            "min_tokens must be at most max_output_tokens (2)",
        ),
        ({"include": ["file_search_call.results"]}, "include", "message.output_text.logprobs"),
    ],
)
def test_what_is_wrong_is_named(demo: Host, fields: dict[str, Any], param: str, words: str) -> None:
    answer = demo.http.post("/v1/responses", json={"input": "Hello", **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert words in error["message"]
    if param != "messages":
        assert "messages" not in error["message"]


def test_hints_are_taken_and_named(demo: Host) -> None:
    fields: dict[str, Any] = {
        "store": True,
        "user": "me",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "flex",
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "include": ["reasoning.encrypted_content"],
        "truncation": "disabled",
        "background": False,
        "stream_options": {"include_obfuscation": True},
        "input": [{"role": "user", "content": "Hello", "phase": "final_answer"}],
        "max_output_tokens": 3,
    }
    answer = demo.http.post("/v1/responses", json=fields)
    assert answer.status_code == 200, answer.text
    assert set(answer.headers["x-inferno-ignored"].split(", ")) == {
        *("store", "service_tier", "text.verbosity", "reasoning.effort", "reasoning.summary"),
        *("include.reasoning.encrypted_content", "input[].phase"),
    }
    found = answer.json()
    assert found["store"] is False
    assert (found["user"], found["prompt_cache_key"], found["text"]["verbosity"]) == (
        "me",
        "k",
        "low",
    )
    assert "x-inferno-ignored" not in demo.http.post(
        "/v1/responses", json={"input": "Hello", "max_output_tokens": 3}
    ).headers  # fmt: skip


def test_a_lenient_server_names_unknown_fields_as_they_were_given() -> None:
    with hosting(lambda: ScriptedClient(Script(vocab_size=2048)), lenient=True) as host:
        fields = {"input": "Hello", "messages": [], "n": 2, "logprobs": True}
        answer = host.http.post("/v1/responses", json=fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-inferno-ignored"] == "messages, n, logprobs"


def test_an_engine_that_dies_ends_a_stream_with_a_failed_response() -> None:
    words = tuple(range(300, 340))
    answers = (Answer(token_ids=words, delay=0.005, dies_after=20), Answer(token_ids=words))
    script = Script(answers=answers, vocab_size=2048, restart_seconds=0.05)
    with hosting(lambda: ScriptedClient(script)) as host:
        events = events_of(host)
    failed = events[-1]
    assert failed["type"] == "response.failed"
    response = Response.model_validate(failed["response"], strict=True)
    assert (response.status, response.usage) == ("failed", None)
    assert response.error is not None
    assert response.error.code == "server_error"
    assert "try again" in response.error.message
    assert failed["response"]["error"]["type"] == "engine_died"
    assert response.output_text == "".join(
        each["delta"] for each in events if each["type"] == "response.output_text.delta"
    )


@pytest.mark.parametrize("fault", [{"dies_after": 0}, {"error_after": 0}])
def test_a_stream_that_fails_before_its_first_token_begins_as_all_do(fault: Any) -> None:
    answer = Answer(token_ids=(300,), first_delay=0.3, **fault)
    script = Script(answers=(answer,), vocab_size=2048, restart_seconds=0.05)
    with (
        hosting(lambda: ScriptedClient(script), sse_keep_alive=0.05) as host,
        host.openai.responses.stream(model="demo", input="Hello") as stream,
    ):
        events = list(stream)
    kinds = ["response.created", "response.in_progress", "response.failed"]
    assert [each.type for each in events] == kinds
    assert [each.sequence_number for each in events] == [0, 1, 2]
    states: list[Any] = [each.to_dict()["response"] for each in events]
    assert [state["status"] for state in states] == ["in_progress", "in_progress", "failed"]


def test_openais_stream_helper_and_parse(demo: Host) -> None:
    parsed = demo.openai.responses.parse(
        model="demo", input="Name a city.", text_format=City, max_output_tokens=400
    )
    assert isinstance(parsed.output_parsed, City)
    with demo.openai.responses.stream(model="demo", input="Hello", temperature=0) as stream:
        text = "".join(each.delta for each in stream if each.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert text == demo.openai.responses.create(
        model="demo", input="Hello", temperature=0
    ).output_text  # fmt: skip


def test_openais_stream_helper_puts_calls_together(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(THOUGHT + CALL)
    stream: Any = host.openai.responses.stream
    with stream(model="demo", input="Rain?", tools=[{**WEATHER, "strict": False}]) as events:
        final = events.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    assert final.output[-1].arguments == ROME


def test_openais_client_raises_its_own_errors(demo: Host) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        demo.openai.responses.create(model="demo", input="Hello", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        demo.openai.responses.create(model="other", input="Hello")
    with pytest.raises(openai.NotFoundError):
        demo.openai.responses.retrieve("resp_1")
