"""One request: what is timed, what is counted, and what counts as failed."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from typing import Any

import pytest

from inferno.bench.load import RequestResult
from inferno.bench.timed_request import run_request
from tests.bench.loads import load_of
from tests.bench.servers import Answering, Reply, serving
from tests.patience import PATIENCE


def asked(answer: Answering, **fields: Any) -> RequestResult:
    with serving(answer) as server:
        load = load_of(server.url + "/v1/completions", **fields)
        return asyncio.run(run_request(load, b"{}"))


def test_times_are_those_of_text() -> None:
    async def answer(reply: Reply, _: int) -> None:
        reply.begin()
        reply.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        reply.chunk(b": keep-alive\n\n")
        await asyncio.sleep(0.1)
        reply.text("a")
        await asyncio.sleep(0.2)
        reply.text("b")
        await asyncio.sleep(0.05)
        reply.usage(7, 5)
        reply.end()

    one = asked(answer)
    assert one.problem is None
    gap = one.arrivals[1] - one.arrivals[0]
    assert 0.09 < one.first_token < one.total - gap
    assert gap > 0.15
    assert one.total > one.first_token + gap + 0.03
    assert len(one.arrivals) == 2
    assert (one.prompt_tokens, one.completion_tokens, one.num_tokens) == (7, 5, 5)
    assert one.per_token == pytest.approx(gap / 4)


@pytest.mark.parametrize(
    "choice",
    [
        {"text": "a"},
        {"delta": {"content": "a"}},
        {"delta": {"content": "", "reasoning": "a"}},
        {"delta": {"content": None, "reasoning_content": "a"}},
    ],
)
def test_text_is_text_wherever_it_is(choice: dict[str, Any]) -> None:
    async def answer(reply: Reply, _: int) -> None:
        reply.begin()
        reply.event({"choices": [choice], "error": None})
        reply.event({"choices": [{"text": "", "delta": {"content": None}}]})
        reply.end()

    one = asked(answer)
    assert (one.problem, len(one.arrivals), one.num_tokens) == (None, 1, 1)


def test_events_are_found_however_they_are_cut() -> None:
    events = [{"choices": [{"text": f"é{i}"}]} for i in range(20)]
    raw = b"".join(b"data: %s\r\n\r\n" % json.dumps(event).encode() for event in events)
    raw += b"data:[DONE]\n\n"

    async def answer(reply: Reply, _: int) -> None:
        reply.begin()
        for start in range(0, len(raw), 7):
            reply.chunk(raw[start : start + 7])
            await asyncio.sleep(0)

    assert asked(answer).num_tokens == 20


async def refuses(reply: Reply, _: int) -> None:
    reply.begin(404)
    reply.chunk(b'{"error": {"message": "no such model", "code": "x"}}')
    reply.writer.write(b"0\r\n\r\n")


async def is_full(reply: Reply, _: int) -> None:
    reply.begin(503)
    reply.chunk(b"<html>")
    reply.writer.write(b"0\r\n\r\n")


async def fails_in_the_midst(reply: Reply, _: int) -> None:
    reply.begin()
    reply.text("a")
    reply.event({"error": {"message": "engine \x1b[2Jdied\n"}})
    reply.end()


async def breaks_off(reply: Reply, _: int) -> None:
    reply.begin()
    reply.text("a")


async def ends_early(reply: Reply, _: int) -> None:
    reply.begin()
    reply.text("a")
    reply.writer.write(b"0\r\n\r\n")


async def talks_nonsense(reply: Reply, _: int) -> None:
    reply.begin()
    reply.event("[[[[")
    reply.end()


async def never_answers(reply: Reply, _: int) -> None:
    await asyncio.sleep(60)


async def redirects(reply: Reply, _: int) -> None:
    reply.begin(307)
    reply.writer.write(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refuses, "status 404: no such model"),
        (is_full, "status 503"),
        (redirects, "status 307"),
        (fails_in_the_midst, "engine \ufffd[2Jdied\ufffd"),
        (breaks_off, "the answer broke off"),
        (ends_early, "the stream ended without [DONE]"),
        (talks_nonsense, "an event is not what OpenAI's are"),
    ],
)
def test_what_fails_says_why(answer: Answering, problem: str) -> None:
    assert asked(answer, timeout=PATIENCE).problem == problem


def test_what_never_comes_is_a_failure_at_its_time() -> None:
    assert asked(never_answers, timeout=0.3).problem == "not done within 0.3 seconds"


def test_a_server_that_is_not_there_is_a_failure_too() -> None:
    one = asyncio.run(run_request(load_of(), b"{}"))
    assert one.problem is not None
    assert "refused" in one.problem or "Connect" in one.problem


def test_a_connection_that_the_system_gives_up_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gives_up(*_: Any, **__: Any) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(asyncio, "open_connection", gives_up)
    one = asyncio.run(run_request(load_of(), b"{}"))
    assert one.problem == f"[Errno {errno.ETIMEDOUT}] Connection timed out"


@pytest.mark.parametrize("count", [-1, 10**400], ids=["negative", "huge"])
def test_counts_that_cannot_be_are_not_taken(count: int) -> None:
    async def answer(reply: Reply, _: int) -> None:
        reply.begin()
        reply.text("a")
        reply.usage(7, count)
        reply.end()

    one = asked(answer)
    assert (one.problem, one.prompt_tokens, one.num_tokens) == (None, 7, 1)


@pytest.mark.slow
def test_the_client_costs_little_a_token() -> None:
    async def answer(reply: Reply, _: int) -> None:
        reply.begin()
        for _ in range(100):
            for _ in range(5):
                reply.text(" word")
            await reply.writer.drain()
            await asyncio.sleep(0.001)
        reply.end()

    async def many(url: str) -> int:
        load = load_of(url + "/v1/completions")
        return sum(one.num_tokens for one in await asyncio.gather(*[run_request(load, b"{}")] * 1))

    with serving(answer) as server:
        before = time.thread_time()
        num_tokens = asyncio.run(many(server.url))
        assert num_tokens == 500
        assert (time.thread_time() - before) / num_tokens < 100e-6
