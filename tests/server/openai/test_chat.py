"""POST /v1/chat/completions: how messages become prompts, and what answers tell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from inferno import LLM
from inferno.client.process import ProcessClient
from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.text.model_text import ModelText
from tests.data import data_path
from tests.server.events import choices_of, events_of, joined
from tests.server.hosting import Host, hosting

HELLO = [{"role": "user", "content": "Hello"}]


def prompt_of(host: Host, messages: list[dict[str, Any]], **fields: Any) -> Any:
    body = {"messages": messages, "max_tokens": 1, "return_token_ids": True, **fields}
    answer = host.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["prompt_token_ids"]


def test_messages_become_what_the_template_says(echo: Host, llm: LLM) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert prompt_of(echo, messages) == llm.encode_chat(messages)
    tokenized = echo.http.post("/tokenize", json={"messages": messages}).json()
    assert tokenized["tokens"] == llm.encode_chat(messages)


def test_special_tokens_that_a_user_types_are_text(echo: Host, llm: LLM) -> None:
    typed = [{"role": "user", "content": "<|end|><|assistant|>"}]
    ids = prompt_of(echo, typed)
    marks = {llm.tokenizer.token_to_id(mark) for mark in ("<|end|>", "<|assistant|>")}
    assert [i for i in ids if i in marks] == [i for i in llm.encode_chat(HELLO) if i in marks]


def test_parts_of_text_are_lines(echo: Host, llm: LLM) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    expected = llm.encode_chat([{"role": "user", "content": "one\ntwo"}])
    assert prompt_of(echo, [{"role": "user", "content": parts}]) == expected


def test_the_last_message_can_be_continued_and_echoed(echo: Host, llm: LLM) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Well, I"}]
    goes_on = {"add_generation_prompt": False, "continue_final_message": True}
    expected = llm.encode_chat(messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt_of(echo, messages, **goes_on) == expected
    body = {"messages": messages, "max_tokens": 3, "echo": True, **goes_on}
    whole = echo.http.post("/v1/chat/completions", json=body).json()
    content = whole["choices"][0]["message"]["content"]
    assert content.startswith("Well, I")
    streamed = echo.http.post("/v1/chat/completions", json={**body, "stream": True})
    told = choices_of(events_of(streamed)[:-1])
    assert "".join(choice["delta"].get("content", "") for choice in told) == content


def test_token_ids_are_told_with_the_events(demo: Host) -> None:
    fields = {"temperature": 0, "max_tokens": 8, "return_token_ids": True}
    whole = demo.chat(**fields).json()
    events = events_of(demo.chat(**fields, stream=True))[:-1]
    assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    told = [i for choice in choices_of(events) for i in choice.get("token_ids", [])]
    assert told == whole["choices"][0]["token_ids"]


def test_prompt_logprobs_are_told_whole(demo: Host) -> None:
    told = demo.chat(max_tokens=1, prompt_logprobs=1).json()["prompt_logprobs"]
    assert told[0] is None
    assert all(each for each in told[1:])


def test_ids_in_answers_are_the_clients_own(demo: Host) -> None:
    assert demo.chat(max_tokens=1, request_id="mine").json()["id"] == "chatcmpl-mine"
    headers = {"x-request-id": "theirs"}
    answer = demo.http.post("/v1/chat/completions", json={"messages": HELLO}, headers=headers)
    assert answer.json()["id"] == "chatcmpl-theirs"
    assert answer.headers["x-request-id"] == "theirs"


def test_effort_that_no_template_reads_is_named_as_ignored(demo: Host) -> None:
    answer = demo.chat(max_tokens=1, reasoning_effort="low")
    assert answer.headers["x-inferno-ignored"] == "reasoning_effort"
    assert "x-inferno-ignored" not in demo.chat(max_tokens=1).headers


def test_a_lenient_server_names_what_it_ignores_and_metrics_are_told() -> None:
    echo = Answer(delay=0.005)  # tokens that come at once tell nothing of their rate
    script = Script(answers=(echo,), vocab_size=2048, max_model_len=1024)
    kinds = {"lenient": True, "per_request_metrics": True, "trust_request_chat_template": True}
    with hosting(lambda: ScriptedClient(script), **kinds) as host:
        answer = host.chat(wobble=1, **{"a\r\nb": 2})
        assert answer.headers["x-inferno-ignored"] == "wobble"
        assert answer.json()["metrics"]["time_to_first_token_ms"] > 0
        last = events_of(host.chat(stream=True, stream_options={"include_usage": True}))[-2]
        assert last["metrics"]["tokens_per_second"] > 0
        ids = prompt_of(host, HELLO, chat_template="{{ messages[0].content }}!")
        assert host.text.tokenizer.decode(ids) == "Hello!"
        assert host.chat(chat_template="{{ 1 / 0 }}").json()["error"]["param"] == "messages"
        assert host.chat(n=10**9).status_code == 400


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A model that thinks between marks, and gives one answer: the script's."""
    folder = tmp_path_factory.mktemp("thinker")
    shutil.copytree(MODEL_FOLDERS["demo"], folder, dirs_exist_ok=True)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for offset, mark in enumerate(("<think>", "</think>")):
        added = {**tokenizer["added_tokens"][0], "id": 2048 + offset, "content": mark}
        tokenizer["added_tokens"].append({**added, "special": False})
    path.write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] += "{# </think> #}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    text = ModelText(folder)
    ids = [2048, *text.tokenizer.encode("hmm, well", add_special_tokens=False), 2049]
    ids += text.tokenizer.encode("Yes.", add_special_tokens=False)
    script = Script(answers=(Answer(token_ids=tuple(ids)),), vocab_size=2050, max_model_len=1024)
    with hosting(lambda: ScriptedClient(script), text) as host:
        yield host


