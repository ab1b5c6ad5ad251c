"""The deadline of a request: it counts from the last byte of the body on, whatever is done then."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.requests import Request
from inferno.server.model_service import _NUM_THREADS
from inferno.text.model_text import ModelText
from inferno.text.sequence_texts import SequenceTexts
from tests.patience import PATIENCE
from tests.server.hosting import Host, hosting
from tests.server.http.serving import Answered

ECHO = Script(vocab_size=2048, max_model_len=1024)
LARGE = "[" + "1," * 140_000 + "1]"  # read beside the event loop
HELD_SECONDS = PATIENCE  # unless the test is over first


class Held(ModelText):
    """Encodes nothing, and makes no large requests, until it is told to."""

    def __init__(self) -> None:
        super().__init__(MODEL_FOLDERS["demo"])
        self.go = threading.Event()
        self.holding = threading.Semaphore(0)  # released by each large request that is held

    def encode(self, *args: Any, **options: Any) -> list[int]:
        self.go.wait(HELD_SECONDS)
        return super().encode(*args, **options)

    def finish_chat(self, *args: Any, **options: Any) -> list[int]:
        self.go.wait(HELD_SECONDS)
        return super().finish_chat(*args, **options)

    def request(self, texts: SequenceTexts, **options: Any) -> Request:
        if len(texts.prompt_token_ids) > 10_000:
            self.holding.release()
            self.go.wait(HELD_SECONDS)
        return super().request(texts, **options)


@contextmanager
def held(text: Held | None = None, **settings: Any) -> Iterator[Host]:
    text = text or Held()
    with hosting(lambda: ScriptedClient(ECHO), text, **settings) as host:
        try:
            yield host
        finally:
            text.go.set()


ASK: list[Callable[[Host], httpx.Response]] = [
    lambda host: host.complete(prompt="Hello"),
    lambda host: host.complete(prompt="Hello", stream=True),
    lambda host: host.chat("Hello"),
    lambda host: host.http.post("/tokenize", json={"prompt": "Hello"}),
]


@pytest.mark.parametrize("ask", ASK, ids=["completion", "stream", "chat", "tokenize"])
def test_it_passes_while_the_prompt_is_made(ask: Callable[[Host], httpx.Response]) -> None:
    with held(request_timeout=0.1) as host:
        answer = ask(host)
        metrics = host.http.get("/metrics").text
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert 'inferno_rejected_total{reason="deadline_exceeded"} 1.0' in metrics


def test_the_requests_own_is_kept_while_the_prompt_is_made() -> None:
    with held() as host:
        answer = host.complete(prompt="Hello", timeout=1)
    assert answer.json()["error"]["code"] == "deadline_exceeded"


def test_it_passes_while_the_body_waits_to_be_read() -> None:
    text = Held()
    with held(text, request_timeout=2.0) as host:
        ids = {"prompt": [1] * 20_000}
        waiting = [threading.Thread(target=host.complete, kwargs=ids) for _ in range(4)]
        for thread in waiting:
            thread.start()
        for _ in range(_NUM_THREADS):  # until they hold all that could read it
            assert text.holding.acquire(timeout=PATIENCE)
        answer = host.http.post(
            "/detokenize",
            content=f'{{"tokens":{LARGE}}}',
            headers={"Content-Type": "application/json"},
        )
        for thread in waiting:
            thread.join()
    assert answer.json()["error"]["code"] == "deadline_exceeded"


def test_a_body_that_comes_slowly_costs_nothing_of_it() -> None:
    body = b'{"prompt": [5, 6], "max_tokens": 2}'
    with hosting(lambda: ScriptedClient(ECHO), request_timeout=3.0) as host:
        url = host.http.base_url
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port), timeout=PATIENCE) as client:
            client.sendall(head.encode() + body[:5])
            time.sleep(3.2)
            client.sendall(body[5:])
            answer = Answered.read(client)
    assert answer.status == 200, answer.body
