"""Files from the web, of which no hash is known: one version each, fetched once, found changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from inferno.errors import DownloadError, ModelError
from inferno.hub.client import HubClient, Patience
from inferno.hub.fetch import download
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from inferno.hub.web import parse_address, plan_address
from tests.hub.loopback import CONFIG, Fault, Handler, Hub, gguf, running, safetensors
from tests.patience import PATIENCE

FILES = {
    "config.json": CONFIG,
    "tokenizer.json": b'{"model": 1}',
    "model.safetensors": safetensors(bytes(3_000_000)),
}


def fetch(web: Hub, store: Store, place: str = "cdn", attempts: int = 3) -> Entry:
    address = parse_address(f"{web.url}/models/{place}")
    patience = Patience(stall=PATIENCE, attempts=attempts, sleep=lambda _: None)
    client = HubClient(address.folder, None, patience, is_hub=False)
    with contextlib.closing(client):
        return download(client, store, plan_address(client, store, address))


def with_etags(handler: Handler, content: bytes) -> bool:
    """Answer with an ETag that is the content's, and ranges of it."""
    start = handler.start()
    headers = {"etag": f'"{hash(content)}"'}
    if start and handler.headers.get("if-range", headers["etag"]) == headers["etag"]:
        headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.reply(206, content[start:], headers)
    else:
        handler.reply(200, content, headers)
    return True


def breaking_off(name: str, sent: int, then: Fault = with_etags, *, has_etag: bool = True) -> Fault:
    """Break a file off, when more than its size is asked for the first time."""
    num_asked = 0

    def answer(handler: Handler, content: bytes) -> bool:
        nonlocal num_asked
        if handler.path.endswith(name):
            num_asked += 1
            if num_asked == 2:  # the first is asked for its size alone
                etag = {"etag": f'"{hash(content)}"'} if has_etag else {}
                handler.reply(200, content[:sent], etag, length=len(content))
                return True
        return then(handler, content)

    return answer


def test_a_file_is_never_of_two_versions(hub: Hub, store: Store) -> None:
    old, new = gguf(b"A" * 300_000), gguf(b"B" * 300_000)

    def ignoring(handler: Handler, content: bytes) -> bool:
        """Send the rest of the new version, whatever version was asked for."""
        start = handler.start()
        where = f"bytes {start}-{len(new) - 1}/{len(new)}"
        headers = {"etag": '"new"'} | ({"content-range": where} if start else {})
        handler.reply(206 if start else 200, new[start:], headers)
        return True

    with running(Hub(files={"x.gguf": old})) as web:
        web.fault = breaking_off("x.gguf", 150_000, ignoring)
        entry = fetch(web, store, "cdn/x.gguf")
    assert (entry.folder / "x.gguf").read_bytes() == new


def test_a_download_goes_on_in_another_process(hub: Hub, store: Store) -> None:
    with running(Hub(files=FILES)) as web:
        web.fault = breaking_off("model.safetensors", 2_000_000)
        with pytest.raises(DownloadError, match="broke off"):
            fetch(web, store, attempts=1)
        web.asked.clear()
        entry = fetch(web, store)
        asked = [(one.path.rsplit("/", 1)[1], one.range) for one in web.asked]
    assert asked.count(("model.safetensors", "bytes=2000000-")) == 1
    for name, content in FILES.items():
        assert (entry.folder / name).read_bytes() == content
        assert asked.count((name, None)) == 1  # for its size
    assert {path.name for path in entry.folder.iterdir()} == {*FILES}
    assert store.partials() == []


def test_what_is_of_no_known_version_is_fetched_anew(hub: Hub, store: Store) -> None:
    def plain(handler: Handler, content: bytes) -> bool:
        handler.reply(200, content)
        return True

    with running(Hub(files=FILES)) as web:
        web.fault = breaking_off("model.safetensors", 2_000_000, plain, has_etag=False)
        with pytest.raises(DownloadError, match="broke off"):
            fetch(web, store, attempts=1)
        web.asked.clear()
        fetch(web, store)
        assert all(one.range is None for one in web.asked)


