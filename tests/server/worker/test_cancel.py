"""A job ends early when it is cancelled or left; its id and its blocks are free at once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from tests.patience import PATIENCE
from tests.server.http.serving import wait_until
from tests.server.worker.hosting import Host, event_of, working

ENDLESS = {"prompt": "x", "max_tokens": 900, "ignore_eos": True}


@contextmanager
def job(host: Host, job_id: str, **fields: Any) -> Iterator[Iterator[tuple[str, Any]]]:
    """A job under way, and its events."""
    with host.http.stream("POST", "/execute", json={"job_id": job_id, **ENDLESS, **fields}) as told:
        assert told.status_code == 200
        yield _events(told)


def _events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    rest = ""
    for part in answer.iter_text():
        *blocks, rest = (rest + part).split("\n\n")
        yield from (event_of(block) for block in blocks if not block.startswith(":"))


def cancel(host: Host, job_id: str) -> tuple[int, str]:
    answer = host.http.post("/cancel", json={"job_id": job_id})
    told = answer.json()
    return answer.status_code, told.get("status") or told["error"]["code"]


def test_a_cancelled_job_ends_with_what_came_of_it(endless: Host) -> None:
    with job(endless, "a") as events:
        assert next(events)[0] == "started"
        assert next(events)[0] == "token"
        assert cancel(endless, "a") == (200, "cancelling")
        *rest, (name, end) = list(events)
    assert (name, end["stop_reason"], end["stop"]) == ("end", "cancelled", None)
    num_sent = 1 + sum(kind == "token" for kind, _ in rest)
    assert end["counts"]["completion_tokens"] == num_sent
    assert end["counts"]["reasoning_tokens"] is None
    assert endless.engine.stats().running == 0


def test_a_job_of_the_same_id_is_refused_while_the_first_is_under_way(endless: Host) -> None:
    with job(endless, "a") as events:
        next(events)
        answer = endless.http.post("/execute", json={"job_id": "a", "prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "duplicate_job")
        with job(endless, "b", max_tokens=2) as others:
            assert list(others)[-1][0] == "end"
        cancel(endless, "a")
        assert list(events)[-1][0] == "end"
    with job(endless, "a", max_tokens=1) as events:
        assert list(events)[-1][0] == "end"


def test_what_is_not_under_way_cannot_be_cancelled(endless: Host) -> None:
    assert cancel(endless, "never") == (404, "job_not_found")
    with job(endless, "a", max_tokens=1) as events:
        list(events)
    assert cancel(endless, "a") == (404, "job_not_found")
    assert endless.http.post("/cancel", json={}).status_code == 400


@pytest.mark.parametrize("is_reset", [False, True])
def test_leaving_frees_the_jobs_blocks_and_its_id(endless: Host, is_reset: bool) -> None:
    url = endless.http.base_url
    client = socket.create_connection((url.host, url.port or 80), timeout=PATIENCE)
    body = json.dumps({"job_id": "left", **ENDLESS}).encode()
    head = b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: endless.engine.stats().blocks_used == 1)
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    wait_until(lambda: endless.engine.stats().blocks_used == 0)
    wait_until(lambda: cancel(endless, "left") == (404, "job_not_found"))


def test_a_job_that_was_refused_leaves_its_id(endless: Host) -> None:
    wrong = {"job_id": "again", "prompt": "x", "min_tokens": 9, "max_tokens": 1}
    for _ in range(2):
        answer = endless.http.post("/execute", json=wrong)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "min_tokens")


def test_a_job_that_waits_for_its_first_token_can_be_cancelled() -> None:
    script = Script(answers=(Answer(token_ids=(300,), first_delay=600),), vocab_size=2048)
    with working(lambda: ScriptedClient(script)) as host, job(host, "slow") as events:
        assert next(events)[0] == "started"
        cancel(host, "slow")
        told = list(events)
        assert [name for name, _ in told] == ["metrics", "end"]
        assert told[-1][1]["stop_reason"] == "cancelled"
        assert told[-1][1]["timings"]["time_to_first_token_ms"] is None


def test_cancelling_frees_the_engine_though_the_client_does_not_read() -> None:
    script = Script(
        answers=(Answer(token_ids=(300,), is_endless=True),),
        vocab_size=2048,
        max_model_len=2_000_000,
    )
    with working(lambda: ScriptedClient(script)) as host:
        url = host.http.base_url
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((url.host, url.port or 80))
            body = json.dumps({"job_id": "deaf", "prompt": "x", "max_tokens": 10**6}).encode()
            head = b"POST /execute HTTP/1.1\r\nHost: localhost\r\n"
            client.sendall(head + b"Content-Type: application/json\r\n")
            client.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: host.engine.stats().generated_tokens > 50_000)  # buffers are full
            cancel(host, "deaf")
            wait_until(lambda: host.engine.stats().running == 0)


def test_a_worker_that_drains_still_cancels() -> None:
    answer = Answer(token_ids=(300,), is_endless=True, delay=0.01)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=100_000)
    ended: list[Any] = []
    with (
        working(lambda: ScriptedClient(script), drain_timeout=PATIENCE) as host,
        job(host, "last", max_tokens=90_000) as events,
    ):
        next(events)
        draining = threading.Thread(target=lambda: ended.extend(events))
        host.shutdown.add()
        wait_until(lambda: host.http.get("/ready").status_code == 503)
        draining.start()
        refused = host.http.post("/execute", json={"job_id": "new", "prompt": "x"})
        assert refused.status_code == 503
        assert cancel(host, "last") == (200, "cancelling")
        draining.join(10)
    assert ended[-1][1]["stop_reason"] == "cancelled"
