"""API keys: which are taken, what they open, and that every route asks for one."""

from __future__ import annotations

import ast
import base64
from pathlib import Path

import pytest

from inferno.errors import InvalidRequest
from inferno.server import api_keys
from inferno.server.api_keys import KeyScope, find_key, read_keys
from inferno.server.http import context_of
from inferno.server.http.context import Receive, Scope, Send
from inferno.server.routes import ROUTES
from tests.server.http.direct import LOCAL, ask, in_middleware
from tests.server.http.serving import small_app

OPEN = {route.path for route in ROUTES if route.key_scope is None}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
PATHS = (
    *(route.path for route in ROUTES),
    *(
        "//health",
        "/health/",
        "/ready/x",
        "/v1/../health",
        "/health;x",
        "/health%2f",
        "/HEALTH",
        "",
    ),
    *("/debug", "/debug/", "/debug/state/", "/metrics/", "/nowhere"),
)


def _bearer(key: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {key}".encode("latin-1")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", PATHS)
def test_without_a_key_only_health_and_ready_answer(method: str, path: str) -> None:
    middleware = in_middleware(api_keys=read_keys(["secret"], None, {}))
    status = ask(middleware, method, path).status
    is_open = path in OPEN
    assert status == ((200 if method in ("GET", "HEAD") else 405) if is_open else 401)


@pytest.mark.parametrize(
    ("key", "opened"),
    [
        ("plain", {"/metrics", "/v1/models"}),
        ("inf", {"/v1/models"}),
        ("met", {"/metrics"}),
        ("adm", {"/metrics", "/v1/models", "/debug/state"}),
    ],
)
def test_a_key_opens_what_its_scopes_say(key: str, opened: set[str]) -> None:
    middleware = in_middleware(
        api_keys=read_keys(["plain", "inference:inf", "metrics:met", "admin:adm"], None, {})
    )
    for path in ("/metrics", "/v1/models", "/debug/state"):
        status = ask(middleware, "GET", path, [LOCAL, _bearer(key)]).status
        assert (status not in (401, 403)) == (path in opened), path


@pytest.mark.parametrize(
    "headers",
    [
        [_bearer("secre")],
        [_bearer("secrets")],
        [_bearer("")],
        [_bearer("sécret")],
        [_bearer("x" * 30_000)],
        [(b"authorization", b"secret")],
        [(b"authorization", b"Basic " + base64.b64encode(b"a:secret"))],
        [_bearer("secret"), _bearer("secret")],
        [_bearer("wrong"), (b"x-api-key", b"secret")],
        [(b"x-api-key", b"")],
    ],
)
def test_any_other_key_is_401(headers: list[tuple[bytes, bytes]]) -> None:
    middleware = in_middleware(api_keys=read_keys(["secret"], None, {}))
    answer = ask(middleware, "GET", "/v1/models", [LOCAL, *headers])
    assert (answer.status, answer.code) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert b"secret" not in answer.body


@pytest.mark.parametrize(
    "header", [_bearer("secret"), (b"authorization", b"bearer  secret "), (b"x-api-key", b"secret")]
)
def test_a_key_may_come_in_either_header(header: tuple[bytes, bytes]) -> None:
    middleware = in_middleware(api_keys=read_keys(["secret"], None, {}))
    assert ask(middleware, "GET", "/v1/models", [LOCAL, header]).status == 404  # the app's own


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json"])
def test_a_browser_may_open_pages_with_the_key_as_password(path: str) -> None:
    middleware = in_middleware(api_keys=read_keys(["secret"], None, {}))
    refused = ask(middleware, "GET", path, [LOCAL])
    assert refused.headers["www-authenticate"].startswith("Basic ")
    header = (b"authorization", b"Basic " + base64.b64encode(b"me:secret"))
    assert ask(middleware, "GET", path, [LOCAL, header]).status == 404
    assert ask(middleware, "GET", path, [LOCAL, (b"authorization", b"Basic %%%")]).status == 401


def test_debug_needs_an_admin_key_even_where_no_keys_are() -> None:
    assert ask(in_middleware(), "GET", "/debug/state").status == 403


@pytest.mark.parametrize(("given", "apart"), [(["a"], False), (["a", "b"], True)])
def test_two_keys_keep_their_caches_apart(given: list[str], apart: bool) -> None:
    seen: dict[str, str] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        seen[str(context.key_id)] = context.cache_salt
        await small_app(scope, receive, send)

    middleware = in_middleware(app, api_keys=read_keys(given, None, {}))
    for key in given:
        ask(middleware, "GET", "/v1/models", [LOCAL, _bearer(key)])
    assert set(seen) == {f"key-{place}" for place in range(1, len(given) + 1)}
    assert len(set(seen.values())) == len(given)
    assert all(salt.endswith("@") for salt in seen.values()) == apart


def test_keys_come_from_the_command_line_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n\nadmin:from-file\n  metrics,admin:x:y  \n")
    keys = read_keys(["https://odd"], file, {"INFERNO_API_KEY": "from-env"})
    assert [key.key_id for key in keys] == ["key-1", "key-2", "key-3", "key-4"]
    found = find_key(keys, b"x:y")
    assert found is not None
    assert found.scopes == {KeyScope.METRICS, KeyScope.ADMIN}
    assert find_key(keys, b"https://odd") is keys[0]
    assert find_key(keys, b"from-env") is keys[3]
    assert "from-env" not in repr(keys)


@pytest.mark.parametrize("key", ["", "admin:", "a b", "a\n", "ключ", "x" * 513, "\x7f"])
def test_a_key_that_can_not_be_used_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidRequest, match="--api-key gives") as refused:
        read_keys([key], None, {})
    assert not key or key not in str(refused.value)
    with pytest.raises(InvalidRequest, match="INFERNO_API_KEY gives"):
        read_keys([], None, {"INFERNO_API_KEY": key})


@pytest.mark.parametrize("content", [None, b"", b"# only words\n", b"\xff\xfe", b"x" * (2 << 20)])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidRequest, match="--api-key-file"):
        read_keys([], file, {})


def test_keys_are_compared_in_constant_time_only() -> None:
    tree = ast.parse(Path(api_keys.__file__).read_text())
    find = next(node for node in ast.walk(tree) if getattr(node, "name", "") == "find_key")
    called = [ast.unparse(node.func) for node in ast.walk(find) if isinstance(node, ast.Call)]
    assert called.count("hmac.compare_digest") == 1
    assert not [node for node in ast.walk(find) if isinstance(node, ast.Compare | ast.Break)]


def test_only_health_and_readiness_are_open() -> None:
    assert {"/health", "/ready"} == OPEN
    paths = {scope: {r.path for r in ROUTES if r.key_scope is scope} for scope in KeyScope}
    assert paths[KeyScope.METRICS] == {"/metrics"}
    assert paths[KeyScope.ADMIN] == {"/debug/state"}
