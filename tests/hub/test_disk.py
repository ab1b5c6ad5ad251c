"""A store whose disk, folder or manifests aren't as they should be; and folders that are added."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import stat
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.errors import DownloadError, ModelError, ModelNotFound
from inferno.hub.add import add_local
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, local_entry, plan_download
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from tests.hub.loopback import COMMIT, FILES, Hub, git_oid
from tests.hub.test_environment import python

NAME = "a/model"
LATER = "d" * 40


def get(client: HubClient, store: Store, revision: str | None = None) -> Entry:
    return download(client, store, plan_download(client, store, NAME, revision))


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def entry(hub: Hub, client: HubClient, store: Store) -> Entry:
    return get(client, store)


@pytest.fixture
def manifest(entry: Entry) -> Path:
    return entry.folder.with_name(f"{COMMIT}.json")


# --- stores of several users -------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600)])
def test_who_may_read_the_folder_may_read_the_manifest(
    folder: int, file: int, store: Store, entry: Entry, manifest: Path
) -> None:
    manifest.parent.chmod(folder)
    store.write(entry)
    assert stat.S_IMODE(manifest.stat().st_mode) == file


def test_who_may_only_read_the_store_shares_its_locks(
    store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    with store.together(entry.name, entry.revision, may_wait=False):
        monkeypatch.setattr(os, "open", opened)
        with pytest.raises(ModelError, match="in use"):
            Store(store.root).remove(entry)


def test_a_manifest_of_another_user_is_named(
    store: Store, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.write_bytes(b"")  # root may read all, so that what can't be read is played here
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ModelError, match=f"{COMMIT}.json can't be read by this user"):
        store.find(NAME)
    assert not store.partials()  # it may be whole
    code, _, err = run("list")
    assert (code, str(manifest) in err) == (0, True)


# --- damaged manifests -------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}'])
def test_the_files_of_a_damaged_manifest_are_pruned(
    content: bytes, store: Store, entry: Entry, manifest: Path
) -> None:
    manifest.write_bytes(content)
    assert str(manifest) in run("list")[2]
    assert [one.num_bytes for one in store.partials()] == [entry.num_bytes]
    assert run("prune")[0] == 0
    assert not manifest.exists()
    assert not entry.folder.exists()


def test_what_a_newer_inferno_has_stored_is_left_alone(entry: Entry, manifest: Path) -> None:
    manifest.write_text(json.dumps({"version": 2}))
    assert run("prune")[0] == 0
    assert all(path.exists() for path in entry.paths)


@pytest.mark.parametrize(
    "changes",
    [
        {"added_at": 10**400},
        {"folder": "/a\0b"},
        {"folder": "/a\ud800"},
        {"folder": "/" + "x" * 300},
        {"folder": "/x" * 3000},
    ],
    ids=range(5),
)
def test_an_edited_manifest_stops_no_command(
    changes: dict[str, object], store: Store, manifest: Path
) -> None:
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))
    assert store.entries() == []
    for command in (["list"], ["show", "demo"], ["prune"]):
        assert run(*command)[0] == 0


@pytest.mark.parametrize("number", ["size", "mtime_ns", "ctime_ns"])
def test_numbers_of_files_are_bounded(number: str, store: Store, manifest: Path) -> None:
    fields = json.loads(manifest.read_text())
    fields["files"][0][number] = 10**4000
    manifest.write_text(json.dumps(fields))
    assert store.entries() == []
    assert run("list")[0] == 0


# --- removal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["rm", "prune"])
def test_what_can_not_be_removed_is_said(
    command: str, store: Store, entry: Entry, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, ignore_errors: bool = False) -> None:
        if not path.exists():
            raise FileNotFoundError
        if not ignore_errors:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path / "x"))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    if command == "prune":
        manifest.unlink()
    code, _, err = run(*([command] if command == "prune" else [command, NAME]))
    assert code == 1
    assert f"{entry.folder}/x can't be removed: Operation not permitted" in err
    assert [one.folder for one in store.partials()] == [entry.folder]


def test_all_revisions_are_removed_or_none(
    hub: Hub, client: HubClient, store: Store, entry: Entry
) -> None:
    hub.commit = LATER
    later = get(client, store)
    with store.together(entry.name, entry.revision, may_wait=False):
        code, _, err = run("rm", NAME)
    assert (code, "in use" in err) == (1, True)
    assert {one.revision for one in store.entries()} == {COMMIT, later.revision}


def test_a_revision_may_be_given_as_list_shows_it(store: Store, entry: Entry) -> None:
    assert run("rm", NAME, "--revision", COMMIT[:6])[0] == 1
    assert run("rm", NAME, "--revision", COMMIT[:12])[0] == 0
    assert store.entries() == []


def test_a_file_in_place_of_a_download_is_none(hub: Hub, client: HubClient, store: Store) -> None:
    path = store.partial_folder(NAME, COMMIT)
    path.parent.mkdir(parents=True)
    path.write_text("what is this")
    assert [one.num_bytes for one in store.partials()] == [12]
    get(client, store)
    path.write_text("and this")
    assert run("prune")[0] == 0
    assert not path.exists()
    assert store.find(NAME) is not None


# --- room --------------------------------------------------------------------------------------


def test_weights_that_are_here_need_no_room(
    hub: Hub, client: HubClient, store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit = LATER
    listing = client.listing(NAME, "main")
    small = sum(file.size for file in listing.files if not file.is_weights)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, small))
    plan = plan_download(client, store, NAME)
    assert plan.num_missing == small
    later = download(client, store, plan)
    weights = "model.safetensors"
    assert (later.folder / weights).samefile(entry.folder / weights)


def test_a_folder_of_the_users_gives_no_links(
    hub: Hub, client: HubClient, store: Store, tiny: Path
) -> None:
    add_local(store, tiny)
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    got = get(client, store)
    assert not (got.folder / "model.safetensors").samefile(tiny / "model.safetensors")


def test_a_cache_may_be_named_from_where_one_is(
    hub: Hub, client: HubClient, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "rel/hub")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "rel" / "hub" / "models--a--model"
    snapshot = folder / "snapshots" / COMMIT
    for path in (folder / "blobs", folder / "refs", snapshot):
        path.mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for name, content in FILES.items():
        digest = git_oid(content)
        (folder / "blobs" / digest).write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{digest}")
    found = local_entry(store, NAME, None)
    assert found is not None
    monkeypatch.chdir("/")
    assert local_entry(store, NAME, None) == found


def test_a_limit_of_the_size_of_files_is_told(hub: Hub, tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "from inferno.hub import fetch_model; fetch_model('a/model', None)"
    )
    said = python(code, tmp_path / "home", HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0")
    assert said == (
        "inferno.errors.ModelError: a file of a/model is larger than the 200,000 bytes that this "
        "process may write to a file: raise that limit, as by `ulimit -f unlimited`, then try again"
    )


def test_a_file_that_is_too_large_for_a_file_system_is_told(
    hub: Hub, client: HubClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr("inferno.hub.transfer._Part.write", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    with pytest.raises(ModelError, match=f"than the file system of {store.root} takes: set"):
        get(client, store)


# --- what a hub lists --------------------------------------------------------------------------


def test_a_manifest_never_outgrows_its_bound(hub: Hub, client: HubClient, store: Store) -> None:
    hub.files = {f"{'x' * 190}{number}.jinja": b"" for number in range(9990)} | FILES
    assert len(plan_download(client, store, NAME).listing.files) > 9990
    hub.files = {f"{'y' * 190}/{name}": content for name, content in hub.files.items()} | FILES
    with pytest.raises(DownloadError, match="too long for a manifest"):
        plan_download(client, store, NAME)


def test_a_versions_name_is_no_files(hub: Hub, client: HubClient, store: Store) -> None:
    hub.files["model.safetensors.version/x.jinja"] = b""
    listing = plan_download(client, store, NAME).listing
    assert "model.safetensors.version/x.jinja" not in [file.name for file in listing.files]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 3\n"),
        ("tokenizer.json", b"<!doctype html><html>"),
        ("tokenizer.json", b""),
        ("generation_config.json", b"{"),
        ("tokenizer_config.json", b"\xff"),
    ],
)
def test_a_repository_of_broken_configs_is_no_model(
    name: str, content: bytes, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files[name] = content
    with pytest.raises(ModelError, match=name):
        get(client, store)
    assert not [one for one in hub.asked_files() if one.path.endswith("tensors") and not one.range]


@pytest.mark.parametrize("include", ["*.safetensors", "model.safetensors"])
def test_weights_that_were_chosen_are_found_without_a_hub(
    include: str, store: Store, entry: Entry
) -> None:
    assert local_entry(store, NAME, None, include) == entry
    assert local_entry(store, NAME, None, "other*") is None


# --- folders that are added --------------------------------------------------------------------


def test_an_unfinished_download_is_not_added(
    hub: Hub, client: HubClient, store: Store, entry: Entry, manifest: Path
) -> None:
    partial = store.partial_folder(NAME, COMMIT)
    manifest.unlink()
    entry.folder.rename(partial)
    with pytest.raises(ModelNotFound, match="no complete model"):
        add_local(store, partial)


def test_two_folders_have_no_name_together(store: Store, tiny: Path, tmp_path: Path) -> None:
    first = add_local(store, tiny)
    other = shutil.copytree(tiny, tmp_path / "other" / "tiny")
    with pytest.raises(ModelError, match=f"the name of {tiny} already"):
        add_local(store, other)
    assert store.entries() == [first]
    shutil.rmtree(tiny)
    assert add_local(store, other).folder == other
    assert [one.folder for one in store.entries()] == [other]


def test_a_changed_folder_is_what_it_was_added_as_last(store: Store, tiny: Path) -> None:
    """Whatever the clock said before."""
    first = add_local(store, tiny)
    store.write(replace(first, added_at=first.added_at + 86_400))
    (tiny / "chat_template.jinja").write_text("{{ messages }}")
    second = add_local(store, tiny)
    assert store.entries() == [second]
    assert local_entry(store, "local/tiny", None) == second


def test_files_that_nobody_reads_are_none_of_a_folders(store: Store, tiny: Path) -> None:
    (tiny / "checkpoint-5").mkdir()
    (tiny / "checkpoint-5" / "optimizer.safetensors").write_bytes(b"damaged")
    names = {file.name for file in add_local(store, tiny).files}
    assert "model.safetensors" in names
    assert not any("/" in name for name in names)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b'{"architectures": ["BertModel"], "model_type": "bert"}', "bert"),
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\n", "tokenizer.json"),
    ],
)
def test_a_folder_that_can_not_run_is_not_added(
    name: str, content: bytes, said: str, hub: Hub, store: Store, tiny: Path
) -> None:
    (tiny / name).write_bytes(content)
    code, _, err = run("download", str(tiny))
    assert (code, said in err.lower()) == (1, True)
    assert store.entries() == []


def test_nothing_is_no_folder(
    hub: Hub, store: Store, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny)
    code, _, err = run("download", "")
    assert (code, err.count("\n")) == (1, 1)
    assert store.entries() == []


def test_a_cure_names_the_revision(hub: Hub) -> None:
    assert "`inferno download a/model --revision v2`" in run("show", NAME, "--revision", "v2")[2]
    assert "is no model" in run("show", "/no/such/path")[2]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_list_shows_the_columns_that_have_room(
    width: int, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.cli.models.is_terminal", lambda: True)
    monkeypatch.setattr("inferno.cli.models.terminal_size", lambda: os.terminal_size((width, 24)))
    text = re.sub(r"\x1b\[[0-9;]*m", "", run("list")[1])
    table = text.partition("partial downloads")[0]
    headings = [line for line in table.splitlines() if "name" in line]
    assert len(headings) == 1
    assert {"name", "size"} <= {*headings[0].split()}
    assert (COMMIT[:12] in table) == (width >= 100)
    assert f" {NAME} " in table
    assert max(map(len, table.splitlines())) <= width


@pytest.mark.parametrize("context", [10**4000, 2**63, -1, True, 1.5, "64"], ids=range(6))
def test_a_context_that_no_model_has_is_not_shown(
    context: object, store: Store, tiny: Path, hub: Hub
) -> None:
    entry = add_local(store, tiny)
    path = entry.folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "max_position_embeddings": context}))
    code, out, _ = run("list")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 160
    assert len(out.splitlines()) < 12
    rows = {row["name"]: row for row in json.loads(run("list", "--json")[1])["models"]}
    assert rows["local/tiny"]["context"] is None
