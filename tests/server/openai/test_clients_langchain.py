"""LangChain's client, unchanged, over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from inferno import LLM, SamplingParams
from tests.server.hosting import Host

langchain_openai = pytest.importorskip("langchain_openai", reason="needs langchain-openai")
messages = pytest.importorskip("langchain_core.messages")

ASK = "What is 3 plus 4?"


def model(host: Host, **options: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        base_url=str(host.openai.base_url),
        api_key="none",
        max_retries=0,
        **{"model": "demo", "temperature": 0, **options},
    )


def expected(llm: LLM, **params: Any) -> str:
    messages = [{"role": "user", "content": ASK}]
    [done] = llm.chat(messages, SamplingParams(temperature=0.0, max_tokens=50, **params))
    return done.text


def test_a_chat_says_what_the_library_says(demo: Host, llm: LLM) -> None:
    answer = model(demo).invoke(ASK)
    assert answer.content == expected(llm) != ""
    assert answer.usage_metadata["output_tokens"] > 3
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["model_name"] == "demo"
    assert answer.response_metadata["system_fingerprint"].startswith("fp_")


def test_a_stream_is_the_chat(demo: Host, llm: LLM) -> None:
    chunks = list(model(demo, stream_usage=True).stream(ASK))
    assert "".join(chunk.content for chunk in chunks) == expected(llm)
    assert sum((chunk.usage_metadata or {}).get("output_tokens", 0) for chunk in chunks) > 3

    async def text() -> str:
        return "".join([chunk.content async for chunk in model(demo).astream(ASK)])

    assert asyncio.run(text()) == expected(llm)


def test_logprobs_come_with_their_alternatives(demo: Host) -> None:
    answer = model(demo).bind(logprobs=True, top_logprobs=2).invoke(ASK)
    entries = answer.response_metadata["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries).startswith(answer.content)
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)


def test_several_choices_repeat_with_the_seed(demo: Host) -> None:
    def texts(seed: int) -> list[str]:
        story = model(demo, n=3, seed=seed, temperature=1, max_tokens=20)
        [choices] = story.generate([[messages.HumanMessage("Tell me a story.")]]).generations
        return [choice.text for choice in choices]

    assert texts(1) == texts(1) != texts(2)
    assert len(set(texts(1))) == 3


def test_a_stop_ends_the_text(demo: Host, llm: LLM) -> None:
    whole = expected(llm)
    stop = whole[3:6]
    assert model(demo).invoke(ASK, stop=[stop]).content == whole[: whole.index(stop)]


def test_prompts_are_answered_together(demo: Host, llm: LLM) -> None:
    answers = model(demo).batch([ASK, "Hello", ASK])
    assert [answers[0].content, answers[2].content] == [expected(llm)] * 2


def test_completions_go_on_with_a_text(demo: Host, llm: LLM) -> None:
    client = langchain_openai.OpenAI(
        base_url=str(demo.openai.base_url),
        api_key="none",
        model="demo",
        temperature=0,
        max_tokens=6,
        max_retries=0,
    )
    [done] = llm.generate("The sun", SamplingParams(temperature=0.0, max_tokens=6))
    assert client.invoke("The sun") == done.text
    assert "".join(client.stream("The sun")) == done.text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"extra_body": {"wobble": 1}}, openai.BadRequestError),
    ],
)
def test_errors_are_openais(demo: Host, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        model(demo, **options).invoke(ASK)


def test_a_prompt_that_is_too_long_is_known_as_such(demo: Host) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        model(demo).invoke("many words " * 2000)
    assert "ContextOverflow" in type(caught.value).__name__


def test_embeddings_are_refused_by_their_route(demo: Host) -> None:
    embeddings = langchain_openai.OpenAIEmbeddings(
        base_url=str(demo.openai.base_url),
        api_key="none",
        model="demo",
        check_embedding_ctx_length=False,
        max_retries=0,
    )
    with pytest.raises(openai.NotFoundError):
        embeddings.embed_query("Hello")
