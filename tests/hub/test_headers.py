"""A repository is planned by the headers of its files, and a hub that misbehaves is refused."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from inferno.errors import CheckpointError, DownloadError, ModelError
from inferno.hub import headers
from inferno.hub.client import MOST_AT_ONCE, HubClient
from inferno.hub.headers import read_remote
from inferno.plan.shape import make_shape, read_shape
from tests.gguf.convert import write_gguf
from tests.hub.conftest import TOKEN
from tests.hub.loopback import Handler, Hub
from tests.tiny import save_tiny
from tests.weights.test_gguf import NAMES, save_split

NAME = "a/model"


def serve_folder(hub: Hub, folder: Path) -> None:
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.files.setdefault("tokenizer.json", b"{}")


def test_a_repository_has_the_shape_of_its_download(
    hub: Hub,
    client: HubClient,
    tmp_path: Path,
) -> None:
    save_tiny(tmp_path / "own", "qwen3", shard_size="50KB", head_dim=16)
    serve_folder(hub, tmp_path / "own")
    # Weights that nobody may read: far beyond what a header takes.
    names = [name for name in hub.files if name.endswith(".safetensors")]
    assert len(names) > 1
    for name in names:
        hub.files[name] += bytes(1 << 20)
    remote = read_remote(client, NAME, None, None)
    expected = read_shape(tmp_path / "own")
    found = make_shape(
        remote.config, remote.tensors, place=NAME, tokenizer_bytes=0, is_gguf=remote.is_gguf
    )
    assert sorted(found.tensors, key=str) == sorted(expected.tensors, key=str)
    assert found.caches == expected.caches
    ranges = [one.range for one in hub.asked_files() if one.path.endswith(".safetensors")]
    assert all(one is not None and one.startswith("bytes=0-") for one in ranges)
    # The listing, the config, and one request for each header.
    assert len(hub.asked) == 2 + len(names)


def test_weights_that_lie_there_twice_count_once_as_they_are_loaded(
    hub: Hub,
    client: HubClient,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "own"
    save_tiny(folder, "qwen3", shard_size="50KB", head_dim=16)
    shards = [path.name for path in folder.glob("*.safetensors")]
    (folder / shards[0]).with_name("a-copy.safetensors").write_bytes(
        (folder / shards[0]).read_bytes()
    )
    serve_folder(hub, folder)
    remote = read_remote(client, NAME, None, None)
    assert {tensor.file for tensor in remote.tensors} == set(shards)
    save_tiny(folder, "qwen3", head_dim=16)
    serve_folder(hub, folder)
    remote = read_remote(client, NAME, None, None)
    assert {tensor.file for tensor in remote.tensors} == {"model.safetensors"}


def test_a_config_that_says_something_twice_is_read_as_a_folders(
    hub: Hub, client: HubClient, tmp_path: Path
) -> None:
    save_tiny(tmp_path / "own", "llama")
    serve_folder(hub, tmp_path / "own")
    config = hub.files["config.json"]
    hub.files["config.json"] = config.replace(b"{", b'{"model_type": "llama",', 1)
    assert read_remote(client, NAME, None, None).config["model_type"] == "llama"


def test_a_gguf_file_of_a_repository_is_planned(
    hub: Hub,
    client: HubClient,
    tmp_path: Path,
) -> None:
    model = save_tiny(tmp_path / "own", "llama")
    path = write_gguf(tmp_path / "own" / "tiny-Q8_0.gguf", model)
    hub.files = {path.name: path.read_bytes(), "other.gguf": b"GGUF"}
    with pytest.raises(ModelError, match="FILE being one of"):
        read_remote(client, NAME, None, None)
    remote = read_remote(client, NAME, None, path.name)
    assert remote.is_gguf
    expected = read_shape(path)
    found = make_shape(
        remote.config, remote.tensors, place=NAME, tokenizer_bytes=0, is_gguf=remote.is_gguf
    )
    assert (found.tensors, found.caches) == (expected.tensors, expected.caches)


def test_a_hub_that_knows_no_ranges_is_read_no_further_than_needed(
    hub: Hub,
    client: HubClient,
    tmp_path: Path,
) -> None:
    save_tiny(tmp_path / "own", "llama")
    serve_folder(hub, tmp_path / "own")
    hub.files["model.safetensors"] += bytes(8 << 20)

    def whole(handler: Handler, content: bytes) -> bool:
        handler.reply(200, content)
        return True

    hub.fault = whole
    assert read_remote(client, NAME, None, None).tensors


def _header(length: int, text: bytes) -> bytes:
    return length.to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 64,
        _header(2**62, b"{}"),
        _header(2, b"[]"),
        _header(16, b'{"a": {"x": 1}} '),
        _header(47, b'{"a": {"dtype": "F32", "shape": [-1, 99999999]}}'),
        _header(200, b"{}"),
    ],
)
def test_a_header_that_can_not_be_is_refused(
    hub: Hub,
    client: HubClient,
    content: bytes,
) -> None:
    hub.files["model.safetensors"] = content
    with pytest.raises(CheckpointError):
        read_remote(client, NAME, None, None)


def test_another_part_than_was_asked_for_is_refused(
    hub: Hub,
    client: HubClient,
) -> None:
    def other(handler: Handler, content: bytes) -> bool:
        if handler.headers.get("range") is None:
            return False
        handler.reply(206, content[:10], {"content-range": f"bytes 5-14/{len(content)}"})
        return True

    hub.fault = other
    with pytest.raises(DownloadError, match="another part"):
        read_remote(client, NAME, None, None)


def test_kinds_that_are_not_run_are_refused_by_name(
    hub: Hub,
    client: HubClient,
) -> None:
    hub.files["config.json"] = json.dumps({"quantization_config": {"quant_method": "awq"}}).encode()
    hub.files["model.safetensors"] = _header(2, b"{}")
    with pytest.raises(ModelError, match="AWQ"):
        read_remote(client, NAME, None, None)


def test_the_token_goes_to_the_hub_alone(
    hub: Hub,
    client: HubClient,
    tmp_path: Path,
) -> None:
    save_tiny(tmp_path / "own", "llama")
    serve_folder(hub, tmp_path / "own")
    read_remote(client, NAME, None, None)
    assert {one.headers.get("authorization") for one in hub.asked} == {f"Bearer {TOKEN}"}


def test_a_long_headers_rest_comes_from_where_the_hub_redirected_to(
    hub: Hub,
    client: HubClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headers, "_FIRST_BYTES", 64)
    save_tiny(tmp_path / "own", "llama")
    serve_folder(hub, tmp_path / "own")
    elsewhere = hub.url.replace("127.0.0.1", "localhost")

    def redirect(handler: Handler, _: bytes) -> bool:
        if "/resolve/" not in handler.path or not handler.path.endswith(".safetensors"):
            return False
        handler.reply(302, b"", {"location": f"{elsewhere}/cdn/model.safetensors"})
        return True

    hub.fault = redirect
    assert read_remote(client, NAME, None, None).tensors
    asked = [one for one in hub.asked_files() if one.path.endswith(".safetensors")]
    assert ["/cdn/" in one.path for one in asked] == [False, True, True]
    assert [one.headers.get("authorization") for one in asked] == [f"Bearer {TOKEN}", None, None]


def test_the_hub_is_asked_again_where_what_it_redirected_to_refuses(
    hub: Hub, client: HubClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed address ends after a while, and may be good for one request only."""
    monkeypatch.setattr(headers, "_FIRST_BYTES", 64)
    save_tiny(tmp_path / "own", "llama")
    serve_folder(hub, tmp_path / "own")
    elsewhere = hub.url.replace("127.0.0.1", "localhost")
    used: set[str] = set()

    def once(handler: Handler, _: bytes) -> bool:
        if "model.safetensors" not in handler.path:
            return False
        if "/resolve/" in handler.path:
            to = f"{elsewhere}/cdn/model.safetensors?signature={len(hub.asked)}"
            handler.reply(302, b"", {"location": to})
        elif handler.path in used:
            handler.reply(403, b"")
        else:
            used.add(handler.path)
            return False
        return True

    hub.fault = once
    assert read_remote(client, NAME, None, None).tensors
    assert len(used) == 2


def test_as_many_connections_are_watched_as_headers_are_read_at_once(client: HubClient) -> None:
    """One that sends its head a byte at a time is broken off, so it must be known."""
    assert client._streams.maxlen == MOST_AT_ONCE


def test_files_of_a_split_gguf_model_are_read_together(
    hub: Hub, client: HubClient, tmp_path: Path
) -> None:
    save_split(tmp_path)
    hub.files = {name: (tmp_path / name).read_bytes() for name in NAMES}
    together = threading.Barrier(len(NAMES))

    def wait(*_: object) -> bool:
        together.wait(60)
        return False

    hub.fault = wait
    remote = read_remote(client, NAME, None, "m-*.gguf")
    assert {tensor.file for tensor in remote.tensors} == set(NAMES)
