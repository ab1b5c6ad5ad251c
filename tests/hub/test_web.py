"""Models at addresses that are no hub's: no list, no hashes, and no token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferno.errors import InvalidRequest
from inferno.hub.client import HubClient, Patience
from inferno.hub.find import find_model_folder
from inferno.hub.store import Store
from inferno.hub.web import WebAddress, parse_address
from tests.hub.loopback import Handler, Hub, gguf, running
from tests.hub.test_store import run
from tests.tiny import save_tiny_model


@pytest.fixture
def tiny(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "own" / "tiny"
    folder.mkdir(parents=True)
    save_tiny_model(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def address_of(web: Hub, name: str = "cdn") -> str:
    return f"{web.url}/models/{name}"


def test_a_folder_on_the_web_becomes_a_model(
    hub: Hub, tiny: dict[str, bytes], store: Store
) -> None:
    templates = ("chat_template.jinja", "additional_chat_templates/tool_use.jinja")
    tiny |= dict.fromkeys(templates, b"{{ messages[0].content }}")
    with running(Hub(files=tiny)) as web:
        code, out, err = run("download", address_of(web))
        assert code == 0, err
        [entry] = store.entries()
        assert entry.name == f"{web.url.removeprefix('http://').replace(':', '_')}/cdn"
        assert out == f"{entry.folder}\n"
        names = {file.name for file in entry.files}
        assert names.issuperset(templates)
        assert names <= set(tiny)
        assert (entry.folder / "model.safetensors").read_bytes() == tiny["model.safetensors"]
        assert all("authorization" not in one.headers for one in web.asked)
        assert run("generate", "-p", "x", "--max-tokens", "2", "-m", entry.name)[0] == 0
    assert hub.asked == []


def test_shards_are_those_of_the_index(hub: Hub, tiny: dict[str, bytes], store: Store) -> None:
    tiny["model-1.safetensors"] = tiny.pop("model.safetensors")
    tiny["model.safetensors.index.json"] = b'{"weight_map": {"x": "model-1.safetensors"}}'
    with running(Hub(files=tiny)) as web:
        assert run("download", address_of(web))[0] == 0
        names = {file.name for file in store.entries()[0].files}
        assert {"model-1.safetensors", "model.safetensors.index.json"} <= names


@pytest.mark.parametrize(
    "shard", ["../../evil.safetensors", "/abs.safetensors", "x.bin", 7, "a\0", ["x"], {}]
)
def test_an_index_with_paths_is_refused(
    shard: object, hub: Hub, tiny: dict[str, bytes], store: Store
) -> None:
    del tiny["model.safetensors"]
    tiny["model.safetensors.index.json"] = json.dumps({"weight_map": {"x": shard}}).encode()
    with running(Hub(files=tiny)) as web:
        code, _, err = run("download", address_of(web))
    assert (code, "no shards" in err) == (1, True)
    assert store.entries() == []


def test_an_index_with_more_shards_than_any_model_has_is_refused(
    hub: Hub, tiny: dict[str, bytes], store: Store
) -> None:
    del tiny["model.safetensors"]
    shards = {f"x{number}": f"model-{number:05}.safetensors" for number in range(1001)}
    tiny["model.safetensors.index.json"] = json.dumps({"weight_map": shards}).encode()
    with running(Hub(files=tiny)) as web:
        code, _, err = run("download", address_of(web))
        assert (code, "names 1,001 shards, and a model may have 1,000" in err) == (1, True)
        assert not [one for one in web.asked if "model-" in one.path]


def forbids_what_is_not_there(handler: Handler) -> bool:
    """Answer as S3 does to those who may get objects of a bucket and not list them."""
    handler.reply(403, b"<Error><Code>AccessDenied</Code></Error>")
    return True


@pytest.mark.parametrize("is_split", [False, True])
def test_what_storage_forbids_is_not_there(
    is_split: bool,
    hub: Hub,
    tiny: dict[str, bytes],
    store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tiny.pop("generation_config.json", None)
    if is_split:
        tiny["model-1.safetensors"] = tiny.pop("model.safetensors")
        tiny["model.safetensors.index.json"] = b'{"weight_map": {"x": "model-1.safetensors"}}'
    with running(Hub(files=tiny, absent=forbids_what_is_not_there)) as web:
        code, _, err = run("download", address_of(web))
    assert code == 0, err
    assert {file.name for file in store.entries()[0].files} <= set(tiny)
    assert "/cdn forbids generation_config.json, " in caplog.text
    assert "(status 403)" in caplog.text
    assert ".safetensors" not in caplog.text


@pytest.mark.parametrize(
    "absent", ["config.json", "tokenizer.json", "model.safetensors", "model-1.safetensors"]
)
def test_what_a_model_needs_may_not_be_forbidden(
    absent: str, hub: Hub, tiny: dict[str, bytes], store: Store
) -> None:
    if absent == "model-1.safetensors":
        tiny["model.safetensors.index.json"] = b'{"weight_map": {"x": "model-1.safetensors"}}'
        del tiny["model.safetensors"]
    tiny.pop(absent, None)
    with running(Hub(files=tiny, absent=forbids_what_is_not_there)) as web:
        code, _, err = run("download", address_of(web))
    assert code == 1
    assert f"{absent} answers with status 403: check the address" in err
    assert store.entries() == []


def test_a_file_on_the_web_becomes_a_model(hub: Hub, store: Store) -> None:
    content = gguf(bytes(100))
    with running(Hub(files={"q4.gguf": content})) as web:
        code, _, err = run("download", address_of(web, "cdn/q4.gguf"))
        assert code == 0, err
        [file] = store.entries()[0].files
        assert (file.name, file.size) == ("q4.gguf", len(content))
        web.asked.clear()
        assert run("download", address_of(web, "cdn/q4.gguf"))[0] == 0
        assert len(web.asked) == 1  # for its size: what is here has the hash that it had


@pytest.mark.parametrize("etag", ['"one"', None, 'W/"weak"', "odd\x7f"])
def test_what_broke_off_goes_on_only_where_it_is_the_same_version(
    etag: str | None, hub: Hub, store: Store
) -> None:
    content = gguf(b"0123456789" * 1000)
    num_sent = 0

    def cut(handler: Handler, content: bytes) -> bool:
        nonlocal num_sent
        num_sent += 1
        headers = {"etag": etag} if etag else {}
        if num_sent == 2:  # the first is asked for its size alone
            handler.reply(200, content[:4000], headers, length=len(content))
            return True
        if num_sent == 3 and handler.start():
            where = f"bytes 4000-{len(content) - 1}/{len(content)}"
            handler.reply(206, content[4000:], {**headers, "content-range": where})
            return True
        return False

    with running(Hub(files={"q4.gguf": content}, fault=cut)) as web:
        assert run("download", address_of(web, "cdn/q4.gguf"))[0] == 0
        asked = web.asked[-1].headers
    assert (asked.get("range"), asked.get("if-range")) == (
        ("bytes=4000-", etag) if etag == '"one"' else (None, None)
    )
    [entry] = store.entries()
    assert (entry.folder / "q4.gguf").read_bytes() == content


@pytest.mark.parametrize("length", ["-1", "x", "9" * 40, "1e3"])
def test_a_size_that_is_none_is_refused(length: str, hub: Hub, store: Store) -> None:
    def odd(handler: Handler, content: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("content-length", length)
        handler.end_headers()
        handler.close_connection = True
        return True

    with running(Hub(files={"q4.gguf": b"GGUF"}, fault=odd)) as web:
        code, _, err = run("download", address_of(web, "cdn/q4.gguf"))
    assert (code, "internal" in err) == (1, False)
    assert store.entries() == []


def test_what_is_not_encrypted_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not encrypted"):
        HubClient("http://files.example/model", None, Patience(), is_hub=False)


def test_an_address_has_a_name() -> None:
    found = parse_address("https://files.example/llm/small-model/")
    assert found == WebAddress(
        "files.example/small-model", "https://files.example/llm/small-model", None
    )
    found = parse_address("https://files.example:81/q4.gguf")
    assert found == WebAddress("files.example_81/q4", "https://files.example:81", "q4.gguf")


@pytest.mark.parametrize(
    "text",
    [
        *("https://files.example", "https://files.example/..", "https://files.example/a/../b.."),
        *("https://user:pass@files.example/a", "https://files.example/a?b=c", "https://[/a"),
        *("https://files.example/a b", "https://files.example/%2e%2e/a", "https://x/a\0"),
        *("https://files.example/a//b", "https://files.example/a#b", "https:///a"),
    ],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no address of a model"):
        parse_address(text)


@pytest.mark.parametrize("last", ["q4.gguf", f"{'x' * 90}.gguf", f"{'y' * 79}-z.gguf"])
def test_two_addresses_have_two_names(last: str, hub: Hub, store: Store) -> None:
    contents = {place: gguf(place.encode() * 100) for place in ("one", "two")}

    def by_place(handler: Handler, content: bytes) -> bool:
        handler.reply(200, contents[handler.path.split("/")[1]])
        return True

    with running(Hub(files={last: b"", "other.gguf": b""}, fault=by_place)) as web:
        places = [f"{web.url}/{place}/cdn/{last}" for place in ("one", "two", "one", "two")]
        assert all(run("download", place)[0] == 0 for place in places)
        first, second = sorted(store.entries(), key=lambda one: one.source)
        assert first.name != second.name
        assert second.name.endswith(f"-{second.revision[:12]}")
        for entry, place in ((first, "one"), (second, "two")):
            assert entry.source.endswith(f"/{place}/cdn")
            assert find_model_folder(entry.name).read_bytes() == contents[place]
            store.let_go(entry.name, entry.revision)
        assert run("rm", first.name)[0] == 0
        assert store.entries() == [second]
        assert run("download", places[1])[0] == 0
        assert [one.name for one in store.entries()] == [second.name]
        assert run("download", places[0])[0] == 0
        assert {one.name for one in store.entries()} == {first.name, second.name}
