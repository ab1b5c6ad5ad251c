"""Hubs that misbehave: each ends in a typed error, or in the model, and nothing is outside."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferno.errors import DownloadError, ModelError, ModelNotFound
from inferno.hub.client import HubClient, Patience
from inferno.hub.fetch import download, local_entry, plan_download
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from tests.hub.conftest import TOKEN
from tests.hub.loopback import COMMIT, CONFIG, FILES, Handler, Hub, running, sibling
from tests.patience import PATIENCE

NAME = "a/model"


@pytest.fixture(autouse=True)
def _nothing_outside(tmp_path: Path) -> Iterator[None]:
    """Hold for every test: all files are in the store."""
    yield
    assert {path.name for path in tmp_path.iterdir()} <= {"home"}


@pytest.fixture
def hasty(hub: Hub) -> Iterator[HubClient]:
    """A client that asks twice, and waits for a head or some of a body for no long time."""
    patience = Patience(stall=PATIENCE, silence=0.5, attempts=2, sleep=lambda _: None)
    client = HubClient(hub.url, TOKEN, patience)
    yield client
    client.close()


def fetch(client: HubClient, store: Store) -> Entry:
    return download(client, store, plan_download(client, store, NAME))


def refused(client: HubClient, store: Store) -> str:
    """Download, in vain, and return what the error says."""
    with pytest.raises(ModelError) as caught:
        fetch(client, store)
    assert store.entries() == []
    assert local_entry(store, NAME, None) is None
    assert TOKEN not in str(caught.value)
    return str(caught.value)


def raw(*parts: bytes) -> Callable[..., bool]:
    """Answer with these bytes, and close the connection."""

    def answer(handler: Handler, *_: object) -> bool:
        handler.wfile.write(b"".join(parts))
        handler.wfile.flush()
        handler.close_connection = True
        return True

    return answer


def for_ever(first: bytes, piece: bytes) -> Callable[..., bool]:
    """Answer with a piece again and again, until the other side has left."""

    def answer(handler: Handler, *_: object) -> bool:
        deadline = time.monotonic() + PATIENCE  # of a client that never leaves, the test fails
        handler.wfile.write(first)
        while time.monotonic() < deadline:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(0.01)
        return True

    return answer


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n\r\n"

ENDLESS = {
    "hints": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
    "bytes of a header": (_OK + b"x: ", b"y"),
    "bytes of a status": (b"HTTP/1.1 2", b"0"),
    "bytes of a chunk's mark": (_CHUNKED + b"4;x=", b"y"),
}


@pytest.mark.parametrize("what", ENDLESS)
@pytest.mark.parametrize("is_api", [True, False])
def test_what_never_comes_to_an_end_is_broken_off(
    what: str, is_api: bool, hub: Hub, hasty: HubClient, store: Store
) -> None:
    if is_api:
        hub.api_fault = for_ever(*ENDLESS[what])
    else:
        hub.fault = for_ever(*ENDLESS[what])
    said = refused(hasty, store)
    assert "can't be reached" in said or "broke off 2 times" in said


BROKEN = {
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "nothing": raw(),
    "binary": raw(bytes(range(256)) * 4),
    "a huge header": raw(_OK, b"x: ", b"y" * 200_000, b"\r\n\r\n{}"),
    "many headers": raw(_OK, b"x: y\r\n" * 50_000, b"\r\n{}"),
    "two lengths": raw(_OK, b"content-length: 5\r\ncontent-length: 7\r\n\r\n{}123"),
    "a negative length": raw(_OK, b"content-length: -1\r\n\r\n{}"),
    "a length that is none": raw(_OK, b"content-length: 0x7\r\n\r\n{}"),
    "more than its length": raw(_OK, b"content-length: 1\r\n\r\n{}{}{}{}"),
    "less than its length": raw(_OK, b"content-length: 1000\r\n\r\n{}"),
    "chunks of no size": raw(_CHUNKED, b"zz\r\n{}\r\n"),
    "chunks that are too large": raw(_CHUNKED, b"ffffffffffffffffffff\r\n{}\r\n"),
    "chunks that break off": raw(_CHUNKED, b"5\r\n{}"),
    "another protocol": raw(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    "an odd status": raw(b"HTTP/1.1 999 \x1b[2J\r\ncontent-length: 0\r\n\r\n"),
    "a nul in a header": raw(_OK, b"etag: a\0b\r\ncontent-length: 2\r\n\r\n{}"),
    "another encoding": raw(_OK, b"content-encoding: br\r\ncontent-length: 2\r\n\r\n{}"),
    "a bomb": raw(
        _OK, b"content-encoding: gzip\r\nconnection: close\r\n\r\n", gzip.compress(bytes(10 << 20))
    ),
    "a part of it": raw(b"HTTP/1.1 206 Partial\r\ncontent-length: 2\r\n\r\n{}"),
    "nothing new": raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    "a redirect with a line break": raw(
        b"HTTP/1.1 302 Found\r\nlocation: /x%0d%0aset-cookie: y\r\ncontent-length: 0\r\n\r\n"
    ),
    "a redirect to a name of no host": raw(
        b"HTTP/1.1 302 Found\r\nlocation: http://" + b"x" * 300 + b"/y\r\ncontent-length: 0\r\n\r\n"
    ),
    "a redirect to a port of no host": raw(
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:99999/\r\ncontent-length: 0\r\n\r\n"
    ),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("is_api", [True, False])
def test_a_broken_answer_is_an_error(
    what: str, is_api: bool, hub: Hub, client: HubClient, store: Store
) -> None:
    if is_api:
        hub.api_fault = BROKEN[what]
    else:
        hub.fault = BROKEN[what]
    assert len(refused(client, store)) < 1000


def test_a_content_that_changes_after_it_was_listed_is_refused(
    hub: Hub, client: HubClient, store: Store
) -> None:
    plan = plan_download(client, store, NAME)
    hub.files["tokenizer.json"] = b'{"model": {}}'[::-1]
    with pytest.raises(DownloadError, match="does not match its hash"):
        download(client, store, plan)
    assert store.entries() == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.json", "A.json"),
        ("a.json", "a.json"),
        ("a.json", "a.json/b.jinja"),
        ("x/A.jinja", "X/a.jinja"),
    ],
)
def test_names_that_collide_are_refused(
    one: str, other: str, hub: Hub, client: HubClient, store: Store
) -> None:
    listed = [sibling(name, b"{}") for name in ("config.json", one, other)]
    hub.answer = {"sha": COMMIT, "siblings": [*listed, sibling("model.safetensors", b"x")]}
    assert "two files named" in refused(client, store)
    assert hub.asked_files() == []


ODD = [
    *(
        "CON",
        "nul.json ",
        "a.json.",
        "a.json ",
        "caf\u00e9.json",
        "cafe\u0301.json",
        "a\u200b.json",
    ),
    *("\u202enosj.json", "a\u0300/x.json", "\uff0e\uff0e/x.json", "%2e%2e/x.json", "a?b.json"),
    *("aux.json.part", "a;b.json", "a&b.json", "*.json", "$(id).json", "-.json", ".json", "."),
]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_names_that_some_system_reads_otherwise_are_never_written(
    name: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files[name] = b"{}"
    try:
        names = {file.name for file in fetch(client, store).files}
    except DownloadError:
        names = set()
    assert name not in names
    assert not [
        path
        for path in store.root.rglob("*")
        if path.name not in FILES and path.is_file() and path.suffix not in (".json", ".lock")
    ]


def test_more_files_than_any_model_has_are_refused(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.answer = json.dumps(
        {"sha": COMMIT, "siblings": [{"rfilename": f"{i}.bin"} for i in range(100_001)]}
    ).encode()
    assert "is not downloaded, as its hub" in refused(client, store)


@pytest.mark.parametrize(
    "content",
    [b"[" * 50_000, b'{"a":' * 50_000, b"{" + b'"a": 1,' * 200_000, b"\xff\xfe", b"", b"null"],
    ids=lambda content: ascii(content[:8]),
)
def test_a_config_that_is_a_bomb_is_refused_before_weights(
    content: bytes, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["config.json"] = content
    assert "config.json can't be read" in refused(client, store)
    assert not [one for one in hub.asked_files() if one.path.endswith(".safetensors")]


def test_the_token_is_not_sent_to_another_port_of_this_machine(
    hub: Hub, client: HubClient, store: Store
) -> None:
    def elsewhere(handler: Handler) -> bool:
        handler.reply(307, b"", {"location": f"{other.url}{handler.path}"})
        return True

    with running(Hub()) as other:
        hub.api_fault = elsewhere
        fetch(client, store)
    assert other.asked
    assert all("authorization" not in one.headers for one in other.asked)


def test_two_hubs_that_send_to_each_other_are_left(
    hub: Hub, client: HubClient, store: Store
) -> None:
    def to(target: Hub) -> Callable[..., bool]:
        def answer(handler: Handler, *_: object) -> bool:
            handler.reply(302, b"", {"location": f"{target.url}/cdn/config.json"})
            return True

        return answer

    with running(Hub()) as other:
        hub.fault, other.fault = to(other), to(hub)
        assert "redirects more than" in refused(client, store)
        assert len(hub.asked) + len(other.asked) < 20


def test_a_range_that_overlaps_what_is_there_is_not_joined_to_it(
    hub: Hub, client: HubClient, store: Store
) -> None:
    content = FILES["model.safetensors"]

    def overlap(handler: Handler, content: bytes) -> bool:
        start = handler.start()
        if not start:
            return False
        where = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.reply(206, content[start - 100 : -100], {"content-range": where})
        return True

    part = store.partial_folder(NAME, COMMIT) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content[:1000])
    hub.fault = overlap
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == content


def test_a_hub_that_needs_a_while_for_its_answer_is_waited_for(hub: Hub, store: Store) -> None:
    released = threading.Event()

    def late(handler: Handler) -> bool:
        released.wait(0.3)
        return False

    hub.api_fault = late
    client = HubClient(hub.url, None, Patience(stall=PATIENCE, silence=PATIENCE))
    assert fetch(client, store).folder.exists()
    client.close()


def test_what_is_not_the_hub_is_an_error_of_one_kind(hub: Hub, store: Store) -> None:
    hub.files = {"config.json": CONFIG}
    hub.answer = {"error": "no such model"}
    client = HubClient(hub.url, None, Patience(stall=PATIENCE))
    with pytest.raises((DownloadError, ModelNotFound)):
        fetch(client, store)
    client.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("end", ["expires=01 Jan {} 00:00:00 GMT", "max-age={}", "version={}"])
def test_a_cookie_is_not_even_looked_at(
    end: str, hub: Hub, client: HubClient, store: Store
) -> None:
    def set_cookie(handler: Handler) -> bool:
        answer = {"sha": COMMIT, "siblings": hub.siblings()}
        cookie = {"set-cookie": f"a=b; {end.format('1' * 5000)}"}
        handler.reply(200, json.dumps(answer).encode(), cookie)
        return True

    hub.api_fault = set_cookie
    assert len(fetch(client, store).files) == 3
    assert not any("cookie" in asked.headers for asked in hub.asked)
