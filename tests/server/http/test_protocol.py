"""Clients that send too much, too slowly, or never read; on real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import suppress

import pytest

from tests.server.http.serving import Answered, RunningServer, serving, wait_until

HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PLAIN = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"


def _open_requests(server: RunningServer) -> int:
    return int(server.metric("inferno_http_requests_open"))


def test_a_request_is_answered_and_the_connection_kept() -> None:
    with serving() as server, server.connect() as client:
        for _ in range(3):
            client.sendall(HEAD + b"Content-Length: 4\r\n\r\n1234")
            assert client.recv(4096).endswith(b"\r\n\r\n1\r\n4\r\n0\r\n\r\n")


@pytest.mark.parametrize("start", [b"", b"GET /hea", HEAD], ids=["idle", "line", "head"])
def test_slow_heads_end_at_the_deadline(start: bytes) -> None:
    with serving(header_timeout=1.0) as server:
        clients = []
        for _ in range(300):
            clients.append(server.connect())
            clients[-1].sendall(start)  # at once: who is silent until the deadline gets no answer
        began = time.monotonic()
        while time.monotonic() < began + 0.7 and start:
            for client in clients:
                with suppress(OSError):  # a slow machine may be past the deadline already
                    client.sendall(b"x")  # a byte now and then doesn't help
            time.sleep(0.05)
        answers = [Answered.read(client) for client in clients]
        assert {answer.status for answer in answers} == ({408} if start else {0})
        assert server.ask("GET", "/health").status == 200


def test_a_slow_body_ends_at_the_deadline() -> None:
    with serving(body_timeout=0.3) as server, server.connect() as client:
        client.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
        began = time.monotonic()
        for _ in range(4):
            client.sendall(b"x")
            time.sleep(0.05)
        answer = Answered.read(client)
        assert (answer.status, answer.code) == (408, "slow_body")
        assert time.monotonic() - began > 0.25
        wait_until(lambda: _open_requests(server) == 0)


def test_a_body_that_comes_in_time_is_read_to_its_end() -> None:
    with serving(body_timeout=60.0) as server, server.connect() as client:
        client.sendall(HEAD + b"Connection: close\r\nContent-Length: 3\r\n\r\n")
        for _ in range(3):
            time.sleep(0.05)
            client.sendall(b"x")
        assert Answered.read(client).body == b"3"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"x" * 10_000_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (HEAD + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (HEAD + b"Content-Length: 9223372036854775808000\r\n\r\nab", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n8000000000000000;a=b\r\n", 400),
        (b"\r\n\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Late: 1\r\n\r\n", 400),
        (b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT /x HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\n\r\n", 400),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
    ids=lambda value: None if isinstance(value, int) else str(len(value)),
)
def test_what_is_no_request_of_ours_is_refused(raw: bytes, status: int) -> None:
    with serving() as server:
        answer = server.send(raw)
        assert answer.status == status
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert answer.headers["connection"] == "close"
        assert answer.headers["x-request-id"].startswith("req-")
        assert server.ask("GET", "/health").status == 200


def test_a_refusal_is_called_by_the_requests_own_id() -> None:
    with serving() as server:
        answer = server.send(HEAD + b"X-Request-Id: mine\r\nA: " + b"a" * 40_000)
        assert (answer.status, answer.headers["x-request-id"]) == (431, "mine")


def _chunks(total: int, size: int) -> bytes:
    chunk = b"%x\r\n%s\r\n" % (size, b"x" * size)
    return chunk * (total // size) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 100000000\r\n\r\n" + b"x" * 1_000_000,
        b"Content-Length: 9223372036854775808\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + _chunks(1_000_000, 1000),
        b"Transfer-Encoding: chunked\r\n\r\n" + _chunks(101_000, 1000),
        b"Transfer-Encoding: chunked\r\n\r\n" + _chunks(300_000, 1),
        b"Transfer-Encoding: chunked\r\n\r\n1;" + b"e" * 1_000_000 + b"\r\nx\r\n0\r\n\r\n",
    ],
    ids=["length", "enormous", "chunked", "just over", "bytes", "extensions"],
)
def test_a_body_over_the_limit_is_413(body: bytes) -> None:
    with serving(max_body=100_000) as server:
        answer = server.send(HEAD + b"Connection: close\r\n" + body)
        assert (answer.status, answer.code) == (413, "body_too_large")
        wait_until(lambda: _open_requests(server) == 0)


@pytest.mark.parametrize("chunk", [1, 1000])
def test_a_body_at_the_limit_is_taken(chunk: int) -> None:
    with serving(max_body=10_000) as server:
        close = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert server.send(HEAD + close + _chunks(10_000, chunk)).body == b"10000"


def test_an_answer_before_the_body_says_that_no_other_request_can_follow() -> None:
    with serving() as server, server.connect() as client:
        client.sendall(PLAIN + b"Content-Length: 2\r\n\r\n")
        answer = Answered.read(client)
        assert (answer.status, answer.headers["connection"]) == (415, "close")


def test_who_sends_on_after_an_early_answer_is_heard_out() -> None:
    with serving() as server, server.connect() as client:
        client.sendall(PLAIN + b"Content-Length: 1000000\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 415 ")
        for _ in range(10):  # a connection that is closed would be reset by the first of these
            client.sendall(b"x" * 100_000)
            time.sleep(0.01)
        assert client.recv(1 << 16) == b""


def test_a_refused_request_that_came_whole_leaves_the_connection_open() -> None:
    with serving() as server, server.connect() as client:
        client.sendall(PLAIN + b"Content-Length: 2\r\n\r\n{}")
        answer = Answered.parse(client.recv(1 << 16))
        assert (answer.status, answer.code) == (415, "content_type")  # head and body in one piece
        assert "connection" not in answer.headers
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert Answered.read(client).status == 200


def test_a_client_waits_for_100_continue() -> None:
    with serving() as server, server.connect() as client:
        client.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        assert b" 200 OK" in client.recv(4096)


def test_a_client_that_waits_is_told_413_and_not_to_go_on() -> None:
    with serving(max_body=10) as server, server.connect() as client:
        client.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 2000\r\n\r\n")
        assert Answered.read(client).status == 413


def test_a_client_that_would_rather_speak_http_2_is_answered() -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    with serving() as server, server.connect() as client:
        for cut in (10, 150, 1000):  # where the first packet ends
            raw = HEAD + upgrade + b"Content-Length: 4\r\n\r\n1234"
            client.sendall(raw[:cut])
            time.sleep(0.05)
            client.sendall(raw[cut:])
            assert client.recv(4096).endswith(b"\r\n\r\n1\r\n4\r\n0\r\n\r\n")


def test_a_second_request_before_the_first_answer_ends_the_connection() -> None:
    with serving() as server, server.connect() as client:
        ask = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
        client.sendall(
            ask.replace(b"Host: a", b"Host: localhost\r\nContent-Type: application/json")
        )
        wait_until(lambda: _open_requests(server) == 1)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: _open_requests(server) == 0)  # and its request is ended


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_a_client_that_leaves_ends_its_request(reset: bool) -> None:
    with serving() as server:
        client = _start_stream(server)
        wait_until(lambda: server.metric('inferno_kv_blocks{state="used"}') == 1)
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        wait_until(lambda: server.metric('inferno_kv_blocks{state="used"}') == 0)
        wait_until(lambda: server.metric('inferno_aborts_total{reason="disconnect"}') == 1)
        assert server.metric('inferno_requests_finished_total{reason="aborted"}') == 1


def _start_stream(server: RunningServer, padding: int = 0, **kwargs: int) -> socket.socket:
    client = server.connect(**kwargs)
    body = b'{"padding": %d}' % padding
    client.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    return client


def test_a_client_that_never_reads_is_ended() -> None:
    with serving(write_timeout=0.3) as server:
        clients = [_start_stream(server, 20_000, receive_buffer=1024) for _ in range(5)]
        wait_until(lambda: server.metric('inferno_kv_blocks{state="used"}') == 5)
        stalled = 'inferno_rejected_total{reason="client_does_not_read"}'
        wait_until(lambda: server.metric(stalled) == 5)
        wait_until(lambda: server.metric('inferno_kv_blocks{state="used"}') == 0)
        for client in clients:
            client.close()


def test_a_client_that_reads_slowly_is_served() -> None:
    with serving(write_timeout=4.0) as server:
        with _start_stream(server, 20_000, receive_buffer=1024) as client:
            until = time.monotonic() + 5.0
            while time.monotonic() < until:
                assert client.recv(20_000)
                time.sleep(0.05)
        assert server.metric('inferno_rejected_total{reason="client_does_not_read"}') == 0


def test_a_full_house_makes_room_for_a_newcomer() -> None:
    with serving(max_connections=20) as server:
        idle = [server.connect() for _ in range(40)]
        assert server.ask("GET", "/health").status == 200
        with _start_stream(server) as busy:
            more = [server.connect() for _ in range(40)]
            assert server.ask("GET", "/health").status == 200
            assert busy.recv(100)  # whoever is being served stays
            for client in idle + more:
                client.close()


def test_clients_are_served_side_by_side() -> None:
    with serving() as server:
        answers: list[int] = []

        def ask() -> None:
            body = {"max_tokens": 20}
            answers.append(server.ask("POST", "/v1/completions", body).body.count(b"data: 1"))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [20] * 8


CHUNKED = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"ffffffffffffffff\r\n", 400),
        (b"fffffffffffffff\r\n", 413),
        (b"186a1\r\n", 413),
        (b"1;" + b"e" * 1_000_000, 413),
        (b"1;" + b"e" * 2000 + b"\r\nx\r\n", 413),
        (b"0" * 5000, 413),
        (b"1\r\na\r\n0;" + b"e" * 2000, 413),
    ],
    ids=lambda value: None if isinstance(value, int) else str(value[:20]),
)
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_a_chunk_that_can_not_be_taken_is_refused_before_it_comes(
    body: bytes, status: int, size: int
) -> None:
    with serving(max_body=100_000, body_timeout=600, header_timeout=600) as server:
        raw = CHUNKED + body[: 6000 if size == 1 else None]
        with server.connect() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(ConnectionError):
                for at in range(0, len(raw), size):
                    client.sendall(raw[at : at + size])
            answer = Answered.read(client)
        assert answer.status == status


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_are_read_however_they_are_cut(size: int) -> None:
    body = b"5;a=b\r\nhello\r\n00a\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n"
    with serving() as server, server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw = b"\r\n" + CHUNKED + body
        for at in range(0, len(raw), size):
            client.sendall(raw[at : at + size])
        assert Answered.read(client).body == b"16"


@pytest.mark.parametrize("keeps", [b"", b"Connection: keep-alive\r\n"])
def test_a_client_of_http_1_0_gets_no_chunks(keeps: bytes) -> None:
    plain = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + keeps
    stream = plain.replace(b"/echo", b"/v1/completions")
    with serving() as server:
        answer = server.send(plain + b"Content-Length: 4\r\n\r\n1234")
        assert "transfer-encoding" not in answer.headers
        assert (answer.headers["connection"], answer.body) == ("close", b"4")
        body = b'{"max_tokens": 3}'
        answer = server.send(stream + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert "transfer-encoding" not in answer.headers
        assert answer.body == b"data: 1\n\n" * 3
        answer = server.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert answer.headers["content-length"] == str(len(answer.body))


def test_a_body_whose_framing_outweighs_it_is_refused() -> None:
    with serving(max_body=100_000) as server:
        answer = server.send(CHUNKED + b"1\r\na\r\n" * 80_000 + b"0\r\n\r\n")
        assert (answer.status, answer.code) == (413, "body_too_large")
        answer = server.send(CHUNKED + _chunks(90_000, 10))
        assert answer.body == b"90000"
