"""Who waits for whom before the engine: slow templates and long texts hold up nobody else."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.text.model_text import ModelText
from tests.server.hosting import Host, hosting
from tests.server.http.serving import wait_until

ECHO = Script(vocab_size=2048, max_model_len=1024)
SLOW = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
LONG = "long " * 20_000


class Held(ModelText):
    """Encodes no text of more than so many characters until it is told to."""

    def __init__(self, num_chars: int) -> None:
        super().__init__(MODEL_FOLDERS["demo"])
        self.go = threading.Event()
        self.num_held = 0
        self._num_chars = num_chars

    def encode(self, prompt: str, **options: Any) -> list[int]:
        if len(prompt) > self._num_chars:
            self.num_held += 1
            assert self.go.wait(60)
        return super().encode(prompt, **options)


@contextmanager
def holding(num_chars: int, prompt: str) -> Iterator[Host]:
    """A server that has more such prompts than threads, and is done with none of them."""
    text = Held(num_chars)
    with (
        hosting(lambda: ScriptedClient(ECHO), text) as host,
        ThreadPoolExecutor(12) as threads,
    ):
        held = [threads.submit(host.complete, prompt=prompt) for _ in range(12)]
        wait_until(lambda: text.num_held >= 2, 60)
        try:
            yield host
            assert not any(each.done() for each in held)
        finally:
            text.go.set()


@pytest.fixture(scope="module")
def slow_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server whose model's own template is slow where a conversation asks for that."""
    folder = tmp_path_factory.mktemp("model")
    for file in Path(MODEL_FOLDERS["demo"]).iterdir():
        (folder / file.name).symlink_to(file)
    own = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    (folder / "chat_template.jinja").write_text(f"{{% if slow %}}{SLOW}{{% endif %}}" + own)
    text = ModelText(folder)
    with hosting(lambda: ScriptedClient(ECHO), text, trust_request_chat_template=True) as host:
        yield host


QUICK = [
    ("/v1/completions", {"prompt": "Hello"}),
    ("/v1/completions", {"prompt": [300, 301]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
    ("/tokenize", {"prompt": "Hello"}),
    ("/tokenize", {"messages": [{"role": "user", "content": "Hello"}]}),
    ("/detokenize", {"tokens": [300]}),
]


@pytest.mark.parametrize(
    "slow",
    [
        {"chat_template_kwargs": {"slow": True}},
        {"chat_template": SLOW},
        {"chat_template": "{{ 3 * 9**99999999 }}"},
        {"chat_template": "{{ 'a' * 4 * 10**8 }}" * 9},
    ],
    ids=["own", "loops", "power", "memory"],
)
def test_slow_templates_hold_up_nobody_else(slow_host: Host, slow: dict[str, Any]) -> None:
    with ThreadPoolExecutor(24) as threads:
        held = [threads.submit(slow_host.chat, "Hello", **slow) for _ in range(24)]
        for path, fields in QUICK:
            answer = slow_host.http.post(path, json=fields)
            assert answer.status_code == 200, answer.text
            assert sum(each.done() for each in held) < 24
        slow_host.text.close()  # the others are not worth waiting for
    for each in held:
        assert each.result().json()["error"]["code"] == "unsupported_by_model"


@pytest.mark.parametrize(("path", "fields"), [QUICK[1]])
def test_token_ids_do_not_wait_for_texts(path: str, fields: dict[str, Any]) -> None:
    with holding(0, "Hello") as host:
        assert host.http.post(path, json=fields).status_code == 200
        ids = [1] * 20_000  # too many for the event loop; and for the context
        assert host.http.post(path, json={"prompt": ids}).status_code == 400


def test_short_texts_do_not_wait_for_long_ones() -> None:
    with holding(len(LONG) - 1, LONG) as host:
        for path, fields in QUICK:
            assert host.http.post(path, json=fields).status_code == 200


def crowd(host: Host, path: str, fields: dict[str, Any], size: int) -> list[socket.socket]:
    """Clients that have asked for this."""
    url = host.http.base_url
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    clients = [socket.create_connection((url.host, url.port or 80)) for _ in range(size)]
    for client in clients:
        client.sendall(head.encode() + body)
    return clients


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_a_text_whose_client_left_is_not_encoded(path: str) -> None:
    text = Held(len(LONG) - 1)
    with hosting(lambda: ScriptedClient(ECHO), text) as host:
        try:
            clients = crowd(host, path, {"prompt": LONG}, 12)
            wait_until(lambda: text.num_held == 2 and num_open(host) == 12, 60)
            for client in clients:
                client.close()
            wait_until(lambda: num_open(host) == 0, 60)
        finally:
            text.go.set()
        assert host.complete(prompt=LONG).status_code == 400  # it is too long, once it is encoded
        assert text.num_held == 3


def num_open(host: Host) -> int:
    """How many requests are with the endpoints."""
    [line] = [
        line
        for line in host.http.get("/metrics").text.splitlines()
        if line.startswith("inferno_http_requests_open ")
    ]
    return int(float(line.split()[1]))


def test_a_conversation_whose_client_left_is_not_rendered(slow_host: Host) -> None:
    message = {"role": "user", "content": "a"}
    fields = {"messages": [message], "chat_template_kwargs": {"slow": 1}}
    clients = crowd(slow_host, "/v1/chat/completions", fields, 40)
    renderer = slow_host.text._chat_template._renderer  # type: ignore[union-attr]
    wait_until(lambda: renderer.num_waiting > 20, 60)
    for client in clients:
        client.close()
    wait_until(lambda: renderer.num_waiting == 0, 60)
