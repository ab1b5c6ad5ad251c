"""OpenAI's client where things go wrong: each refusal is the exception that programs expect."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.server.api_keys import read_keys
from tests.server.hosting import Host, hosting
from tests.server.http.serving import wait_until

FIELDS: Any = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**FIELDS, **fields)


def test_keys_that_are_wrong_or_for_something_else() -> None:
    keys = read_keys(["right", "metrics:other"], None, {})
    with hosting(ScriptedClient, api_keys=keys) as host:
        assert ask(host.openai.with_options(api_key="right"), max_tokens=1).choices
        with pytest.raises(openai.AuthenticationError) as wrong:
            ask(host.openai.with_options(api_key="wrong"))
        assert wrong.value.code == "invalid_api_key"
        with pytest.raises(openai.PermissionDeniedError) as other:
            ask(host.openai.with_options(api_key="other"))
        assert other.value.code == "key_lacks_scope"


def test_a_full_server_is_asked_again() -> None:
    slow = Answer(token_ids=(5,), first_delay=0.5)
    script = Script(answers=(slow,), max_num_seqs=1, vocab_size=2048)
    with hosting(lambda: ScriptedClient(script), max_queue=0) as host:

        async def both(num_retries: int) -> list[Any]:
            async with openai.AsyncOpenAI(
                base_url=host.openai.base_url, api_key="none", max_retries=num_retries
            ) as client:
                asked = [client.chat.completions.create(**FIELDS) for _ in range(2)]
                return await asyncio.gather(*asked, return_exceptions=True)

        found = asyncio.run(both(0))
        [error] = [each for each in found if isinstance(each, Exception)]
        assert isinstance(error, openai.InternalServerError)
        assert (error.status_code, error.code) == (503, "queue_full")
        assert int(error.response.headers["retry-after"]) >= 1
        assert all(each.choices for each in asyncio.run(both(2)))


def test_an_engine_that_dies_ends_a_stream_with_an_error() -> None:
    words = tuple(range(300, 340))
    answers = (Answer(token_ids=words, delay=0.005, dies_after=20), Answer(token_ids=words))
    script = Script(answers=answers, vocab_size=2048, restart_seconds=0.05)
    with hosting(lambda: ScriptedClient(script)) as host:
        stream = ask(host.openai, stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert "try again" in caught.value.message
        assert caught.value.code == "engine_died"
        wait_until(lambda: host.http.get("/ready").status_code == 200)
        assert ask(host.openai).choices[0].finish_reason == "stop"


def test_a_deadline_is_an_error_of_the_server() -> None:
    script = Script(answers=(Answer(token_ids=(5,), first_delay=30),), vocab_size=2048)
    with hosting(lambda: ScriptedClient(script)) as host:
        with pytest.raises(openai.InternalServerError) as caught:
            ask(host.openai, extra_body={"timeout": 1})
        assert (caught.value.status_code, caught.value.code) == (504, "deadline_exceeded")


def test_streams_at_the_same_time_keep_apart(demo: Host) -> None:
    asked = [f"What is {a} plus {b}?" for a in range(2, 6) for b in range(3, 5)]

    async def answer(client: openai.AsyncOpenAI, content: str) -> str:
        stream = await client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": content}],
            temperature=0,
            stream=True,
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def answers() -> list[str]:
        async with openai.AsyncOpenAI(base_url=demo.openai.base_url, api_key="none") as client:
            return await asyncio.gather(*(answer(client, content) for content in asked))

    alone = [
        demo.chat(content, temperature=0).json()["choices"][0]["message"]["content"]
        for content in asked
    ]
    assert asyncio.run(answers()) == alone
