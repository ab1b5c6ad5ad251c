"""A client that leaves ends its requests, and nobody else's."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from tests.patience import PATIENCE
from tests.server.events import choices_of, joined
from tests.server.hosting import Host, hosting
from tests.server.http.serving import wait_until


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    answer = Answer(token_ids=(300,), is_endless=True, first_delay=0.05, delay=0.02)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=1024)
    with hosting(lambda: ScriptedClient(script)) as host:
        yield host


def ask(
    host: Host, path: str, fields: dict[str, Any], *, receive_buffer: int | None = None
) -> socket.socket:
    url = host.http.base_url
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(PATIENCE)
    client.connect((url.host, url.port or 80))
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return client


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/completions", {"prompt": ["a", "b", "c"]}),
    ],
)
def test_leaving_frees_every_sample(
    host: Host, path: str, prompt: dict[str, Any], is_stream: bool, is_reset: bool
) -> None:
    num_sequences = 3 * len(prompt.get("prompt", "x"))
    staying = ask(host, "/v1/completions", {"prompt": "stays", "max_tokens": 500, "stream": True})
    client = ask(host, path, {**prompt, "max_tokens": 500, "n": 3, "stream": is_stream})
    wait_until(lambda: host.engine.stats().running == num_sequences + 1)
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    wait_until(lambda: host.engine.stats().running == 1)
    assert staying.recv(1 << 16).startswith(b"HTTP/1.1 200")
    staying.close()
    wait_until(lambda: host.engine.stats().running == 0)


def test_a_stop_string_frees_its_sample_while_others_go_on(host: Host) -> None:
    text = host.text.tokenizer.decode([300])
    fields = {"prompt": "a", "max_tokens": 20, "stop": text * 3}
    answer = host.complete(**fields).json()["choices"][0]
    assert (answer["finish_reason"], answer["stop_reason"]) == ("stop", text * 3)
    assert host.engine.stats().running == 0


def test_a_slow_reader_gets_all_of_it_in_fewer_pieces() -> None:
    num_tokens = 20_000
    answer = Answer(token_ids=(300, 301, 302), is_endless=True)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=num_tokens + 10)
    with hosting(lambda: ScriptedClient(script)) as host:
        fields = {"prompt": "a", "max_tokens": num_tokens, "stream": True}
        fields |= {"return_token_ids": True, "ignore_eos": True}
        client = ask(host, "/v1/completions", fields, receive_buffer=4096)
        wait_until(lambda: host.engine.stats().generated_tokens == num_tokens)
        with client, client.makefile("rb") as stream:
            told = iter(stream.readline, b"data: [DONE]\n")
            lines = [line for line in told if line.startswith(b"data: ")]
    choices = choices_of(json.loads(line.removeprefix(b"data: ")) for line in lines)
    ids = joined(choice["token_ids"] for choice in choices)
    assert ids == [300 + i % 3 for i in range(num_tokens)]
    assert "".join(choice["text"] for choice in choices) == host.text.tokenizer.decode(ids)
    assert len(choices) < num_tokens / 2
