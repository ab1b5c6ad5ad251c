"""Names and origins: who may lead a browser here, and which pages may call."""

from __future__ import annotations

import pytest

from tests.server.http.direct import JSON, LOCAL, Header, ask, in_middleware

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def _host(name: str) -> Header:
    return b"host", name.encode("latin-1")


def _origin(name: str) -> Header:
    return b"origin", name.encode()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/chat/completions"])
def test_a_loopback_bind_answers_to_no_foreign_name(method: str, path: str) -> None:
    assert ask(in_middleware(), method, path, [_host("evil.com"), JSON]).code == "host_not_allowed"
    headers = [LOCAL, JSON, _origin("http://evil.com")]
    assert ask(in_middleware(), method, path, headers).code == "origin_not_allowed"


@pytest.mark.parametrize(
    "name", ["localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8000"]
)
def test_a_loopback_bind_answers_to_its_own_names(name: str) -> None:
    assert ask(in_middleware(), "GET", "/health", [_host(name)]).status == 200


@pytest.mark.parametrize(
    "name",
    [
        *("localhost.", "localhost.evil.com", "127.0.0.1.evil.com", "127.0.0.2", "0.0.0.0"),
        *("[::ffff:127.0.0.1]", "2130706433", "xn--localhost"),
    ],
)
def test_names_that_only_look_like_loopback_are_foreign(name: str) -> None:
    assert ask(in_middleware(), "GET", "/health", [_host(name)]).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "names",
    [
        *([], [""], ["a", "a"], ["localhost", "evil.com"], ["a/b"], ["a?"], ["a#"], ["a/v1/../"]),
        *(["a b"], ["localhost:"], ["localhost:123456"], ["a@localhost"], ["[::1"], ["löcal"]),
        *(["localhost,evil.com"], ["local\thost"]),
    ],
)
def test_odd_hosts_are_400_on_any_bind(host: str, names: list[str]) -> None:
    headers = [_host(name) for name in names]
    assert ask(in_middleware(host=host), "GET", "/health", headers).code == "bad_host"


def test_http_1_0_may_come_without_a_host() -> None:
    assert ask(in_middleware(), "GET", "/health", [], http_version="1.0").status == 200


def test_other_binds_answer_to_any_name_unless_some_are_given() -> None:
    headers = [_host("api.example.org"), _origin("http://elsewhere")]
    assert ask(in_middleware(host="0.0.0.0"), "GET", "/health", headers).status == 200
    named = in_middleware(host="0.0.0.0", allowed_hosts=("api.example.org",))
    assert ask(named, "GET", "/health", headers[:1]).status == 200
    assert ask(named, "GET", "/health", headers).code == "origin_not_allowed"
    assert ask(named, "GET", "/health", [LOCAL]).code == "host_not_allowed"


@pytest.mark.parametrize("origin", ["http://localhost:8000", "https://LOCALHOST:8000"])
def test_our_own_pages_may_call(origin: str) -> None:
    assert ask(in_middleware(), "GET", "/health", [LOCAL, _origin(origin)]).status == 200


@pytest.mark.parametrize("origin", ["null", "http://localhost:3000", "http://localhost", "x"])
def test_other_pages_of_this_machine_may_not(origin: str) -> None:
    assert ask(in_middleware(), "GET", "/health", [LOCAL, _origin(origin)]).status == 403


def test_cors_is_off() -> None:
    answer = ask(
        in_middleware(host="0.0.0.0"), "GET", "/health", [LOCAL, _origin("http://my.page")]
    )
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = [
        LOCAL,
        _origin("http://my.page"),
        (b"access-control-request-method", b"POST"),
    ]
    answer = ask(in_middleware(host="0.0.0.0"), "OPTIONS", "/v1/models", preflight)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(("asked", "answered"), [("http://my.page", "http://my.page"), ("*", "*")])
def test_pages_that_were_asked_for_may_read_answers(asked: str, answered: str) -> None:
    middleware = in_middleware(cors_origins=(asked,))
    page = [LOCAL, JSON, _origin("http://my.page")]
    for path in ("/health", "/v1/models", "/debug/state"):
        answer = ask(middleware, "GET", path, page)
        assert answer.headers["access-control-allow-origin"] == answered
        assert "x-inferno-ignored" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
    method = (b"access-control-request-method", b"POST")
    names = (b"access-control-request-headers", b"authorization, x-stainless-os")
    answer = ask(middleware, "OPTIONS", "/v1/chat/completions", [*page, method, names])
    assert answer.status == 200
    assert answer.headers["access-control-allow-headers"] == "authorization, x-stainless-os"


def test_a_preflight_can_not_put_words_into_our_headers() -> None:
    middleware = in_middleware(cors_origins=("http://my.page",))
    method = (b"access-control-request-method", b"POST")
    names = (b"access-control-request-headers", b"a\r\nset-cookie: b")
    answer = ask(middleware, "OPTIONS", "/", [LOCAL, _origin("http://my.page"), method, names])
    assert answer.headers["access-control-allow-headers"] == ""
