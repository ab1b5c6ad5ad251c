"""A model that is used: verified however it is named, and kept from `inferno rm`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.cli.chat import interactive, start
from inferno.errors import InfernoError, ModelError, ModelNotFound
from inferno.hub import fetch
from inferno.hub.add import add_local
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, fetch_model, local_entry, plan_download
from inferno.hub.find import find_model_folder, is_absent
from inferno.hub.local import LocalModel, local_models
from inferno.hub.locks import take_lock
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from inferno.hub.stored_file import record_file
from tests.data import data_path
from tests.hub.loopback import COMMIT, FILES, Hub, git_oid
from tests.patience import PATIENCE
from tests.tiny import save_tiny_model

NAME = "a/model"


def get(client: HubClient, store: Store, include: str | None = None) -> Entry:
    return download(client, store, plan_download(client, store, NAME, None, include))


@pytest.fixture
def entry(hub: Hub, client: HubClient, store: Store) -> Entry:
    """A downloaded model, with weights of which loading would say nothing."""
    weights = safetensors.numpy.save({"w": np.arange(10_000, dtype=np.uint8)})
    hub.files = {**FILES, "model.safetensors": weights}
    return get(client, store)


@pytest.fixture
def gguf() -> bytes:
    return data_path("stories260K-gguf", "stories260K-q8_0-v3.gguf").read_bytes()


def flip(path: Path) -> None:
    """Flip a bit of a file, and set its time of modification back."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def stored_models() -> list[LocalModel]:
    return [model for model in local_models() if "/" in model.name]


# --- what is offered, and a path of the store --------------------------------------------------


@pytest.fixture
def runnable(hub: Hub, client: HubClient, store: Store, tmp_path: Path) -> Entry:
    folder = tmp_path / "made"
    save_tiny_model(folder)
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folder)
    return get(client, store)


def play_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """`inferno play`, on a terminal where the person types the model's name."""
    monkeypatch.setattr(start, "_has_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: NAME)
    monkeypatch.setattr(interactive, "converse", lambda *_: None)
    start.start(None, {"max_model_len": 64}, {}, "", None, None)


def test_a_chosen_model_is_verified_before_it_is_loaded(
    runnable: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_chosen(monkeypatch)
    flip(runnable.folder / "model.safetensors")
    with pytest.raises(ModelNotFound, match="a/model is not on this machine"):
        play_chosen(monkeypatch)


def test_the_choice_names_the_revision_that_it_shows(entry: Entry) -> None:
    [model] = stored_models()
    assert (model.name, model.folder, model.revision) == (NAME, entry.folder, COMMIT)


def test_the_choice_has_the_gguf_models_of_the_store(
    hub: Hub, client: HubClient, store: Store, gguf: bytes
) -> None:
    hub.files = {"x-Q8_0.gguf": gguf, "Q4/y.gguf": gguf}
    one = get(client, store, "x*")
    [model] = stored_models()
    assert (model.name, model.folder) == (NAME, one.folder / "x-Q8_0.gguf")
    assert (model.num_bytes, model.architecture, model.revision) == (len(gguf), "llama", COMMIT)
    get(client, store, "*.gguf")
    names = [model.name for model in stored_models()]
    assert names == ["a/model:Q4/y.gguf", "a/model:x-Q8_0.gguf"]
    for model in stored_models():
        assert find_model_folder(model.name, model.revision) == model.folder


@pytest.fixture
def snapshot(hub: Hub, tmp_path: Path) -> Path:
    """A model in Hugging Face's cache."""
    repository = tmp_path / "hf" / "models--a--model"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "blobs", repository / "refs", tmp_path / "own"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for name, content in FILES.items():
        (repository / "blobs" / git_oid(content)).write_bytes(content)
        (snapshot / name).symlink_to(repository / "blobs" / git_oid(content))
    return snapshot


def test_a_model_of_the_cache_is_offered(snapshot: Path) -> None:
    [model] = stored_models()
    assert (model.name, model.folder, model.revision) == (NAME, snapshot, COMMIT)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "chat_template.jinja"])
