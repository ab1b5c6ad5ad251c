"""The way through the middleware: bodies, ids, mistakes, and what nobody serves."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.errors import EngineDied
from inferno.requests import Request, SamplingParams
from inferno.server.http import ServerMiddleware, admission_of, context_of
from inferno.server.http.context import Receive, Scope, Send
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.server.http.direct import JSON, LOCAL, ask, asked, in_middleware


@pytest.mark.parametrize(
    "content_type",
    [
        *(
            b"application/json",
            b"Application/JSON; charset=utf-8",
            b'application/json;charset="UTF-8"',
        ),
        b"application/json;",
    ],
)
def test_json_in_utf_8_is_taken(content_type: bytes) -> None:
    headers = [LOCAL, (b"content-type", content_type)]
    assert ask(in_middleware(), "POST", "/echo", headers, [b"12", b"34"]).body == b"4"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"multipart/form-data; boundary=x")],
        [(b"content-type", b"application/x-www-form-urlencoded; !=" + b'"\\' * 10_000)],
        [(b"content-type", b"application/json;charset=utf-16")],
        [(b"content-type", b"application/jsonp")],
        [JSON, JSON],
        [JSON, (b"content-encoding", b"gzip")],
        [JSON, (b"content-encoding", b"identity, deflate")],
        [JSON, (b"transfer-encoding", b"gzip, chunked")],
    ],
)
def test_any_other_body_is_415(method: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert ask(in_middleware(), method, "/echo", [LOCAL, *headers], [b"{}"]).status == 415


def test_all_bodies_together_are_bounded() -> None:
    async def crowd() -> list[int]:
        held = asyncio.Event()
        middleware = ServerMiddleware(_never, ROUTES, ServerSettings(max_body=100), await _ready())
        statuses: list[int] = []

        async def one() -> None:
            parts = [b"x" * 99]

            async def receive() -> dict[str, object]:
                if not parts:
                    await held.wait()
                    return {"type": "http.disconnect"}
                return {"type": "http.request", "body": parts.pop(), "more_body": True}

            async def send(message: object) -> None:
                statuses.append(message["status"]) if "status" in message else None  # type: ignore

            scope = {"type": "http", "method": "POST", "path": "/echo", "http_version": "1.1"}
            await middleware({**scope, "headers": [LOCAL, JSON]}, receive, send)

        tasks = [asyncio.create_task(one()) for _ in range(20)]
        await asyncio.sleep(0.01)
        held.set()
        await asyncio.gather(*tasks)
        assert middleware.metrics.num_open == 0
        return statuses

    assert asyncio.run(crowd()) == [503] * 4


def test_bodies_that_were_read_make_room_for_others() -> None:
    middleware = in_middleware(max_body=100)
    statuses = {ask(middleware, "POST", "/echo", body=[b"x" * 100]).status for _ in range(40)}
    assert statuses == {200}


@pytest.mark.parametrize(("is_admitted", "refused"), [(False, [503] * 4), (True, [])])
def test_bodies_count_until_the_engine_has_the_requests(
    is_admitted: bool, refused: list[int]
) -> None:
    held = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if is_admitted:
            admission_of(scope).acquire(1, context=context_of(scope))
        await held.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def crowd() -> list[int]:
        middleware = ServerMiddleware(app, ROUTES, ServerSettings(max_body=100), await _ready())
        asking = [
            asyncio.create_task(asked(middleware, "POST", "/echo", body=[b"x" * 100]))
            for _ in range(20)
        ]
        done, _ = await asyncio.wait(asking, timeout=0.1)
        held.set()
        await asyncio.gather(*asking)
        again = await asked(middleware, "POST", "/echo", body=[b"x" * 100])
        assert again.status == 200
        return [each.result().status for each in done]

    assert asyncio.run(crowd()) == refused


async def _never(*_: object) -> None:
    raise AssertionError("no body was whole")


async def _ready(script: Script | None = None) -> ScriptedClient:
    engine = ScriptedClient(script)
    await engine.wait_ready()
    return engine


@pytest.mark.parametrize("given", [b"abc-1.2_3:4", b"x" * 128])
def test_a_harmless_request_id_comes_back(given: bytes) -> None:
    answer = ask(in_middleware(), "GET", "/health", [LOCAL, (b"x-request-id", given)])
    assert answer.headers["x-request-id"] == given.decode()


@pytest.mark.parametrize("given", [b"", b"a b", b"a\r\nb: c", b"\x1b[31m", b"x" * 129, b"\xff"])
def test_any_other_is_replaced(given: bytes) -> None:
    answer = ask(in_middleware(), "GET", "/nowhere", [LOCAL, (b"x-request-id", given)])
    assert re.fullmatch(r"req-[0-9a-f]{24}", answer.headers["x-request-id"])


def test_a_mistake_of_ours_is_an_opaque_500(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="inferno.access"):
        answer = ask(in_middleware(), "POST", "/broken")
    assert (answer.status, answer.code) == (500, "internal_error")
    assert answer.headers["x-request-id"] in answer.json["error"]["message"]
    assert b"secret" not in answer.body
    assert caplog.records[0].exc_info is not None


def test_websockets_get_no_answer() -> None:
    async def connect() -> None:
        await middleware({"type": "websocket", "path": "/", "headers": []}, _never_receive, _never)

    middleware = in_middleware()
    asyncio.run(connect())


async def _never_receive() -> dict[str, object]:
    raise AssertionError


def test_health_and_readiness_follow_the_engine() -> None:
    async def life() -> list[tuple[int, int, int]]:
        engine = ScriptedClient(
            Script(answers=(Answer(dies_after=0),), load_seconds=0.05, restart_seconds=0.05)
        )
        middleware = ServerMiddleware(_never, ROUTES, ServerSettings(), engine)
        seen = []

        async def look() -> None:
            answers = [
                await asked(middleware, method, path)
                for method, path in (("GET", "/health"), ("GET", "/ready"), ("POST", "/tokenize"))
            ]
            assert all("retry-after" in each.headers for each in answers[1:] if each.status == 503)
            health, ready, other = (each.status for each in answers)
            seen.append((health, ready, other))

        await engine.start()
        await look()
        await engine.wait_ready()
        middleware.admission.is_draining = True
        await look()
        middleware.admission.is_draining = False
        request = Request(request_id="r", prompt_token_ids=(1,), params=SamplingParams())
        with pytest.raises(EngineDied):
            await anext(engine.generate(request))
        await look()
        await engine.close()
        await look()
        return seen

    assert asyncio.run(life()) == [
        (200, 503, 503),
        (200, 503, 503),
        (503, 503, 503),
        (503, 503, 503),
    ]


def test_health_says_how_often_the_engine_failed_and_when_it_is_tried_again() -> None:
    async def life() -> None:
        script = Script(answers=(Answer(dies_after=0),), restart_seconds=3000)
        engine = await _ready(script)
        middleware = ServerMiddleware(_never, ROUTES, ServerSettings(), engine)
        request = Request(request_id="a", prompt_token_ids=(1,), params=SamplingParams())
        with pytest.raises(EngineDied):
            await anext(engine.generate(request))
        health = await asked(middleware, "GET", "/health")
        assert (health.status, health.json["status"]) == (503, "restarting")
        assert health.json["failures_in_a_row"] == 1
        assert 2900 < health.json["next_try_in_seconds"] <= 3000
        assert re.search(
            "another one is started in [0-9]+ seconds", health.json["error"]["message"]
        )
        refused = await asked(middleware, "POST", "/v1/completions")
        assert 2900 < int(refused.headers["retry-after"]) <= 3000

    asyncio.run(life())
