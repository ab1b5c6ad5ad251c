"""litellm, unchanged, over a real socket; the extra `clients` installs it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from inferno import LLM, SamplingParams
from tests.server.hosting import Host

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network for prices
litellm = pytest.importorskip("litellm", reason="needs pip install 'inferno-engine[clients]'")

ASK = [{"role": "user", "content": "What is 3 plus 4?"}]


def ask(host: Host, **fields: Any) -> Any:
    return litellm.completion(
        **{
            "model": "openai/demo",
            "messages": ASK,
            "temperature": 0,
            "api_base": str(host.openai.base_url),
            "api_key": "none",
            "num_retries": 0,
            "max_retries": 0,
            **fields,
        }
    )


def expected(llm: LLM) -> str:
    [done] = llm.chat(ASK, SamplingParams(temperature=0.0, max_tokens=50))
    return done.text


def test_a_chat_says_what_the_library_says(demo: Host, llm: LLM) -> None:
    answer = ask(demo)
    [choice] = answer.choices
    assert choice.message.content == expected(llm) != ""
    assert choice.finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_is_the_chat(demo: Host, llm: LLM) -> None:
    chunks = list(ask(demo, stream=True, stream_options={"include_usage": True}))
    # Like OpenAI's, the last chunk has the usage and, in some versions of litellm, no choice.
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == expected(llm)
    assert chunks[-1].usage.completion_tokens > 3

    async def text() -> str:
        stream = await litellm.acompletion(
            model="openai/demo",
            messages=ASK,
            temperature=0,
            stream=True,
            api_base=str(demo.openai.base_url),
            api_key="none",
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(text()) == expected(llm)


def test_logprobs_come_with_their_alternatives(demo: Host) -> None:
    [choice] = ask(demo, logprobs=True, top_logprobs=2).choices
    entries = choice.logprobs.content
    assert "".join(entry.token for entry in entries).startswith(choice.message.content)
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


def test_several_choices_repeat_with_the_seed(demo: Host) -> None:
    def texts(seed: int) -> list[str]:
        story = [{"role": "user", "content": "Tell me a story."}]
        answer = ask(demo, messages=story, n=3, seed=seed, temperature=1, max_tokens=20)
        return [choice.message.content for choice in answer.choices]

    assert texts(1) == texts(1) != texts(2)
    assert len(set(texts(1))) == 3


def test_a_stop_ends_the_text(demo: Host, llm: LLM) -> None:
    whole = expected(llm)
    stop = whole[3:6]
    assert ask(demo, stop=[stop]).choices[0].message.content == whole[: whole.index(stop)]


def test_completions_go_on_with_a_text(demo: Host, llm: LLM) -> None:
    answer = litellm.text_completion(
        model="text-completion-openai/demo",
        prompt="The sun",
        temperature=0,
        max_tokens=6,
        api_base=str(demo.openai.base_url),
        api_key="none",
    )
    [done] = llm.generate("The sun", SamplingParams(temperature=0.0, max_tokens=6))
    assert answer.choices[0].text == done.text


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "openai/gpt-4"}, "NotFoundError"),
        ({"n": 10**9}, "BadRequestError"),
        ({"extra_body": {"wobble": 1}}, "BadRequestError"),
        (
            {"messages": [{"role": "user", "content": "many words " * 2000}]},
            "ContextWindowExceededError",
        ),
    ],
)
def test_errors_are_litellms_own(demo: Host, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(getattr(litellm, error)):
        ask(demo, **fields)
