"""A load: how many requests are open, when they begin, and what they ask."""

from __future__ import annotations

import asyncio
import json
from itertools import accumulate
from random import Random
from statistics import median
from typing import Any

import pytest

from inferno.bench.load import Endpoint, LoadResult
from inferno.bench.load_generator import bodies, run_load
from inferno.errors import InvalidRequest
from tests.bench.loads import load_of
from tests.bench.servers import Reply, Server, serving


async def answer(reply: Reply, _: int) -> None:
    reply.begin()
    await asyncio.sleep(0.05)
    reply.text("a")
    reply.end()


def driven(server: Server, **fields: Any) -> LoadResult:
    load = load_of(server.url + "/v1/completions", **fields)
    return asyncio.run(run_load(load, lambda _: None))


@pytest.mark.parametrize(("concurrency", "most_open"), [(1, 1), (4, 4), (50, 12)])
def test_as_many_are_open_as_was_asked(concurrency: int, most_open: int) -> None:
    with serving(answer) as server:
        found = driven(server, num_requests=12, concurrency=concurrency)
        assert len(found.requests) == 12
        assert len(server.requests) == 1 + 12  # one warms up
        assert server.most_open == most_open


def test_requests_arrive_at_random_moments_whether_or_not_others_have_ended() -> None:
    with serving(answer) as server:
        found = driven(server, num_requests=60, request_rate=40.0, seed=3)
        assert len(found.requests) == 60
        gaps = Random(3)
        due = [0.0, *accumulate(gaps.expovariate(40.0) for _ in range(59))]
        begun = sorted(one.begun for one in found.requests)
        offsets = [each - moment for each, moment in zip(begun, due, strict=True)]
        start = min(offsets)  # any request may be late, the first too
        assert median(offsets) - start < 0.05
        assert server.most_open > 1
        assert 0 < found.most_late < 2.0


def test_a_failing_request_is_counted_and_the_others_go_on() -> None:
    async def every_third_fails(reply: Reply, number: int) -> None:
        if number % 3 == 0:
            reply.begin(503)
            reply.writer.write(b"0\r\n\r\n")
        else:
            await answer(reply, number)

    with serving(every_third_fails) as server:
        found = driven(server, num_requests=11, concurrency=2)
        problems = [one.problem for one in found.requests]
        assert (problems.count("status 503"), problems.count(None)) == (4, 7)


def test_nothing_is_measured_where_the_first_request_fails() -> None:
    async def refuse(reply: Reply, _: int) -> None:
        reply.begin(401)
        reply.chunk(b'{"error": {"message": "a key is needed"}}')
        reply.writer.write(b"0\r\n\r\n")

    with (
        serving(refuse) as server,
        pytest.raises(InvalidRequest, match="401: a key is needed; see --base-url"),
    ):
        driven(server, num_requests=9)
    assert len(server.requests) == 1


def test_what_is_asked_is_what_was_wished() -> None:
    with serving(answer) as server:
        driven(server, max_tokens=9, temperature=0.5, headers={"Authorization": "Bearer k"})
        request = server.requests[-1]
        assert server.paths[-1] == "/v1/completions"
        assert "Authorization: Bearer k\r\n" in server.heads[-1]
    prompt = request.pop("prompt")
    assert len(prompt.split()) == 4
    assert request == {
        "model": "m",
        "max_tokens": 9,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def prompts(**fields: Any) -> list[Any]:
    return [json.loads(body) for body in bodies(load_of(**fields))]


def test_prompts_of_token_ids_have_exactly_their_length() -> None:
    for body in prompts(num_requests=20, vocab_size=10, prompt_tokens=50, ignore_eos=True):
        assert len(body["prompt"]) == 50
        assert set(body["prompt"]) <= set(range(10))
        assert body["ignore_eos"] is True


def test_a_chat_has_a_message() -> None:
    [body] = prompts(endpoint=Endpoint.CHAT, prompt_tokens=6)
    [message] = body["messages"]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 6
    assert "prompt" not in body


def test_prompts_differ_and_come_again_with_their_seed() -> None:
    first = prompts(num_requests=50, prompt_tokens=20)
    assert len({body["prompt"] for body in first}) == 50
    assert first == prompts(num_requests=50, prompt_tokens=20)
    assert first != prompts(num_requests=50, prompt_tokens=20, seed=1)


def test_lengths_vary_within_their_spread() -> None:
    varied = prompts(num_requests=300, vocab_size=9, prompt_tokens=100, max_tokens=10, spread=0.5)
    inputs = {len(body["prompt"]) for body in varied}
    outputs = {body["max_tokens"] for body in varied}
    assert min(inputs) in range(50, 56)
    assert max(inputs) in range(145, 151)
    assert outputs == set(range(5, 16))
    shortest = prompts(num_requests=300, vocab_size=9, max_tokens=1, spread=1.0)
    assert min(body["max_tokens"] for body in shortest) == 1
