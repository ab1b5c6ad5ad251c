"""The page's files over HTTP: whole, cached, behind keys, and asking nobody else for anything."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import httpx
import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.server.api_keys import read_keys
from tests.server.hosting import Host, hosting

SCRIPT = Script(vocab_size=2048, max_model_len=1024)
LOADS = re.compile(r"""(?:src|href)="([^"#]+)"|from "([^"]+)"|url\(([^)]+)\)|import\("([^"]+)"\)""")


@pytest.fixture(scope="module")
def keyed() -> Iterator[Host]:
    with hosting(lambda: ScriptedClient(SCRIPT), api_keys=read_keys(["secret"], None, {})) as host:
        yield host


def _loaded(host: Host) -> dict[str, httpx.Response]:
    """The page and all that it loads, by path, found as a browser would."""
    found: dict[str, httpx.Response] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        found[path] = host.http.get(path)
        folder = "/page/" if path != "/" else "/"
        names = ["".join(match) for match in LOADS.findall(found[path].text)]
        waiting += [
            folder + name.removeprefix("./")
            for name in names
            if folder + name.removeprefix("./") not in found
        ]
    return found


def test_the_page_loads_only_files_that_are_there(echo: Host) -> None:
    files = _loaded(echo)
    assert len(files) >= 10
    for path, answer in files.items():
        assert answer.status_code == 200, path
    kinds = {answer.headers["content-type"].split(";")[0] for answer in files.values()}
    assert kinds == {"text/html", "text/css", "text/javascript", "image/svg+xml"}
    assert sum(len(answer.content) for answer in files.values()) < 66_000


def test_each_file_has_the_policy(echo: Host) -> None:
    for path, answer in _loaded(echo).items():
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; "), path
        assert "unsafe" not in policy
        assert not re.search(r"https?:|\*|data:|blob:", policy)
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_the_browser_has_is_not_sent_again(echo: Host) -> None:
    for path in ("/", "/page/chat.js"):
        first = echo.http.get(path)
        again = echo.http.get(path, headers={"if-none-match": f'W/"x", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        other = echo.http.get(path, headers={"if-none-match": '"x"'})
        assert other.content == first.content


def test_head_tells_the_length_alone(echo: Host) -> None:
    whole, head = echo.http.get("/"), echo.http.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize(
    "path", ["/page/", "/page/none.js", "/page/..%2fpage.py", "/page/%2e%2e/page.py", "/page"]
)
def test_nothing_else_is_there(echo: Host, path: str) -> None:
    assert echo.http.get(path).status_code == 404
    assert echo.http.post("/", json={}).status_code == 405


def test_a_key_opens_each_file(keyed: Host) -> None:
    for path in ("/", "/page/chat.js", "/page/none.js"):
        refused = keyed.http.get(path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        given = keyed.http.get(path, auth=("anyone", "secret"))
        assert given.status_code == (404 if "none" in path else 200)


def test_a_key_that_the_browser_knows_serves_the_page_alone(keyed: Host) -> None:
    basic = {"authorization": "Basic " + base64.b64encode(b"me:secret").decode()}
    assert keyed.http.get("/v1/models", headers=basic).status_code == 401
    marked = {**basic, "x-inferno-page": "1"}
    assert keyed.http.get("/v1/models", headers=marked).status_code == 200
    refused = keyed.http.get("/v1/models", headers={"x-inferno-page": "1"})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"  # so that the browser doesn't ask


def test_no_foreign_page_can_use_it_even_where_pages_may_call() -> None:
    keys = read_keys(["secret"], None, {})
    engine = lambda: ScriptedClient(SCRIPT)  # noqa: E731
    with hosting(engine, api_keys=keys, cors_origins=("*",)) as host:
        asked = {
            "origin": "http://elsewhere.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "x-inferno-page,content-type",
        }
        preflight = host.http.options("/v1/chat/completions", headers=asked)
        # Without this header a browser sends nothing with what it knows, and hides the answer.
        assert "access-control-allow-credentials" not in preflight.headers