@pytest.mark.parametrize("is_link", [True, False])
def test_a_snapshot_with_a_file_from_elsewhere_is_not_used(
    name: str, is_link: bool, snapshot: Path, store: Store, tmp_path: Path
) -> None:
    assert local_entry(store, NAME, None) is not None
    shutil.rmtree(store.root)
    (snapshot / name).unlink(missing_ok=True)
    (tmp_path / "own" / name).write_bytes(FILES["config.json"])
    if is_link:
        (snapshot / name).symlink_to(tmp_path / "own" / name)
    else:
        (snapshot / name).write_bytes(FILES["config.json"])
    assert stored_models() == []
    assert local_entry(store, NAME, None) is None


WAYS = ["folder", "gguf", "link to a folder", "link to a gguf", "folder of links"]


@pytest.fixture(params=WAYS)
def path(
    request: pytest.FixtureRequest, entry: Entry, client: HubClient, hub: Hub, gguf: bytes
) -> Path:
    """A way to the model's files in the store that isn't its name."""
    store = Store.of_user()
    own = store.root.parent.parent / "own"
    own.mkdir()
    if "gguf" in request.param:
        hub.files["Q8/x.gguf"] = gguf
        get(client, store, "*.gguf")
    match request.param:
        case "folder":
            return entry.folder
        case "gguf":
            return entry.folder / "Q8" / "x.gguf"
        case "link to a folder":
            (own / "link").symlink_to(entry.folder)
            return own / "link"
        case "link to a gguf":
            (own / "link.gguf").symlink_to(entry.folder / "Q8" / "x.gguf")
            return own / "link.gguf"
    for file in entry.files:
        (own / file.name).symlink_to(entry.folder / file.name)
    return own


def test_a_path_into_the_store_is_verified(path: Path) -> None:
    assert find_model_folder(str(path)) == path
    weights = path if path.is_file() else path / "model.safetensors"
    os.utime(weights)
    assert find_model_folder(str(path)) == path
    flip(weights)
    with pytest.raises(ModelError, match="has changed since a/model was verified"):
        find_model_folder(str(path))


def test_weights_of_the_store_that_no_manifest_names_are_no_model(
    entry: Entry, store: Store, gguf: bytes
) -> None:
    (entry.folder / "put.gguf").write_bytes(gguf)
    with pytest.raises(ModelNotFound, match=r"put.gguf is in the store, but no file of a complete"):
        find_model_folder(str(entry.folder / "put.gguf"))
    (entry.folder / "put.gguf").unlink()
    entry.folder.with_name(f"{COMMIT}.json").unlink()
    with pytest.raises(ModelNotFound, match="in the store, but no file of a complete model"):
        find_model_folder(str(entry.folder))


# --- rm of what is used ------------------------------------------------------------------------


USE = (
    "import sys; from inferno.hub.find import find_model_folder\n"
    "find_model_folder(sys.argv[1]); print('used', flush=True); sys.stdin.read()"
)


@contextmanager
def used_by_another(model: str) -> Iterator[None]:
    """Another process that uses a model until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE, model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "used\n"
    yield
    process.communicate(timeout=PATIENCE)


def test_rm_never_removes_what_is_used_by_a_path(path: Path, store: Store) -> None:
    [entry] = store.entries()
    with used_by_another(str(path)), pytest.raises(ModelError, match="is in use"):
        store.remove(entry)
    assert store.remove(entry) > 0


def test_rm_never_removes_a_folder_that_is_used_by_another_name(entry: Entry, store: Store) -> None:
    alias = add_local(store, entry.folder)
    with used_by_another(alias.name), pytest.raises(ModelError, match="is in use"):
        store.remove(entry)
    assert store.remove(entry) > 0


# --- what others do between the look-up and the lock -------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once a model was looked up, before it is locked."""
    look_up = fetch.local_entry

    def then_act(store: Store, name: str, revision: str | None) -> Entry | None:
        found = look_up(store, name, revision)
        monkeypatch.setattr(fetch, "local_entry", look_up)
        act()
        return found

    monkeypatch.setattr(fetch, "local_entry", then_act)