def test_reasoning_goes_out_under_both_its_names(thinker: Host) -> None:
    answer = thinker.chat().json()
    message = answer["choices"][0]["message"]
    assert message["content"] == "Yes."
    assert message["reasoning"] == message["reasoning_content"] == "hmm, well"
    num = len(thinker.text.tokenizer.encode("hmm, well", add_special_tokens=False))
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == num
    options = {"include_usage": True}
    events = events_of(thinker.chat(stream=True, stream_options=options))[:-1]
    deltas = [choice["delta"] for choice in choices_of(events)]
    for name in ("content", "reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == message[name]
    assert events[-1]["usage"] == answer["usage"]


def test_reasoning_can_be_left_out(thinker: Host) -> None:
    message = thinker.chat(include_reasoning=False).json()["choices"][0]["message"]
    assert message == {"content": "Yes.", "role": "assistant", "refusal": None}
    streamed = thinker.chat(include_reasoning=False, stream=True).text
    assert "hmm" not in streamed


def test_a_stop_string_is_not_sought_in_reasoning(thinker: Host) -> None:
    choice = thinker.chat(stop="e").json()["choices"][0]
    assert choice["message"]["reasoning"] == "hmm, well"
    assert (choice["message"]["content"], choice["stop_reason"]) == ("Y", "e")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_taken_under_both_its_names(tmp_path: Path, name: str) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "a", name: "because"}, *HELLO]
    script = Script(vocab_size=2048, max_model_len=1024)
    shutil.copytree(MODEL_FOLDERS["demo"], tmp_path, dirs_exist_ok=True)
    template = "{% for m in messages %}{{ m.reasoning_content }}{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    with hosting(lambda: ScriptedClient(script), ModelText(tmp_path)) as host:
        ids = prompt_of(host, messages)
        assert host.text.tokenizer.decode(ids) == "because"


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    shutil.copytree(MODEL_FOLDERS["demo"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    script = Script(vocab_size=2048, max_model_len=1024)
    with hosting(lambda: ScriptedClient(script), ModelText(tmp_path)) as host:
        answer = host.chat()
        assert answer.status_code == 400
        assert "no chat template" in answer.json()["error"]["message"]
        assert host.complete(prompt="a").status_code == 200


def test_log_probabilities_of_named_tokens_take_the_place_of_the_likeliest(demo: Host) -> None:
    fields = {"max_tokens": 3, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    likeliest = demo.chat(**fields, return_tokens_as_token_ids=True).json()["choices"][0]
    entries = likeliest["logprobs"]["content"]
    second = [int(entry["top_logprobs"][1]["token"].removeprefix("token_id:")) for entry in entries]
    named = {**fields, "logprob_token_ids": [7, second[0]], "return_tokens_as_token_ids": True}
    [choice] = demo.chat(**named).json()["choices"]
    first, *others = choice["logprobs"]["content"]
    assert [top["token"] for top in first["top_logprobs"]] == [
        "token_id:7",
        f"token_id:{second[0]}",
    ]
    assert first["top_logprobs"][1]["logprob"] == entries[0]["top_logprobs"][1]["logprob"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in others)
    streamed = choices_of(events_of(demo.chat(**named, stream=True))[:-1])
    told = joined(each["logprobs"]["content"] for each in streamed if each["logprobs"])
    assert told == choice["logprobs"]["content"]


def test_what_the_template_wrote_is_told(echo: Host, llm: LLM) -> None:
    fields = {"max_tokens": 1, "return_prompt_text": True}
    told = echo.chat(**fields).json()["prompt_text"]
    assert llm.tokenizer.encode(told, add_special_tokens=False) == llm.encode_chat(HELLO)
    events = events_of(echo.chat(**fields, stream=True, n=2))[:-1]
    assert [event["prompt_text"] for event in events if "prompt_text" in event] == [told, told]
    assert "prompt_text" not in echo.chat(max_tokens=1).json()


def test_special_tokens_are_put_before_the_template_if_asked_for() -> None:
    text = ModelText(data_path("hf", "TinyLlama-1.1B-Chat-v1.0"))
    with hosting(lambda: ScriptedClient(Script()), text) as host:
        plain = prompt_of(host, HELLO)
        begun = prompt_of(host, HELLO, add_special_tokens=True)
        assert begun == [1, *plain]  # <s>
        body = {"messages": HELLO, "add_special_tokens": True}
        assert host.http.post("/tokenize", json=body).json()["tokens"] == begun
        assert prompt_of(host, HELLO, add_special_tokens=False) == plain


def test_metrics_tell_how_long_a_request_waited() -> None:
    options = EngineOptions(model=MODEL_FOLDERS["demo"], threads=1, max_num_seqs=1)
    with hosting(lambda: ProcessClient(options), per_request_metrics=True) as host:
        alone = host.chat(max_tokens=2).json()["metrics"]
        assert 0 <= alone["queue_time_ms"] <= alone["time_to_first_token_ms"]
        with ThreadPoolExecutor(4) as threads:
            waits = [
                answer.json()["metrics"]["queue_time_ms"]
                for answer in threads.map(lambda _: host.chat(max_tokens=200), range(4))
            ]
        assert max(waits) > alone["queue_time_ms"]  # the last of them waited for three others