@pytest.mark.parametrize("head", ["etag", "last-modified"])
def test_an_update_of_the_same_size_is_fetched(head: str, hub: Hub, store: Store) -> None:
    def told(handler: Handler, content: bytes) -> bool:
        handler.reply(200, content, {head: f'"{hash(content)}"'})
        return True

    with running(Hub(files=dict(FILES), fault=told)) as web:
        fetch(web, store)
        web.files["tokenizer.json"] = b'{"model": 2}'
        assert (fetch(web, store).folder / "tokenizer.json").read_bytes() == b'{"model": 2}'
        web.asked.clear()
        fetch(web, store)
        weights = [one for one in web.asked if one.path.endswith("model.safetensors")]
        assert len(weights) == 1  # for its size


def test_a_site_that_is_busy_for_a_moment_is_asked_again(hub: Hub, store: Store) -> None:
    num_asked = 0

    def busy(handler: Handler, content: bytes) -> bool:
        nonlocal num_asked
        num_asked += 1
        if num_asked % 2:
            handler.reply(503, b"")
        return bool(num_asked % 2)

    with running(Hub(files=FILES, fault=busy)) as web:
        assert {file.name for file in fetch(web, store).files} == {*FILES}


PAGE = b"<html><body>page not found</body></html>"


def page(kind: str) -> Callable[[Handler], bool]:
    def answer(handler: Handler) -> bool:
        handler.reply(200, PAGE, {"content-type": kind})
        return True

    return answer


def test_a_page_in_the_place_of_a_file_that_may_lack_is_none(hub: Hub, store: Store) -> None:
    with running(Hub(files=FILES, absent=page("text/html; charset=utf-8"))) as web:
        assert {file.name for file in fetch(web, store).files} == {*FILES}


@pytest.mark.parametrize("name", ["chat_template.jinja", "config.json", "tokenizer.json"])
def test_a_page_is_never_taken_for_a_small_file(name: str, hub: Hub, store: Store) -> None:
    with running(Hub(files=FILES | {name: PAGE})) as web:
        with pytest.raises(ModelError, match=f"/{name} (can't be read|is a page of the web)"):
            fetch(web, store)
        assert not [one for one in web.asked if one.path.endswith("safetensors")][1:]
    assert store.entries() == []


def test_a_page_is_never_taken_for_a_gguf_file(hub: Hub, store: Store) -> None:
    gone = Hub(files={}, absent=page("text/html"))
    with running(gone) as web, pytest.raises(DownloadError, match=r"no whole model: .*x\.gguf"):
        fetch(web, store, "cdn/x.gguf")
    assert store.entries() == []


def test_one_file_of_a_split_model_means_all(hub: Hub, store: Store) -> None:
    names = ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"]
    with running(Hub(files=dict.fromkeys(names, gguf(b"x")))) as web:
        assert {file.name for file in fetch(web, store, f"cdn/{names[0]}").files} == {*names}
        del web.files[names[1]]
        with pytest.raises(DownloadError, match=f"lacks {names[1]}"):
            fetch(web, store, f"other/cdn/{names[0]}")


def test_an_index_that_changes_after_the_plan_is_noticed(hub: Hub, store: Store) -> None:
    files = {name: content for name, content in FILES.items() if name != "model.safetensors"}
    files["model-1.safetensors"] = safetensors(b"x")
    files["model.safetensors.index.json"] = b'{"weight_map": {"x": "model-1.safetensors"}}'
    with running(Hub(files=files)) as web:
        address = parse_address(f"{web.url}/models/cdn")
        client = HubClient(address.folder, None, Patience(stall=PATIENCE), is_hub=False)
        with contextlib.closing(client):
            plan = plan_address(client, store, address)
            web.files["model.safetensors.index.json"] = files[
                "model.safetensors.index.json"
            ].replace(b"-1.", b"-2.")
            with pytest.raises(DownloadError, match=r"model-2\.safetensors: is missing"):
                download(client, store, plan)
    assert store.entries() == []


@pytest.mark.parametrize(
    ("place", "folder", "name"),
    [
        ("/m/tiny/model.safetensors", "/m/tiny", "tiny"),
        ("/m/tiny/config.json", "/m/tiny", "tiny"),
        ("/m/my%20model", "/m/my%20model", "my-model"),
    ],
)
def test_a_file_of_a_folder_means_the_folder(place: str, folder: str, name: str) -> None:
    found = parse_address(f"https://files.example{place}")
    assert (found.name, found.folder) == (f"files.example/{name}", f"https://files.example{folder}")
    assert found.file is None