def test_a_model_that_became_another_meanwhile_is_not_used(
    entry: Entry,
    gguf: bytes,
    hub: Hub,
    client: HubClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.files["x.gguf"] = gguf

    def replace() -> None:
        store.remove(entry)
        del hub.files["model.safetensors"]
        get(client, store, "*.gguf")

    meanwhile(monkeypatch, replace)
    with pytest.raises(ModelError, match="was removed while it was looked for"):
        fetch_model(NAME, None)


def test_a_file_that_was_removed_meanwhile_is_not_used(
    entry: Entry,
    gguf: bytes,
    hub: Hub,
    client: HubClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.files["x.gguf"] = gguf
    whole = get(client, store, "*.gguf")
    meanwhile(monkeypatch, lambda: store.remove_files(whole, {"x.gguf"}))
    with pytest.raises(ModelError, match="was removed while it was looked for"):
        fetch_model(f"{NAME}:x.gguf", None)
    assert fetch_model(NAME, None) == entry.folder


def test_what_was_added_meanwhile_stays(
    entry: Entry, gguf: bytes, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["x.gguf"] = gguf
    os.utime(entry.folder / "config.json")
    get(client, store, "*.gguf")
    os.utime(entry.folder / "config.json")
    now = store.verified(entry)
    assert now == store.find(NAME)
    assert now is not None
    assert "x.gguf" in {file.name for file in now.files}
    assert now.changed() == []


# --- names of the user's own -------------------------------------------------------------------


def test_a_folder_of_the_users_that_changed_is_not_looked_for_at_a_hub(
    entry: Entry, hub: Hub, store: Store, tmp_path: Path
) -> None:
    own = shutil.copytree(entry.folder, tmp_path / "own")
    alias = add_local(store, own)
    flip(own / "model.safetensors")
    asked = len(hub.asked)
    for look_for in (find_model_folder, is_absent):
        with pytest.raises(InfernoError, match="not on this machine as it was added"):
            look_for(alias.name)
    assert len(hub.asked) == asked


# --- what others put into the store ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder"])
def test_what_is_no_lock_is_refused(kind: str, entry: Entry, store: Store, tmp_path: Path) -> None:
    lock = entry.folder.with_name(f"{COMMIT}.lock")
    lock.unlink()
    other = tmp_path / "other"
    if kind == "link":
        other.touch()
    lock.mkdir() if kind == "folder" else lock.symlink_to(other)
    for act in (lambda: find_model_folder(NAME), lambda: store.remove(entry)):
        with pytest.raises(ModelError, match=r"\.lock is no lock of the store's: remove it"):
            act()
    assert other.exists() == (kind == "link")
    assert entry.folder.exists()


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_link_in_the_place_of_a_file_counts_by_its_content(
    kind: str, entry: Entry, tmp_path: Path
) -> None:
    place = entry.folder / "model.safetensors"
    other = tmp_path / "other"
    place.rename(other)
    if kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(other)
        assert find_model_folder(str(entry.folder)) == entry.folder
        flip(other)
    with pytest.raises(ModelError, match="has changed since a/model was verified"):
        find_model_folder(str(entry.folder))


# --- show --------------------------------------------------------------------------------------


def test_show_refuses_what_has_changed(entry: Entry) -> None:
    config = entry.folder / "config.json"
    os.utime(config)
    assert CliRunner().invoke(app, ["show", NAME]).exit_code == 0
    config.write_bytes(config.read_bytes().replace(b"64", b"65"))
    done = CliRunner().invoke(app, ["show", NAME])
    assert (done.exit_code, "has changed since a/model was verified" in done.stderr) == (1, True)


# --- a file that changes while it is hashed ----------------------------------------------------


def test_a_file_that_changes_while_it_is_hashed_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"x" * 1000)

    def hash_then_change(path: Path) -> str:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        flip(path)
        return found

    assert record_file(tmp_path, path.name, hash_then_change) is None

    def hash_then_link(path: Path) -> str:
        with contextlib.suppress(FileExistsError):
            os.link(path, tmp_path / "link")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    stored = record_file(tmp_path, path.name, hash_then_link)
    assert stored is not None
    assert stored.is_as_verified(tmp_path)


def test_a_model_that_changes_while_it_is_verified_again_is_not_used(
    entry: Entry, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = entry.folder / "config.json"
    content = config.read_bytes()
    os.utime(config)
    digest = hashlib.file_digest

    def hash_then_change(file: BufferedReader, kind: str) -> object:
        found = digest(file, kind)
        config.write_bytes(content + b" ")
        return found

    monkeypatch.setattr(hashlib, "file_digest", hash_then_change)
    assert store.verified(entry) is None


# --- files that somebody put beside a model's ---------------------------------------------------

FOREIGN = ["generation_config.json", "chat_template.jinja", "model.safetensors.index.json"]


@pytest.mark.parametrize("file", [*FOREIGN, "additional_chat_templates/tool_use.jinja"])
def test_a_file_that_no_manifest_names_is_no_part_of_a_model(
    file: str, entry: Entry, client: HubClient, store: Store
) -> None:
    path = entry.folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{}")
    for name in (NAME, str(entry.folder)):
        with pytest.raises(ModelError, match=f"{file} is no file of a/model, and would be read"):
            find_model_folder(name)
    get(client, store)
    assert not path.exists()
    assert find_model_folder(NAME) == entry.folder


def test_files_that_nobody_reads_may_lie_beside_a_model(entry: Entry) -> None:
    (entry.folder / "notes.json").write_bytes(b"{}")
    assert find_model_folder(NAME) == entry.folder


def test_a_gguf_file_may_lie_beside_other_models(store: Store, tmp_path: Path, gguf: bytes) -> None:
    (tmp_path / "own.gguf").write_bytes(gguf)
    added = add_local(store, tmp_path / "own.gguf")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert store.verified(added) is not None


@pytest.mark.parametrize("is_of_repository", [True, False])
def test_a_snapshot_that_has_got_a_file_is_verified_with_it(
    is_of_repository: bool, snapshot: Path, store: Store
) -> None:
    assert local_entry(store, NAME, None) is not None
    blob = snapshot.parents[1] / "blobs" / git_oid(b"{}")
    path = snapshot / "generation_config.json"
    if is_of_repository:
        blob.write_bytes(b"{}")
        path.symlink_to(blob)
    else:
        path.write_bytes(b"{}")
    found = local_entry(store, NAME, None)
    assert (found is not None) == is_of_repository
    assert found is None or path.name in {file.name for file in found.files}


# --- a store that can't be written -------------------------------------------------------------


@pytest.fixture
def read_only(entry: Entry, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store on a file system that is read-only: even root can't write there."""
    open_, mkdir = os.open, os.mkdir

    def may_write(path: str | Path, flags: int) -> None:
        is_inside = Path(os.fsdecode(path)).is_relative_to(store.root)
        if is_inside and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def open_some(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        may_write(path, flags)
        return open_(path, flags, mode, **more)

    def make_some(path: str, mode: int = 0o777) -> None:
        may_write(path, os.O_CREAT)
        mkdir(path, mode)

    monkeypatch.setattr(os, "open", open_some)
    monkeypatch.setattr(os, "mkdir", make_some)
    store.let_go(NAME, COMMIT)


def test_a_store_that_can_not_be_written_is_read(
    read_only: None, entry: Entry, client: HubClient, store: Store
) -> None:
    assert find_model_folder(NAME) == entry.folder
    assert find_model_folder(str(entry.folder)) == entry.folder
    os.utime(entry.folder / "config.json")
    assert find_model_folder(NAME) == entry.folder
    flip(entry.folder / "model.safetensors")
    with pytest.raises(ModelError, match="has changed"):
        find_model_folder(str(entry.folder))
    with pytest.raises(ModelError, match="can't be written: Read-only file system"):
        get(client, store)


def test_a_download_verifies_a_model_of_a_store_that_can_not_be_written(
    read_only: None, entry: Entry, client: HubClient, store: Store
) -> None:
    assert get(client, store).contents == entry.contents


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_a_store_on_a_file_system_without_locks_says_where_to_put_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(fd: int, kind: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(ModelError, match=r"can't lock files .*INFERNO_HOME name a folder"):
        take_lock(store.root / "lock", fcntl.LOCK_SH, may_wait=True)
