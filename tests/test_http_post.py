"""One POST: to where a person said and nowhere else, and an answer whatever its framing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from inferno.errors import InvalidRequest
from inferno.http_post import Target, parse_target, post
from tests.patience import PATIENCE


def test_a_target_is_what_the_url_says() -> None:
    assert parse_target("http://a.b", option="--x") == Target("a.b", 80, "a.b", "/", False)
    assert parse_target("https://a.b/c?d=e", option="--x") == Target(
        "a.b", 443, "a.b", "/c?d=e", True
    )
    assert parse_target("http://a_b-c.d.:80/@e", option="--x").host == "a_b-c.d."
    assert parse_target("http://127.0.0.1:65535", option="--x").port == 65535
    assert parse_target("http://[::1]:8000/v1", option="--x") == Target(
        "::1", 8000, "[::1]:8000", "/v1", False
    )


@pytest.mark.parametrize(
    "url",
    [
        *("", "a.b", "//a.b", "http:", "http://", "http:///path", "http://:80"),
        *("ftp://a", "file:///etc/passwd", "unix:/run/x", "data:,a", "gopher://a"),
        *("http://a@b", "http://a:b@c", "http://@b", "http://a#@b", "http://a\\@b", "http://a\\b"),
        *("http://a:0", "http://a:65536", "http://a:x", "http://[::1", "http://[a]"),
        *("http://a/ b", "http://a/\r\nX: y", "http://a/\x00", "http://ä", "http://a。b"),
        *("http://a/" + "b" * 3000, "http://a..b", "http://" + "a" * 64),
        *("http://[::1]evil/", "http://[::1]evil:80/", "http://[::1]@a/", "http://[::1].a/"),
        *("http://a.com%00.b/", "http://a%2eb/", "http://a%0d%0a.b/", "http://[fe80::1%25eth0]/"),
        *(
            "http://a.com:80%00/",
            "http://a:80@b/",
            "http://a:80:90/",
            "http://a:+80/",
            "http://a:/",
        ),
        *("http://a:８０/", "http://a:8_0/", "http://a:-1/", "http://a:000080/", "http://[::1]:0/"),
        *(
            "http://2130706433",
            "http://0x7f000001",
            "http://0177.0.0.1",
            "http://127.1",
            "http://0/",
        ),
        *(
            "http://256.1.1.1/",
            "http://1.2.3.4.5/",
            "http://a.0x1/",
            "http://[v1.a]/",
            "http://[]/",
        ),
        *("http://a,b/", "http://a;b/", 'http://a"b/', "http://<a>/", "http://*/", "http://$a/"),
        *("http://-a/", "http://a-/", "http://a|b/", "http://a{b}/", "http://.a/", "http://a/#"),
        *("http://" + "a." * 130 + "b/", "http://[" + ":" * 1900 + "/", "HTTP://a/"),
    ],
)
def test_what_is_no_plain_url_is_refused_by_its_option(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^--call-me must be an http://") as refused:
        parse_target(url, option="--call-me")
    assert refused.value.param == "call_me"
    assert len(str(refused.value)) < 500


@contextlib.contextmanager
def saying(raw: bytes) -> Iterator[tuple[Target, list[bytes]]]:
    """Somebody who reads a request, says this and hangs up; and what was read."""
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while not heard or not heard[0].endswith(b"?"):
                heard[:] = [b"".join(heard) + connection.recv(65536)]
            connection.sendall(raw)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/path?query"
        yield parse_target(url, option="--x"), heard
        thread.join(PATIENCE)


def ask(raw: bytes, **headers: str) -> tuple[int, dict[str, str], bytes, bytes]:
    """Status, headers and body of such an answer, and the request."""

    async def run(target: Target) -> tuple[int, Any, bytes]:
        async with asyncio.timeout(PATIENCE), post(target, b"how are you?", headers) as answer:
            body = b"".join([piece async for piece in answer.pieces()])
            return answer.status, answer.headers, body

    with saying(raw) as (target, heard):
        status, told, body = asyncio.run(run(target))
    return status, dict(told), body, heard[0]


def test_the_request_is_whole() -> None:
    *_, heard = ask(b"HTTP/1.1 200 OK\r\n\r\n", Authorization="Bearer key")
    head, _, body = heard.partition(b"\r\n\r\n")
    assert body == b"how are you?"
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /path?query HTTP/1.1"
    assert re.fullmatch(rb"Host: 127\.0\.0\.1:\d+", lines[1])
    assert {b"Content-Length: 12", b"Connection: close", b"Authorization: Bearer key"} < set(lines)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 201 OK\r\nContent-Length: 11\r\n\r\nhello world",
        b"HTTP/1.1 201 OK\r\ncontent-length:11\r\n\r\nhello worldX",
        b"HTTP/1.0 201 OK\r\n\r\nhello world",
        b"HTTP/1.1 201\r\nTransfer-Encoding: Chunked\r\n\r\n"
        b"5\r\nhello\r\n6 ;a=b\r\n world\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
        b"HTTP/1.1 201 OK\r\n\r\nhello world",
    ],
)
def test_an_answer_is_read_whatever_its_framing(raw: bytes) -> None:
    status, _, body, _ = ask(raw)
    assert (status, body) == (201, b"hello world")


def test_an_answer_without_content_is_not_waited_for() -> None:
    assert ask(b"HTTP/1.1 204 No Content\r\n\r\nwhatever comes")[2] == b""


def test_headers_are_known_by_their_lower_case_names() -> None:
    assert ask(b"HTTP/1.1 200 OK\r\nRetry-After:  7 \r\n\r\n")[1] == {"retry-after": "7"}


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"HTTP/1.1 200 OK\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/2 200\r\n\r\n"),
        *(b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 099 OK\r\n\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello world",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
)
def test_an_answer_that_breaks_off_or_is_none_is_an_error(raw: bytes) -> None:
    with pytest.raises(ConnectionError):
        ask(raw)


def test_the_beginning_of_a_body_can_be_had_alone() -> None:
    async def run(target: Target) -> bytes:
        async with post(target, b"?", {}) as answer:
            return await answer.read(7)

    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
    with saying(raw) as (target, _):
        assert asyncio.run(run(target)) == b"hello w"
