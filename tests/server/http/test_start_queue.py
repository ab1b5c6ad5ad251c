"""A crowd waits in line, and who asks how the server is does not."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.server.http import ServerMiddleware
from inferno.server.http.middleware import StartQueue
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.server.http.direct import asked
from tests.server.http.serving import ENDLESS, Answered, serving


def test_few_begin_in_each_turn_of_the_loop_and_in_the_order_in_which_they_came() -> None:
    async def crowd() -> list[tuple[int, int]]:
        queue, begun = StartQueue(at_once=3), list[tuple[int, int]]()
        num_iterations = 0

        async def one(number: int) -> None:
            await queue.wait()
            begun.append((number, num_iterations))

        tasks = [asyncio.create_task(one(number)) for number in range(20)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            num_iterations += 1
        return begun

    begun = asyncio.run(crowd())
    assert [number for number, _ in begun] == list(range(20))
    per_iteration = [iteration for _, iteration in begun]
    assert max(per_iteration.count(iteration) for iteration in per_iteration) == 3


def test_who_comes_alone_does_not_wait() -> None:
    async def alone() -> None:
        queue = StartQueue(at_once=1)
        for _ in range(5):
            waiting = queue.wait()
            with pytest.raises(StopIteration):
                waiting.send(None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(alone())


def test_who_leaves_the_line_holds_up_nobody() -> None:
    async def crowd() -> int:
        queue = StartQueue(at_once=2)
        tasks = [asyncio.create_task(queue.wait()) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[2:18]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sum(not task.cancelled() for task in tasks)

    assert asyncio.run(asyncio.wait_for(crowd(), 10)) == 4


def test_health_passes_by_those_that_are_sent_away() -> None:
    async def crowd() -> list[str]:
        engine = ScriptedClient(Script(load_seconds=3600))
        await engine.start()
        middleware = ServerMiddleware(_never, ROUTES, ServerSettings(), engine)
        done: list[str] = []

        async def one(method: str, path: str) -> None:
            await asked(middleware, method, path)
            done.append(path)

        asking = [one("POST", "/v1/completions") for _ in range(200)]
        await asyncio.gather(*asking, one("GET", "/health"))
        await engine.close()
        return done

    assert asyncio.run(crowd()).index("/health") < 20


async def _never(*_: object) -> None:
    raise AssertionError("nobody is let through")


def test_health_passes_by_a_crowd_of_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Also by those that the system has not handed over yet."""
    crowd, request = 300, b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(ENDLESS, until_ready=False, max_connections=1000) as server:
        first = server.ask("GET", "/health")  # it runs
        assert first.status == 200
        loop, held = _loop_of(server.engine), threading.Event()
        loop.call_soon_threadsafe(held.wait)
        clients = [server.connect() for _ in range(crowd)]
        for client in clients:
            client.sendall(request)
        with server.connect() as asks, caplog.at_level(logging.DEBUG, logger="inferno.access"):
            asks.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            held.set()
            assert Answered.read(asks).status == 200
            for client in clients:
                assert client.recv(1, socket.MSG_PEEK)
                client.close()
        routes = [getattr(record, "fields", {}).get("route") for record in caplog.records]
        assert routes.index("/health") < crowd * 0.75


def _loop_of(engine: ScriptedClient) -> asyncio.AbstractEventLoop:
    assert engine._loading is not None
    return engine._loading.get_loop()
