"""Files that make no whole model, or one of a kind that we don't run, never become an entry."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferno.errors import CheckpointError, DownloadError, ModelError, ModelNotFound
from inferno.hub.add import add_local
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, local_entry, plan_download
from inferno.hub.headers import read_remote
from inferno.hub.store import Store
from tests.hub.loopback import COMMIT, CONFIG, FILES, Handler, Hub, gguf, safetensors
from tests.tiny import save_tiny_model

NAME = "a/model"
SMALL = {"config.json": CONFIG, "tokenizer.json": b'{"model": {}}'}
INDEX = {
    "weight_map": {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors",
    }
}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5000\n"


def refused(
    client: HubClient, store: Store, kind: type[ModelError], said: str, include: str | None = None
) -> None:
    """Download in vain, and hold that nothing is a model."""
    with pytest.raises(kind, match=said):
        download(client, store, plan_download(client, store, NAME, None, include))
    assert store.entries() == []
    assert local_entry(store, NAME, None) is None


def weights_asked(hub: Hub) -> list[str]:
    ends = (".safetensors", ".gguf")
    return [one.path for one in hub.asked_files() if one.path.endswith(ends)]


@pytest.mark.parametrize(
    ("files", "include", "lacked"),
    [
        (
            {
                **SMALL,
                "model.safetensors.index.json": json.dumps(INDEX).encode(),
                "model-00001-of-00002.safetensors": safetensors(b"one"),
            },
            None,
            "model-00002-of-00002.safetensors: is missing",
        ),
        ({**SMALL, "model-00001-of-00002.safetensors": b"x"}, None, "lacks model.safetensors and"),
        ({"x-00001-of-00002.gguf": gguf(b"x")}, "*.gguf", "lacks x-00002-of-00002.gguf"),
        ({"x-00002-of-00002.gguf": gguf(b"x")}, "*.gguf", "lacks x-00001-of-00002.gguf"),
        ({"config.json": CONFIG, "model.safetensors": b"x"}, None, "lacks tokenizer.json"),
        ({"tokenizer.json": b"{}", "model.safetensors": b"x"}, None, "lacks config.json"),
    ],
    ids=["shard", "index", "later-gguf", "first-gguf", "tokenizer", "config"],
)
def test_what_is_missing_is_said_before_weights_are_fetched(
    files: dict[str, bytes],
    include: str | None,
    lacked: str,
    hub: Hub,
    client: HubClient,
    store: Store,
) -> None:
    hub.files = files
    refused(client, store, ModelError, f"is not downloaded, .*{lacked}", include)
    assert weights_asked(hub) == []


@pytest.mark.parametrize(
    "content",
    [b"", POINTER, b"<html>", FILES["model.safetensors"][:-1], FILES["model.safetensors"] + b"x"],
    ids=["empty", "pointer", "page", "cut", "longer"],
)
def test_damaged_safetensors_are_no_model(
    content: bytes, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {**SMALL, "model.safetensors": content}
    refused(client, store, DownloadError, r"make no whole model: .*model\.safetensors")


@pytest.mark.parametrize(
    "content",
    [b"", POINTER, b"<html>not found</html>", gguf(bytes(1000))[:-1], b"GGUF" * 10],
    ids=["empty", "pointer", "page", "cut", "junk"],
)
def test_a_damaged_gguf_file_is_no_model(
    content: bytes, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"x.gguf": content}
    refused(client, store, DownloadError, r"make no whole model: .*x\.gguf", "*.gguf")


def test_a_damaged_file_does_not_hide_the_revision_before(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"x.gguf": gguf(bytes(1000))}
    first = download(client, store, plan_download(client, store, NAME, None, "*.gguf"))
    hub.commit, hub.files = "b" * 40, {"x.gguf": gguf(bytes(1000))[:-9]}
    with pytest.raises(DownloadError):
        download(client, store, plan_download(client, store, NAME, None, "*.gguf"))
    assert local_entry(store, f"{NAME}:x.gguf", None) == first


LARGE = bytes(10 << 20)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gguf(LARGE)[:-1], "make no whole model: x.gguf"),
        (gguf(LARGE, "clip"), "inferno doesn't run it: .*'clip'"),
    ],
    ids=["cut", "other"],
)
def test_the_header_of_a_large_gguf_file_is_read_before_the_file(
    content: bytes, said: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"x.gguf": content}
    refused(client, store, ModelError, said, "*.gguf")
    assert [one.range for one in hub.asked_files()] == ["bytes=0-8388607"]


def test_a_large_gguf_file_comes_from_a_site_without_ranges(
    hub: Hub, client: HubClient, store: Store
) -> None:
    def whole(handler: Handler, content: bytes) -> bool:
        handler.reply(200, content)
        return True

    hub.files, hub.fault = {"x.gguf": gguf(LARGE)}, whole
    assert download(client, store, plan_download(client, store, NAME, None, "*.gguf")).files


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"quantize_config.json": b"{}", "gptq-4bit.safetensors": b"x"}, "GPTQ"),
        ({"quant_config.json": b"{}", "model.safetensors": safetensors(b"x")}, "AWQ"),
        ({"hf_quant_config.json": b"{}", "model.safetensors": safetensors(b"x")}, "ModelOpt"),
        ({"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}, "an adapter"),
        (
            {
                "config.json": b'{"quantization_config": ["awq"]}',
                "model.safetensors": safetensors(b"x"),
            },
            "quantization_config is no object",
        ),
    ],
    ids=["gptq", "awq", "modelopt", "adapter", "list"],
)
def test_kinds_that_do_not_run_are_known_by_their_files(
    files: dict[str, bytes], said: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = SMALL | files
    refused(client, store, ModelError, f"inferno doesn't run it: .*{said}")
    assert weights_asked(hub) == []
    with pytest.raises(ModelError, match=said):
        read_remote(client, NAME, None, None)


def test_a_projector_is_left_out_and_never_run(hub: Hub, client: HubClient, store: Store) -> None:
    hub.files = {"mmproj-F16.gguf": gguf(b"x", "clip"), "x-Q4.gguf": gguf(b"x")}
    entry = download(client, store, plan_download(client, store, NAME, None, "*.gguf"))
    assert [file.name for file in entry.files] == ["x-Q4.gguf"]
    with pytest.raises(ModelError, match="doesn't run it: it is a projector"):
        plan_download(client, store, NAME, None, "mmproj-F16.gguf")
    with pytest.raises(ModelError, match=r"FILE being one of 'x-Q4\.gguf'$"):
        plan_download(client, store, NAME)


def test_a_gguf_file_that_needs_another_name_is_told_so(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"my model (Q4).gguf": gguf(b"x")}
    with pytest.raises(ModelError, match=r"'my model \(Q4\)\.gguf' of a/model is not downloaded"):
        plan_download(client, store, NAME, None, "my model (Q4).gguf")


@pytest.mark.parametrize(
    "name",
    ["at 10.30\u202fAM.png", "a\u3000b.png", "\U0001f468\u200d\U0001f469.png", "img/a:b.png"],
    ids=ascii,
)
def test_pictures_may_have_any_name(name: str, hub: Hub, client: HubClient, store: Store) -> None:
    hub.files[name] = b"png"
    entry = download(client, store, plan_download(client, store, NAME))
    assert {file.name for file in entry.files} == {*SMALL, "model.safetensors"}


# --- folders of the user's -------------------------------------------------------------------


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _with_config(**keys: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | keys))

    return change


def _lose_a_shard(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(INDEX))


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (_without("model.safetensors"), ModelNotFound, "has neither model.safetensors nor"),
        (_without("tokenizer.json"), ModelNotFound, "holds no tokenizer.json"),
        (_lose_a_shard, CheckpointError, "model-00002-of-00002.safetensors: is missing"),
        (
            lambda folder: os.truncate(folder / "model.safetensors", 5000),
            CheckpointError,
            "its tensors end at byte",
        ),
        (
            _with_config(quantization_config={"quant_method": "awq"}),
            ModelError,
            "doesn't run it: it is a model quantized with AWQ",
        ),
    ],
    ids=["no weights", "no tokenizer", "no shard", "cut", "awq"],
)
def test_a_folder_that_is_no_whole_model_is_not_added(
    change: Callable[[Path], object],
    kind: type[ModelError],
    said: str,
    store: Store,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "own" / "tiny"
    folder.mkdir(parents=True)
    save_tiny_model(folder)
    change(folder)
    with pytest.raises(kind, match=said):
        add_local(store, folder)
    assert store.entries() == []


def test_a_file_that_changes_while_it_is_hashed_is_hashed_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own" / "small.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf(b"one"))
    monkeypatch.setattr("inferno.hub.add.sha256_of", _changing_once(path, gguf(b"two")))
    entry = add_local(store, path)
    assert entry.files[0].sha256 == _sha256(path)
    assert entry.changed() == []


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _changing_once(path: Path, content: bytes) -> Callable[[Path], str]:
    """Return a hash after which somebody writes the file, the first time."""

    def hash_of(one: Path) -> str:
        sha256 = _sha256(one)
        if path.read_bytes() != content:
            path.write_bytes(content)
        return sha256

    return hash_of


def test_a_manifest_is_read_again_before_it_is_written(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files |= {"x.gguf": gguf(b"x")}
    entry = download(client, store, plan_download(client, store, NAME))
    os.utime(entry.folder / "config.json")
    find = store.find

    def find_late(*args: Any) -> Any:
        found = find(*args)
        monkeypatch.undo()
        download(client, store, plan_download(client, store, NAME, None, "x.gguf"))
        return found

    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(type(store), "find", lambda _, *args: find_late(*args))
    local_entry(store, NAME, None)
    [now] = store.entries()
    assert "x.gguf" in {file.name for file in now.files}
    assert now.revision == COMMIT


# --- whole models that look odd ----------------------------------------------------------------


def test_an_index_beside_weights_in_one_file_is_not_read(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {**FILES, "model.safetensors.index.json": json.dumps(INDEX).encode()}
    download(client, store, plan_download(client, store, NAME))
    assert local_entry(store, NAME, None) is not None


def test_a_config_beside_gguf_files_need_not_be_one_that_runs(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"config.json": b'{"model_type": "llama"}', "x.gguf": gguf(b"x")}
    plan = plan_download(client, store, NAME, None, "*.gguf")
    entry = download(client, store, plan, refuse=lambda folder: "it lacks architectures")
    assert entry.path.name == "x.gguf"
