"""Tools: what the model is told of them, and its calls, whole and streamed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.text.model_text import ModelText
from tests.data import data_path
from tests.server.events import choices_of, events_of, joined
from tests.server.hosting import Host, hosting
from tests.server.openai.calling import TIME, WEATHER, Speaker, harmony_call, speaking

ASK = [{"role": "user", "content": "Is it raining in Rome?"}]
THOUGHT = "<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant"
SAID = "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant"
ROME = '{"place": "Rome", "days": 3}'
OSLO = '{"place": "Oslo"}'
ONE = THOUGHT + harmony_call("get_weather", ROME)
# A model that goes on after its first call: as others do, gpt-oss may call twice in one answer.
TWO = ONE.removesuffix("<|call|>") + "<|end|><|start|>assistant" + harmony_call("get_time", OSLO)
NO_PARAMETERS = {"type": "object", "properties": {}}
ID = re.compile(r"call_[0-9a-f]{24}")


@pytest.fixture(scope="module")
def gpt() -> Iterator[tuple[Host, Speaker]]:
    with speaking(ModelText(data_path("hf", "gpt-oss-20b")), per_request_metrics=True) as both:
        yield both


def ask(host: Host, **fields: Any) -> Any:
    body = {"messages": ASK, "tools": [WEATHER, TIME], **fields}
    answer = host.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return events_of(answer)[:-1] if fields.get("stream") else answer.json()


def put_together(events: list[Any], index: int = 0) -> dict[str, Any]:
    """The message that a stream's events make, by OpenAI's rules, and how it ended."""
    message: dict[str, Any] = {"content": None, "tool_calls": []}
    reason = None
    for choice in choices_of(events):
        if choice["index"] != index:
            continue
        delta = choice["delta"]
        if delta.get("content") is not None:
            message["content"] = (message["content"] or "") + delta["content"]
        for call in delta.get("tool_calls", []):
            assert ("id" in call) == (call["index"] == len(message["tool_calls"]))
            if "id" in call:
                assert call["type"] == "function"
                message["tool_calls"].append({**call, "function": dict(call["function"])})
            else:
                assert call.keys() == {"index", "function"}
                assert call["function"].keys() == {"arguments"}
                function = message["tool_calls"][call["index"]]["function"]
                function["arguments"] += call["function"]["arguments"]
        reason = choice["finish_reason"] or reason
    return {**message, "finish_reason": reason}


def calls_of(message: Any) -> list[tuple[str, str]]:
    functions = [call["function"] for call in message["tool_calls"]]
    return [(each["name"], each["arguments"]) for each in functions]


def test_a_call_is_told_whole(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(ONE)
    [choice] = ask(host)["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["stop_reason"] is None
    assert message["content"] is None
    assert message["reasoning"] == "I should look."
    [call] = message["tool_calls"]
    assert ID.fullmatch(call.pop("id"))
    function = {"name": "get_weather", "arguments": ROME}
    assert call == {"type": "function", "function": function}


def test_an_answer_without_calls_is_as_ever(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say("<|channel|>final<|message|>It is.<|return|>")
    [choice] = ask(host)["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {"role": "assistant", "content": "It is.", "refusal": None}
    assert put_together(ask(host, stream=True)) == {
        "content": "It is.",
        "tool_calls": [],
        "finish_reason": "stop",
    }


NO_JSON = harmony_call("f", "no JSON {")
NOTHING = harmony_call("get_time", "")


@pytest.mark.parametrize("text", [ONE, TWO, THOUGHT + SAID + NO_JSON, NOTHING])
@pytest.mark.parametrize("interval", [1, 4])
def test_a_stream_is_the_whole_answer(gpt: tuple[Host, Speaker], text: str, interval: int) -> None:
    host, speaker = gpt
    speaker.say(text)
    fields = {"logprobs": True, "return_token_ids": True}
    answer = ask(host, **fields)
    [choice] = answer["choices"]
    usage = {"include_usage": True}
    stream = {"stream": True, "stream_options": usage, "stream_interval": interval}
    events = ask(host, **fields, **stream)
    made = put_together(events)
    assert made["content"] == choice["message"]["content"]
    assert calls_of(made) == calls_of(choice["message"])
    assert made["finish_reason"] == choice["finish_reason"] == "tool_calls"
    assert len({call["id"] for call in made["tool_calls"]}) == len(made["tool_calls"])
    assert joined(each.get("token_ids", []) for each in choices_of(events)) == choice["token_ids"]
    entries = joined(each["logprobs"]["content"] for each in choices_of(events) if each["logprobs"])
    assert entries == choice["logprobs"]["content"]
    assert len(entries) == len(choice["token_ids"])
    assert events[-1]["usage"] == answer["usage"]


def test_arguments_come_piece_by_piece(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(ONE, delay=0.01)
    deltas = [choice["delta"] for choice in choices_of(ask(host, stream=True))]
    told = [
        each["tool_calls"][0]["function"]["arguments"] for each in deltas if "tool_calls" in each
    ]
    assert deltas[0] == {"role": "assistant", "content": None}
    assert len(told) > 4
    assert "".join(told) == ROME


def test_what_is_said_before_a_call_is_content(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(SAID + harmony_call("get_time", "{}"))
    [choice] = ask(host)["choices"]
    assert choice["message"]["content"] == "Let me see."
    assert calls_of(choice["message"]) == [("get_time", "{}")]
    assert choice["finish_reason"] == "tool_calls"


def test_calls_of_all_choices_have_ids_of_their_own(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(TWO)
    messages = [choice["message"] for choice in ask(host, n=3)["choices"]]
    assert all(calls_of(each) == calls_of(messages[0]) for each in messages)
    assert len({call["id"] for each in messages for call in each["tool_calls"]}) == 6
    events = ask(host, n=3, stream=True)
    made = [put_together(events, index) for index in range(3)]
    assert len({call["id"] for each in made for call in each["tool_calls"]}) == 6


@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_a_second_call_is_cut_where_calls_are_not_to_be_parallel(
    gpt: tuple[Host, Speaker], delay: float
) -> None:
    host, speaker = gpt
    speaker.say(TWO, delay=delay)
    both = ask(host)
    assert len(both["choices"][0]["message"]["tool_calls"]) == 2
    answer = ask(host, parallel_tool_calls=False)
    [choice] = answer["choices"]
    assert calls_of(choice["message"]) == [("get_weather", ROME)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", None)
    num_tokens = answer["usage"]["completion_tokens"]
    assert num_tokens < both["usage"]["completion_tokens"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = ask(host, parallel_tool_calls=False, **options)
    assert calls_of(put_together(events)) == [("get_weather", ROME)]
    assert events[-1]["usage"]["completion_tokens"] == num_tokens


def test_a_call_that_is_cut_off_ends_for_its_length(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(ONE)
    num = len(host.text.tokenizer.encode(ONE, add_special_tokens=False))
    [choice] = ask(host, max_tokens=num - 3)["choices"]
    [(name, arguments)] = calls_of(choice["message"])
    assert (choice["finish_reason"], name) == ("length", "get_weather")
    assert ROME.startswith(arguments)
    assert arguments != ROME


def test_the_template_shows_the_tools(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say(ONE)
    fields = {"return_token_ids": True, "return_prompt_text": True}
    told = ask(host, **fields)
    assert "The weather of a place." in told["prompt_text"]
    assert "type get_time = () => any;" in told["prompt_text"]
    text, ids = told["prompt_text"], told["prompt_token_ids"]
    assert host.text.tokenizer.encode(text, add_special_tokens=False) == ids
    body = {"messages": ASK, "tools": [WEATHER, TIME]}
    assert host.http.post("/tokenize", json=body).json()["tokens"] == ids
    [first, *_] = ask(host, **fields, stream=True)
    assert (first["prompt_text"], first["prompt_token_ids"]) == (text, ids)


def test_tools_that_are_not_to_be_called_are_not_shown(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say("<|channel|>final<|message|>It is.<|return|>")
    ids = ask(host, tool_choice="none", return_token_ids=True)["prompt_token_ids"]
    assert ids == ask(host, tools=None, return_token_ids=True)["prompt_token_ids"]
    assert ids != ask(host, return_token_ids=True)["prompt_token_ids"]


def test_only_what_models_were_trained_on_is_shown(tmp_path: Path) -> None:
    shutil.copytree(MODEL_FOLDERS["demo"], tmp_path, dirs_exist_ok=True)
    template = "{% for tool in tools %}{{ tool | tojson }};{% endfor %}{# <tool_call> arguments #}"
    (tmp_path / "chat_template.jinja").write_text(template)
    text = ModelText(tmp_path)
    with hosting(lambda: ScriptedClient(Script(vocab_size=2048)), text) as host:
        given = {"strict": False, **WEATHER["function"]}
        shuffled = {"function": dict(reversed(given.items())), "type": "function"}
        body = {"messages": ASK, "tools": [shuffled, TIME]}
        ids = host.http.post("/tokenize", json=body).json()["tokens"]
        shown = host.text.tokenizer.decode(ids)
        time = {"name": "get_time", "description": "", "parameters": NO_PARAMETERS}
        told = [WEATHER, {"type": "function", "function": time}]
        assert shown == "".join(json.dumps(each) + ";" for each in told)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [TIME, TIME]}, "tools"),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, "structured_outputs"),
        (
            {"response_format": {"type": "structural_tag", "triggers": [], "structures": []}},
            "response_format",
        ),
        ({"tools": None, "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    gpt: tuple[Host, Speaker], fields: dict[str, Any], param: str
) -> None:
    body = {"messages": ASK, "tools": [WEATHER], **fields}
    answer = gpt[0].http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}])
def test_an_empty_list_of_tools_is_as_none(demo: Host, choice: dict[str, Any]) -> None:
    # Programs that always send the field; this model's template takes no tools.
    said = demo.chat(tools=[], **choice, temperature=0, max_tokens=8)
    assert said.status_code == 200, said.text
    plain = demo.chat(temperature=0, max_tokens=8).json()
    assert said.json()["choices"][0]["message"] == plain["choices"][0]["message"]


def test_calls_and_their_results_go_to_the_template(gpt: tuple[Host, Speaker]) -> None:
    host, speaker = gpt
    speaker.say("<|channel|>final<|message|>It is.<|return|>")
    call = {"type": "function", "function": {"name": "get_weather", "arguments": ROME}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", **call}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "pouring"},
    ]
    text = ask(host, messages=messages, return_prompt_text=True)["prompt_text"]
    assert "to=functions.get_weather" in text
    assert "pouring" in text
    assert ROME in text or json.dumps(json.loads(ROME)) in text


def test_a_model_that_cannot_be_given_tools_says_why(tmp_path: Path) -> None:
    def refusal(template: str) -> str:
        (tmp_path / "chat_template.jinja").write_text(template)
        text = ModelText(tmp_path)
        with hosting(lambda: ScriptedClient(Script(vocab_size=2048)), text) as host:
            answer = host.chat(tools=[TIME])
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == ("tools", "invalid_value")
            assert host.chat(tools=[TIME], tool_choice="none", max_tokens=1).status_code == 200
            return str(error["message"])

    shutil.copytree(MODEL_FOLDERS["demo"], tmp_path, dirs_exist_ok=True)
    assert "takes no tools" in refusal("{{ messages[0].content }}")
    assert "none of those known" in refusal("{{ tools }}{{ messages[0].content }}")


HERMES = (
    "<think>\nI look.\n</think>\n\nLet me see.\n<tool_call>\n"
    f'{{"name": "get_weather", "arguments": {ROME}}}\n</tool_call>\n<tool_call>\n'
    '{"name": "get_time", "arguments": {}}\n</tool_call><|im_end|>'
)
MISTRAL = (
    f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {ROME}}}, '
    '{"name": "get_time", "arguments": {}}]</s>'
)
NEMO = "mistralai-Mistral-Nemo-Instruct-2407.jinja"


@pytest.mark.parametrize(
    ("model", "template", "said", "call_id"),
    [
        ("Qwen3-0.6B", None, HERMES, ID),
        ("Mistral-7B-Instruct-v0.3", NEMO, MISTRAL, re.compile("[A-Za-z0-9]{9}")),
    ],
)
def test_other_models_call_in_their_own_ways(
    model: str, template: str | None, said: str, call_id: re.Pattern[str]
) -> None:
    file = None if template is None else data_path("templates", template)
    text = ModelText(data_path("hf", model), chat_template=file)
    with speaking(text) as (host, speaker):
        speaker.say(said)
        [choice] = ask(host)["choices"]
        calls = choice["message"]["tool_calls"]
        assert calls_of(choice["message"]) == [("get_weather", ROME), ("get_time", "{}")]
        assert choice["finish_reason"] == "tool_calls"
        assert all(call_id.fullmatch(call["id"]) for call in calls)
        made = put_together(ask(host, stream=True))
        assert calls_of(made) == calls_of(choice["message"])
        assert made["content"] == choice["message"]["content"]
        assert made["finish_reason"] == "tool_calls"
        assert all(call_id.fullmatch(call["id"]) for call in made["tool_calls"])
        one = ask(host, parallel_tool_calls=False)["choices"][0]
        assert calls_of(one["message"]) == [("get_weather", ROME)]
        assert one["finish_reason"] == "tool_calls"
        plain = ask(host, tools=None)["choices"][0]  # who gave no tools gets what was said
        assert "get_weather" in plain["message"]["content"]
        assert plain["finish_reason"] == "stop"
