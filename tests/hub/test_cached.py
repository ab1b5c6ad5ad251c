"""GGUF models in Hugging Face's cache: used where they lie, with a hub or without."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from inferno.errors import HubUnreachable, ModelError
from inferno.hub.cached import cached_snapshot
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, fetch_model, local_entry, plan_download
from inferno.hub.find import find_model_folder, is_absent
from inferno.hub.local import local_models
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from tests.data import data_path
from tests.hub.loopback import COMMIT, FILES, Hub, gguf
from tests.hub.test_download import Cache
from tests.hub.test_store import run

NAME = "a/model"
Q4, Q8 = "x-Q4_K_M.gguf", "x-Q8_0.gguf"
SHARDS = [f"y-Q5_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
CONTENTS = {Q4: gguf(b"4" * 1000), Q8: gguf(b"8" * 1000), **{one: gguf(b"5") for one in SHARDS}}
CONTENTS[SHARDS[1]], CONTENTS[SHARDS[2]] = gguf(b"second"), gguf(b"third")


@pytest.fixture
def cache(hub: Hub, tmp_path: Path) -> Cache:
    """The cache of a user whose hub has all the files."""
    hub.files = dict(CONTENTS)
    return Cache(tmp_path / "hf")


@pytest.fixture(params=[False, True], ids=["online", "offline"])
def offline(request: pytest.FixtureRequest, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", request.param)
    return bool(request.param)


def get(client: HubClient, store: Store, include: str | None = None) -> Entry:
    return download(client, store, plan_download(client, store, NAME, None, include))


def some(*names: str) -> dict[str, bytes]:
    return {name: CONTENTS[name] for name in names}


def names_of(entry: Entry | None) -> set[str]:
    return {file.name for file in entry.files} if entry is not None else set()


def blob_of(file: Path) -> Path:
    return file.parents[2] / "blobs" / hashlib.sha256(CONTENTS[file.name]).hexdigest()


# --- where it lies -----------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [f":{Q4}", ":Q4_K_M", ":q4_k_m", ""])
def test_a_gguf_file_of_the_cache_is_used_where_it_lies(
    chosen: str, offline: bool, cache: Cache, hub: Hub, store: Store
) -> None:
    snapshot = cache.add(some(Q4))
    assert not is_absent(f"{NAME}{chosen}")
    for _ in range(2):
        assert find_model_folder(f"{NAME}{chosen}") == snapshot / Q4
    assert hub.asked == []
    [entry] = store.entries()
    assert (entry.folder, entry.is_owned, entry.revision) == (snapshot, False, COMMIT)
    assert entry.paths == [snapshot / Q4]
    assert (entry.files[0].sha256, entry.files[0].size) == (
        blob_of(snapshot / Q4).name,
        len(CONTENTS[Q4]),
    )
    assert {path.suffix for path in store.root.rglob("*") if path.is_file()} == {".json", ".lock"}


def test_a_file_is_found_in_a_folder_and_by_a_commit(
    offline: bool, cache: Cache, hub: Hub, store: Store
) -> None:
    snapshot = cache.add({})
    (snapshot / "Q4").mkdir()
    blob = snapshot.parents[1] / "blobs" / hashlib.sha256(CONTENTS[Q4]).hexdigest()
    blob.write_bytes(CONTENTS[Q4])
    (snapshot / "Q4" / Q4).symlink_to(Path("../../../blobs") / blob.name)
    (snapshot.parents[1] / "refs" / "main").unlink()
    assert find_model_folder(f"{NAME}:Q4/{Q4}", COMMIT) == snapshot / "Q4" / Q4
    assert find_model_folder(f"{NAME}:Q4_K_M", COMMIT) == snapshot / "Q4" / Q4
    assert hub.asked == []


def test_a_split_model_of_the_cache_is_used_when_all_its_files_are_there(
    offline: bool, cache: Cache, hub: Hub, store: Store
) -> None:
    cache.add(some(*SHARDS[:2]))
    for name in ("Q5_K_M", SHARDS[0]):
        assert local_entry(store, f"{NAME}:{name}", None) is None
        assert is_absent(f"{NAME}:{name}")
    assert [model.name for model in local_models() if "/" in model.name] == []
    snapshot = cache.add(some(SHARDS[2]))
    for name in ("Q5_K_M", SHARDS[0]):
        assert find_model_folder(f"{NAME}:{name}") == snapshot / SHARDS[0]
    assert names_of(local_entry(store, f"{NAME}:Q5_K_M", None)) == {*SHARDS}
    assert hub.asked == []


def test_only_what_is_chosen_is_read(cache: Cache, hub: Hub, store: Store) -> None:
    snapshot = cache.add(some(Q4, Q8, *SHARDS))
    assert local_entry(store, NAME, None) is None  # which one?
    assert names_of(local_entry(store, f"{NAME}:{Q4}", None)) == {Q4}
    assert names_of(local_entry(store, f"{NAME}:{Q8}", None)) == {Q4, Q8}
    for name in (Q4, Q8):
        assert fetch_model(f"{NAME}:{name}", None) == snapshot / name
    assert hub.asked == []
    store.let_go(NAME, COMMIT)
    store.remove(store.entries()[0])
    with pytest.raises(ModelError, match="of which one is to be chosen"):
        fetch_model(NAME, None)


def test_who_has_only_begun_with_a_models_shards_does_not_get_its_gguf_file(
    cache: Cache, store: Store
) -> None:
    cache.add({**some(Q4), "model-00001-of-00002.safetensors": FILES["model.safetensors"]})
    assert local_entry(store, NAME, None) is None


# --- what is not trusted -----------------------------------------------------------------------


def damage(file: Path) -> None:
    file.resolve().write_bytes(CONTENTS[file.name][:-1] + b"?")


def lie_outside(file: Path) -> None:
    own = file.parents[4] / "own"
    own.mkdir()
    (own / blob_of(file).name).write_bytes(CONTENTS[file.name])
    file.unlink()
    file.symlink_to(own / blob_of(file).name)


def be_no_link(file: Path) -> None:
    file.unlink()
    file.write_bytes(CONTENTS[file.name])


def lie_in_another_repository(file: Path) -> None:
    other = file.parents[3] / "models--b--other" / "blobs"
    other.mkdir(parents=True)
    os.rename(blob_of(file), other / blob_of(file).name)
    file.unlink()
    file.symlink_to(other / blob_of(file).name)


def have_a_linked_blob(file: Path) -> None:
    own = file.parents[4] / "own"
    own.mkdir()
    os.rename(blob_of(file), own / "x.gguf")
    blob_of(file).symlink_to(own / "x.gguf")


@pytest.mark.parametrize(
    "spoil",
    [damage, lie_outside, be_no_link, lie_in_another_repository, have_a_linked_blob],
    ids=lambda spoil: str(spoil.__name__),
)
def test_what_is_no_sound_file_of_the_repository_is_not_used(
    spoil: Callable[[Path], None], offline: bool, cache: Cache, hub: Hub, store: Store
) -> None:
    snapshot = cache.add(some(Q4))
    spoil(snapshot / Q4)
    if offline:
        with pytest.raises(HubUnreachable, match="HF_HUB_OFFLINE forbids"):
            find_model_folder(f"{NAME}:{Q4}")
        return
    path = find_model_folder(f"{NAME}:{Q4}")
    assert path == store.folder(NAME, COMMIT) / Q4
    assert path.read_bytes() == CONTENTS[Q4]


def test_a_file_that_changes_after_it_was_verified_is_not_used(
    cache: Cache, hub: Hub, store: Store
) -> None:
    snapshot = cache.add(some(Q4))
    assert find_model_folder(f"{NAME}:{Q4}") == snapshot / Q4
    damage(snapshot / Q4)
    assert local_entry(store, f"{NAME}:{Q4}", None) is None
    assert find_model_folder(f"{NAME}:{Q4}") == store.folder(NAME, COMMIT) / Q4


def test_a_kind_that_does_not_run_is_told(cache: Cache, hub: Hub) -> None:
    hub.files[Q4] = gguf(b"", "bert")
    cache.add({Q4: hub.files[Q4]})
    with pytest.raises(ModelError, match="a GGUF file of another kind"):
        find_model_folder(f"{NAME}:{Q4}")


@pytest.mark.parametrize("place", ["own", "shared", "too deep", "another hash"])
def test_a_blob_that_repositories_share_is_one_of_each(
    place: str, cache: Cache, hub: Hub, store: Store
) -> None:
    """As huggingface_hub lays them out since version 2."""
    snapshot = cache.add(some(Q4))
    blob, digest = blob_of(snapshot / Q4), "ab" * 32
    folders = {"own": "own/ab", "too deep": "blobs/ab/ab", "another hash": "blobs/cd"}
    shared = cache.root / folders.get(place, "blobs/ab") / digest
    shared.parent.mkdir(parents=True)
    os.rename(blob, shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    found = cached_snapshot(NAME, None, Q4)
    assert (found is not None) == (place == "shared")
    if found is not None:
        assert find_model_folder(f"{NAME}:{Q4}") == snapshot / Q4
        assert hub.asked == []


# --- list and rm -------------------------------------------------------------------------------


def listed() -> list[tuple[str, str, str, int]]:
    rows = json.loads(run("list", "--json")[1])["models"]
    keys = ("name", "folder", "place", "size_bytes")
    return [tuple(row[key] for key in keys) for row in rows if "/" in row["name"]]


def test_list_shows_what_the_cache_has(cache: Cache, hub: Hub, store: Store) -> None:
    snapshot = cache.add({**some(Q4), "mmproj-x.gguf": gguf(b"")})
    assert listed() == [(NAME, str(snapshot / Q4), "huggingface", len(CONTENTS[Q4]))]
    cache.add(some(*SHARDS))
    sizes = sum(len(CONTENTS[name]) for name in SHARDS)
    assert listed() == [
        (f"{NAME}:{Q4}", str(snapshot / Q4), "huggingface", len(CONTENTS[Q4])),
        (f"{NAME}:{SHARDS[0]}", str(snapshot / SHARDS[0]), "huggingface", sizes),
    ]
    assert find_model_folder(f"{NAME}:Q5_K_M").parent == snapshot
    assert listed() == [
        (NAME, str(snapshot / SHARDS[0]), "elsewhere", sizes),
        (f"{NAME}:{Q4}", str(snapshot / Q4), "huggingface", len(CONTENTS[Q4])),
    ]
    for name, *_ in listed():
        find_model_folder(name)
    assert find_model_folder(f"{NAME}:{Q4}") == snapshot / Q4
    [model] = listed()
    assert model == (NAME, str(snapshot), "elsewhere", sizes + len(CONTENTS[Q4]))
    assert "partial downloads: 0" in run("list")[1]


def test_show_knows_what_was_never_used(cache: Cache, hub: Hub, store: Store) -> None:
    small = data_path("stories260K-gguf", "stories260K-q8_0-v3.gguf").read_bytes()
    snapshot = cache.add({Q4: small, **some(Q8)})
    for name in (f"{NAME}:{Q4}", f"{NAME}:q4_k_m"):
        code, out, _ = run("show", name, "--json")
        assert (code, json.loads(out)["folder"]) == (0, str(snapshot / Q4))
    assert "`inferno download a/model:Q5_K_M`" in run("show", f"{NAME}:Q5_K_M")[2]
    assert not store.entries()
    find_model_folder(f"{NAME}:{Q8}")  # it has a manifest now
    assert run("show", f"{NAME}:Q4_K_M", "--json")[0] == 0
    assert "must choose one GGUF file" in run("show", f"{NAME}:Q5_K_M")[2]


def test_rm_removes_the_manifest_alone(cache: Cache, hub: Hub, store: Store) -> None:
    snapshot = cache.add(some(Q4, Q8))
    for name in (Q4, Q8):
        find_model_folder(f"{NAME}:{name}")
    store.let_go(NAME, COMMIT)
    code, _, err = run("rm", f"{NAME}:{Q4}")
    assert (code, f"its files stay in {snapshot}" in err) == (0, True)
    assert [names_of(entry) for entry in store.entries()] == [{Q8}]
    assert run("rm", NAME)[0] == 0
    assert store.entries() == []
    assert list(store.root.iterdir()) == []
    assert all((snapshot / name).read_bytes() == CONTENTS[name] for name in (Q4, Q8))


# --- with a hub --------------------------------------------------------------------------------


def test_a_download_of_what_the_cache_has_fetches_nothing(
    cache: Cache, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["config.json"] = b"{}"
    snapshot = cache.add(some(Q4, *SHARDS))
    for name, include in ((Q4, Q4), (SHARDS[0], "y-*")):
        plan = plan_download(client, store, NAME, None, include)
        assert plan.num_missing == 0
        entry = download(client, store, plan)
        assert (entry.folder, entry.is_owned) == (snapshot, False)
        assert find_model_folder(f"{NAME}:{name}") == snapshot / name
    code, out, err = run("download", f"{NAME}:{Q4}")
    assert (code, out) == (0, f"{snapshot}\n"), err
    assert hub.asked_files() == []


@pytest.mark.parametrize("is_one_disk", [True, False])
def test_a_blob_of_another_commit_is_not_fetched(
    is_one_disk: bool,
    cache: Cache,
    hub: Hub,
    client: HubClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = cache.add(some(Q4, *SHARDS), commit="b" * 40)
    if not is_one_disk:
        refuse_links(monkeypatch)
    for include, names in ((Q4, [Q4]), ("y-*", SHARDS)):
        entry = get(client, store, include)
        for name in names:
            assert (entry.folder / name).read_bytes() == CONTENTS[name]
            assert (entry.folder / name).samefile(snapshot / name) == is_one_disk
    assert entry.is_owned
    assert hub.asked_files() == []


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the cache on another disk."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("is_one_disk", [True, False])
def test_a_file_of_the_cache_joins_those_of_the_store(
    is_one_disk: bool,
    offline: bool,
    cache: Cache,
    hub: Hub,
    client: HubClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = get(client, store, Q8)
    snapshot = cache.add(some(Q4, *SHARDS))
    if not is_one_disk:
        refuse_links(monkeypatch)
    hub.asked.clear()
    for name, file in (("Q4_K_M", Q4), ("Q5_K_M", SHARDS[0]), ("Q8_0", Q8)):
        path = find_model_folder(f"{NAME}:{name}")
        assert path == first.folder / file
        assert path.read_bytes() == CONTENTS[file]
    assert hub.asked == []
    [entry] = store.entries()
    assert (entry.is_owned, names_of(entry)) == (True, {Q4, Q8, *SHARDS})
    assert entry.changed() == []
    assert (entry.folder / Q4).samefile(snapshot / Q4) == is_one_disk
    store.let_go(NAME, COMMIT)
    assert run("rm", NAME)[0] == 0
    assert all((snapshot / name).read_bytes() == CONTENTS[name] for name in (Q4, *SHARDS))


@pytest.mark.parametrize("is_one_disk", [True, False])
def test_what_is_fetched_joins_the_file_of_the_cache(
    is_one_disk: bool,
    cache: Cache,
    hub: Hub,
    client: HubClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = cache.add(some(Q4))
    find_model_folder(f"{NAME}:{Q4}")
    if not is_one_disk:
        refuse_links(monkeypatch)
    both = get(client, store, Q8)
    assert (both.is_owned, names_of(both)) == (True, {Q4, Q8} if is_one_disk else {Q8})
    hub.asked.clear()
    for name in (Q4, Q8):
        assert find_model_folder(f"{NAME}:{name}") == both.folder / name
    assert hub.asked == []
    assert (snapshot / Q4).read_bytes() == CONTENTS[Q4]
    assert store.partials() == []


def test_a_model_in_safetensors_of_the_cache_joins_a_gguf_file_of_the_store(
    cache: Cache, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files |= FILES
    first = get(client, store, Q8)
    cache.add(FILES)
    hub.asked.clear()
    get(client, store)
    assert hub.asked_files() == []
    [entry] = store.entries()
    assert names_of(entry) >= {Q8, "model.safetensors", "config.json"}
    assert find_model_folder(NAME) == find_model_folder(f"{NAME}:{Q8}").parent == first.folder
