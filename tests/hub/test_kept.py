"""What the store keeps over time: branches that move on, and what killed processes have left."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, local_entry, plan_download
from inferno.hub.local import local_models
from inferno.hub.manifest import Entry
from inferno.hub.names import RemoteFile
from inferno.hub.store import Store
from inferno.whole_file import whole_file
from tests.hub.loopback import FILES, Hub

NAME = "a/model"
OLD, NEW = "a" * 40, "b" * 40


def get(client: HubClient, store: Store, revision: str | None = None) -> Entry:
    return download(client, store, plan_download(client, store, NAME, revision))


def revision_of(store: Store, asked: str | None) -> str | None:
    found = local_entry(store, NAME, asked)
    return None if found is None else found.revision


# --- branches ----------------------------------------------------------------------------------


@pytest.fixture
def moved(hub: Hub, client: HubClient, store: Store) -> None:
    """A model whose main branch has moved on since it was first downloaded."""
    hub.commit = OLD
    get(client, store)
    hub.commit = NEW
    hub.files = {**FILES, "tokenizer.json": b'{"model": {"type": "BPE"}}'}
    get(client, store)


@pytest.mark.parametrize("asked", [OLD, "v1.0"])
def test_a_branch_stays_at_the_commit_that_it_had_last(
    asked: str, moved: None, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.commit, hub.files = OLD, FILES
    assert get(client, store, asked).revision == OLD
    assert revision_of(store, asked) == OLD
    assert (revision_of(store, "main"), revision_of(store, None)) == (NEW, NEW)
    assert [one.revision for one in local_models() if one.name == NAME] in ([], [NEW])


def test_a_branch_that_moves_back_is_followed(
    moved: None, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.commit, hub.files = OLD, FILES
    get(client, store)
    assert (revision_of(store, "main"), revision_of(store, None)) == (OLD, OLD)
    assert [one.asked for one in store.entries()] == [("main",), ()]


def test_a_damaged_model_that_is_fetched_anew_does_not_take_the_branch_back(
    moved: None, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.commit, hub.files = OLD, FILES
    (store.folder(NAME, OLD) / "config.json").write_bytes(b"{}")
    get(client, store, OLD)
    assert (revision_of(store, "main"), revision_of(store, OLD)) == (NEW, OLD)


@pytest.mark.parametrize("asked", ["v1.0", OLD])
def test_a_branch_that_moves_on_while_its_old_commit_is_fetched_does_not_come_back(
    asked: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.commit = OLD
    old = get(client, store)
    (old.folder / "config.json").write_bytes(b"{}")
    plan = plan_download(client, store, NAME, asked)

    def move(file: RemoteFile, done: int) -> None:
        """Download the branch anew, from where the other download holds its lock."""
        if store.find(NAME, NEW) is None:
            store.write(replace(old, revision=NEW, asked=("main",), added_at=time.time()))

    download(client, store, plan, move)
    found = {one.revision: one.asked for one in store.entries()}
    assert found == {OLD: ("v1.0",) if asked == "v1.0" else (), NEW: ("main",)}


def test_a_branch_that_moves_on_while_its_old_commit_is_read_anew_does_not_come_back(
    hub: Hub, client: HubClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit = OLD
    old = get(client, store)
    os.utime(old.folder / "config.json")
    digest = hashlib.file_digest

    def move_then_hash(file: BufferedReader, kind: str) -> object:
        store.write(replace(old, revision=NEW, asked=("main",), added_at=time.time()))
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", move_then_hash)
    assert store.verified(old) is not None
    assert {one.revision: one.asked for one in store.entries()} == {OLD: (), NEW: ("main",)}


# --- what killed processes have left -----------------------------------------------------------


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.stderr
    return done.stderr


def test_prune_removes_manifests_that_were_not_finished(
    hub: Hub, client: HubClient, store: Store
) -> None:
    beside = get(client, store).folder.parent / ".manifest-abc"
    alone = store.root / "a--other" / ".manifest-def"
    alone.parent.mkdir()
    for path in (beside, alone):
        path.write_bytes(b"x" * 500)
    assert "removed 1 kB of partial downloads" in run("prune")
    assert (beside.exists(), alone.parent.exists()) == (False, False)
    assert local_entry(store, NAME, None) is not None


def test_the_next_manifest_replaces_those_that_were_not_finished(
    hub: Hub, client: HubClient, store: Store
) -> None:
    entry = get(client, store)
    left = entry.folder.parent / ".manifest-abc"
    left.touch()
    store.write(entry)
    assert not left.exists()


@pytest.mark.parametrize("file", ["packed/.packed-abc", "models/a--model/.manifest-abc"])
def test_prune_leaves_what_another_process_writes(file: str, hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "home" / file
    path.parent.mkdir(parents=True)
    with whole_file(path.with_name("done"), prefix=path.name) as writer:
        writer.write(b"x" * 1000)
        writer.flush()
        run("prune", "--days", "0")
        assert len(list(path.parent.iterdir())) == 1
    assert path.with_name("done").stat().st_size == 1000


def test_prune_removes_packings_that_were_not_finished(hub: Hub, tmp_path: Path) -> None:
    left = tmp_path / "home" / "packed" / ".packed-abc"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 1000)
    assert "1 kB of packed weights" in run("prune")
    assert not left.exists()
