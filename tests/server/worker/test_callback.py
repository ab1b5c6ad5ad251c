"""The ready message reaches its receiver, and no receiver's fault reaches the worker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

import inferno
from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.http_post import parse_target
from inferno.server.worker.settings import Callback
from inferno.server.worker.worker import deliver
from tests.patience import PATIENCE
from tests.server.http.serving import wait_until
from tests.server.worker.hosting import (
    Behaviour,
    Host,
    Lines,
    Receiver,
    answers,
    receiving,
    working,
)

SCRIPT = Script(vocab_size=2048, max_model_len=1024, max_num_seqs=3)


QUICK = 0.2  # seconds, for receivers from whom no answer comes


def callback(receiver: Receiver, num_attempts: int = 3, timeout: float = PATIENCE) -> Callback:
    return Callback(
        target=parse_target(receiver.url(), option="--callback-url"),
        num_attempts=num_attempts,
        timeout=timeout,
        first_delay=0.02,
        most_delay=0.05,
    )


@contextlib.contextmanager
def worker(receiver: Receiver, **how: Any) -> Iterator[Host]:
    with working(lambda: ScriptedClient(SCRIPT), callback(receiver, **how), max_queue=7) as host:
        yield host


def test_the_message_says_who_and_where_the_worker_is() -> None:
    with receiving(answers(204)) as receiver, worker(receiver) as host:
        wait_until(lambda: bool(receiver.posts))
        [message] = receiver.posts
        assert (message["type"], message["worker_id"]) == ("ready", "w-1")
        assert message["uri"] == str(host.http.base_url).rstrip("/")
        assert message["version"] == inferno.__version__
        assert message["model"]["name"] == "demo"
        assert message["model"]["max_model_len"] == 1024
        assert message["device"] == {"kind": "cpu", "index": None}
        assert message["capabilities"]["max_running_jobs"] == 3
        assert message["capabilities"]["max_waiting_jobs"] == 7
        assert message["capabilities"]["chat"] is True
        first, *headers = receiver.heads[0].split("\r\n")
        assert first == "POST /ready HTTP/1.1"
        assert f"Host: 127.0.0.1:{receiver.port}" in headers
        assert "Content-Type: application/json" in headers


def test_a_worker_that_others_reach_elsewhere_says_so() -> None:
    with receiving(answers(200)) as receiver:
        wanted = callback(receiver)
        with working(lambda: ScriptedClient(SCRIPT), wanted, uri="http://front:80/w1"):
            wait_until(lambda: bool(receiver.posts))
        assert receiver.posts[0]["uri"] == "http://front:80/w1"


def test_it_is_tried_again_until_it_is_taken(lines: Lines) -> None:
    def behave(connection: socket.socket, number: int) -> None:
        answers(503 if number < 3 else 200)(connection, number)

    with receiving(behave) as receiver, worker(receiver, num_attempts=9):
        wait_until(lambda: bool(lines.of("callback taken")))
        assert lines.of("callback taken") == [{"attempt": 3}]
        assert [each["why"] for each in lines.of("callback failed")] == ["status 503"] * 2
        assert len({post["message_id"] for post in receiver.posts}) == 1


def never_answers(connection: socket.socket, _: int) -> None:
    connection.recv(1)


def drips(connection: socket.socket, _: int) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def never_ends_its_head(connection: socket.socket, _: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-A: " + b"a" * 65536 + b"\r\n")


def speaks_another_language(connection: socket.socket, _: int) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n\r\n")


def dies(connection: socket.socket, _: int) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


FAULTS: dict[str, tuple[Behaviour | None, float, str]] = {
    "never accepts": (None, QUICK, "no answer within 0.2 seconds"),
    "never answers": (never_answers, QUICK, "no answer within 0.2 seconds"),
    "drips": (drips, QUICK, "no answer within 0.2 seconds"),
    "never ends its head": (
        never_ends_its_head,
        PATIENCE,
        "the answer has a line that is too long",
    ),
    "500": (answers(500, body=b"x" * 100), PATIENCE, "status 500"),
    "429 for a day": (answers(429, "Retry-After: 86400\r\n"), PATIENCE, "status 429"),
    "not HTTP": (speaks_another_language, PATIENCE, "the answer is not HTTP"),
    "dies": (dies, PATIENCE, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_receiver_is_given_up_while_the_worker_serves(fault: str, lines: Lines) -> None:
    behave, timeout, why = FAULTS[fault]
    with receiving(behave) as receiver, worker(receiver, timeout=timeout) as host:
        events = host.execute(job_id="meanwhile", prompt=[300, 301], max_tokens=5)
        assert events[-1][0] == "end"
        wait_until(lambda: any(said.startswith("callback given up") for said, _ in lines.lines))
        failed = lines.of("callback failed")
        assert [each["attempt"] for each in failed] == [1, 2, 3]
        assert all(why in each["why"] for each in failed), failed
        assert host.http.get("/health").status_code == 200
    assert receiver.num_connections == (0 if behave is None else 3)


def test_a_redirect_leads_nowhere(lines: Lines) -> None:
    with receiving(answers(200)) as elsewhere:
        location = f"Location: {elsewhere.url()}\r\n"
        for status in (301, 302, 307, 308):
            lines.lines.clear()
            with receiving(answers(status, location)) as receiver:
                assert not asyncio.run(deliver(callback(receiver), b"{}"))
            [*_, failed] = lines.of("callback failed")
            assert failed["why"] == f"status {status}, and redirects are not followed"
        assert elsewhere.num_connections == 0


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(answers(200)) as proxy, receiving(answers(200)) as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        assert asyncio.run(deliver(callback(receiver), b"{}"))
        assert (proxy.num_connections, receiver.num_connections) == (0, 1)


@pytest.mark.parametrize("framing", ["Content-Length: 10000000000", "Transfer-Encoding: chunked"])
def test_an_endless_body_is_left_at_its_beginning(framing: str) -> None:
    num_sent = 0

    def pours(connection: socket.socket, _: int) -> None:
        nonlocal num_sent
        connection.sendall(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode())
        if "chunked" in framing:
            connection.sendall(b"2540be400\r\n")  # one chunk of 10 GB
        while True:
            num_sent += connection.send(b"x" * 65536)

    with receiving(pours) as receiver:
        tracemalloc.start()
        # Read to its end, such a body would take longer than the test waits.
        assert asyncio.run(deliver(callback(receiver), b"{}"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 << 20
    assert num_sent < 32 << 20  # what buffers of the kernel took


def test_an_answer_that_drips_after_its_status_is_enough(lines: Lines) -> None:
    def drip_body(connection: socket.socket, _: int) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.05)

    with receiving(drip_body) as receiver:
        assert asyncio.run(deliver(callback(receiver, timeout=2.0), b"{}"))  # is waited for
        assert receiver.num_connections == 1


def test_a_worker_that_stops_tries_no_more() -> None:
    with receiving(None) as receiver, worker(receiver, num_attempts=100, timeout=4 * PATIENCE):
        pass


def test_a_worker_that_drains_tries_no_more() -> None:
    answer = Answer(token_ids=(300,), is_endless=True, delay=0.01)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=100_000)
    job = {"job_id": "a", "prompt": "x", "max_tokens": 90_000}
    with (
        receiving(answers(500)) as receiver,
        working(lambda: ScriptedClient(script), callback(receiver, num_attempts=1000)) as host,
        host.http.stream("POST", "/execute", json=job),
    ):
        wait_until(lambda: receiver.num_connections > 1)
        host.shutdown.add()
        wait_until(lambda: host.http.get("/ready").status_code == 503)
        time.sleep(0.1)
        num_before = receiver.num_connections
        time.sleep(0.3)
        assert host.engine.stats().running == 1
        assert receiver.num_connections == num_before


def test_delays_double_up_to_a_bound_and_are_drawn() -> None:
    delays: list[float] = []

    async def note(seconds: float) -> None:
        delays.append(seconds)

    with receiving(answers(500)) as receiver:
        wanted = Callback(
            target=parse_target(receiver.url(), option="--x"),
            num_attempts=8,
            first_delay=1.0,
            most_delay=10.0,
        )
        asyncio.run(deliver(wanted, b"{}", sleep=note))
    most = [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert len(delays) == len(most)
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(delays, most, strict=True))
    assert len({delay / bound for delay, bound in zip(delays, most, strict=True)}) > 1
