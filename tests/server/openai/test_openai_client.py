"""The official client, unchanged, over a real socket."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from inferno import LLM, SamplingParams
from tests.server.hosting import Host

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is 3 plus 4?"}]


def test_a_chat_says_what_the_library_says(demo: Host, llm: LLM) -> None:
    [expected] = llm.chat(
        [dict(message) for message in ASK], SamplingParams(temperature=0.0, max_tokens=50)
    )
    found = demo.openai.chat.completions.create(model="demo", messages=ASK, temperature=0)
    [choice] = found.choices
    assert choice.message.content == expected.text != ""
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert found.usage is not None
    assert found.usage.completion_tokens == expected.usage.completion_tokens
    assert found.usage.prompt_tokens == expected.usage.prompt_tokens
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found.object == "chat.completion"
    assert found.system_fingerprint is not None


def test_the_stream_of_a_chat_is_the_chat(demo: Host) -> None:
    create = demo.openai.chat.completions.create
    whole = create(model="demo", messages=ASK, temperature=0)
    chunks = list(
        create(
            model="demo",
            messages=ASK,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *told, last = chunks
    text = "".join(chunk.choices[0].delta.content or "" for chunk in told)
    assert text == whole.choices[0].message.content
    assert told[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in told][-1] == "stop"
    assert all(chunk.usage is None for chunk in told)
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {told[0].id}


def test_several_choices_differ_and_repeat_with_the_seed(demo: Host) -> None:
    def texts(seed: int) -> list[str | None]:
        found = demo.openai.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": "Tell me a story."}],
            n=3,
            seed=seed,
            temperature=1.0,
            max_completion_tokens=20,
        )
        assert [choice.index for choice in found.choices] == [0, 1, 2]
        return [choice.message.content for choice in found.choices]

    assert len(set(texts(1))) == 3
    assert texts(1) == texts(1) != texts(2)


def test_a_stop_string_ends_the_answer_before_itself(demo: Host) -> None:
    def content(**fields: Any) -> tuple[str | None, str, Any]:
        found = demo.openai.chat.completions.create(
            model="demo", messages=ASK, temperature=0, **fields
        )
        choice = found.choices[0]
        return choice.message.content, choice.finish_reason, getattr(choice, "stop_reason", None)

    free, *_ = content()
    assert free is not None
    stop = free[3:6]
    assert content(stop=stop) == (free[: free.index(stop)], "stop", stop)
    kept, *_ = content(stop=[stop], extra_body={"include_stop_str_in_output": True})
    assert kept == free[: free.index(stop) + len(stop)]


def test_logprobs_come_with_their_alternatives(demo: Host, llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=4, logprobs=3)
    [expected] = llm.chat([dict(message) for message in ASK], params)
    found = demo.openai.chat.completions.create(
        model="demo",
        messages=ASK,
        temperature=0,
        max_tokens=4,
        logprobs=True,
        top_logprobs=3,
    )
    told = found.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert expected.logprobs is not None
    for entry, truth in zip(told.content, expected.logprobs, strict=True):
        assert entry.logprob == pytest.approx(truth.logprob)
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(
            [logprob for _, logprob in truth.top]
        )
        assert bytes(entry.bytes or []).decode() == entry.token
    assert "".join(entry.token for entry in told.content) == found.choices[0].message.content


@pytest.mark.parametrize(
    ("fields", "error", "status", "code"),
    [
        ({"n": 10**9}, openai.BadRequestError, 400, "invalid_value"),
        ({"model": "gpt-4"}, openai.NotFoundError, 404, "model_not_found"),
        (
            {"messages": [{"role": "user", "content": "many words " * 2000}]},
            openai.BadRequestError,
            400,
            "context_length_exceeded",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.BadRequestError,
            400,
            "invalid_value",
        ),
        ({"extra_body": {"wobble": 1}}, openai.BadRequestError, 400, "unknown_parameter"),
    ],
)
def test_refusals_are_the_clients_own_exceptions(
    demo: Host, fields: dict[str, Any], error: type[openai.APIStatusError], status: int, code: str
) -> None:
    with pytest.raises(error) as caught:
        demo.openai.chat.completions.create(**{"model": "demo", "messages": ASK, **fields})
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert caught.value.type == "invalid_request_error"


def test_models_are_listed_and_found(demo: Host) -> None:
    [card] = demo.openai.models.list().data
    assert card == demo.openai.models.retrieve("demo")
    assert (card.id, card.object) == ("demo", "model")
    assert card.model_extra is not None
    assert card.model_extra["max_model_len"] == 1024
    with pytest.raises(openai.NotFoundError):
        demo.openai.models.retrieve("nobody/nothing")


def test_completions_of_several_prompts_come_in_order(demo: Host, llm: LLM) -> None:
    prompts = ["Once upon", "The sun"]
    params = SamplingParams(temperature=0.0, max_tokens=6)
    expected = [done.text for done in llm.generate(prompts, params)]
    found = demo.openai.completions.create(
        model="demo", prompt=prompts, temperature=0, max_tokens=6, n=2
    )
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in found.choices] == [each for each in expected for _ in "ab"]
    assert found.usage is not None
    assert found.usage.completion_tokens == 24
    assert found.usage.prompt_tokens == sum(len(llm.tokenizer.encode(each)) for each in prompts)
    streamed = [""] * 4
    for chunk in demo.openai.completions.create(
        model="demo", prompt=prompts, temperature=0, max_tokens=6, n=2, stream=True
    ):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [choice.text for choice in found.choices]
