"""Contents that are on this machine are not fetched again, whichever commit they came with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from inferno.errors import DownloadError
from inferno.hub.client import HubClient, Patience
from inferno.hub.fetch import download, plan_download
from inferno.hub.find import find_model_folder
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from tests.hub.conftest import TOKEN
from tests.hub.loopback import FILES, WEIGHTS, Handler, Hub, gguf, safetensors
from tests.hub.test_store import run
from tests.hub.test_use import used_by_another
from tests.patience import PATIENCE

NAME = "a/model"
OLD, NEW = "a" * 40, "b" * 40
HERE = 300_000
Q4, Q8 = "x-Q4_K_M.gguf", "x-Q8_0.gguf"


def get(client: HubClient, store: Store, include: str | None = None, name: str = NAME) -> Entry:
    return download(client, store, plan_download(client, store, name, None, include))


def ranges(hub: Hub, end: str = ".safetensors") -> list[str | None]:
    return [one.range for one in hub.asked_files() if one.path.endswith(end)]


# --- another commit's download that broke off --------------------------------------------------


def break_off(hub: Hub, store: Store) -> Path:
    """Have a download of the old commit break off, and its branch move on; return its part."""

    def cut(handler: Handler, content: bytes) -> bool:
        if content is WEIGHTS:
            handler.reply(200, content[:HERE], length=len(content))
        return content is WEIGHTS

    hub.commit, hub.fault = OLD, cut
    hasty = HubClient(hub.url, TOKEN, Patience(stall=PATIENCE, attempts=1, sleep=lambda _: None))
    with pytest.raises(DownloadError, match="goes on where it stopped"):
        get(hasty, store)
    hasty.close()
    hub.commit, hub.fault = NEW, None
    hub.files["tokenizer.json"] = b'{"model": {"type": "BPE"}}'
    hub.asked.clear()
    return store.partial_folder(NAME, OLD) / "model.safetensors.part"


@pytest.mark.parametrize("name", [NAME, "b/copy"])
def test_a_file_goes_on_though_its_branch_has_moved(
    name: str, hub: Hub, client: HubClient, store: Store
) -> None:
    part = break_off(hub, store)
    plan = plan_download(client, store, name)
    small = sum(file.size for file in plan.listing.files if not file.is_weights)
    assert plan.num_missing == len(WEIGHTS) - HERE + small
    entry = download(client, store, plan)
    assert ranges(hub) == [f"bytes={HERE}-"]
    assert (entry.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert {path.name for path in entry.folder.iterdir()} == {
        *("config.json", "tokenizer.json", "model.safetensors"),
    }
    assert not part.exists()


def test_a_part_of_another_content_stays_where_it_is(
    hub: Hub, client: HubClient, store: Store
) -> None:
    part = break_off(hub, store)
    hub.files["model.safetensors"] = safetensors(WEIGHTS[:HERE] + b"other")
    entry = get(client, store)
    assert ranges(hub) == [None]
    assert (entry.folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    assert part.stat().st_size == HERE


def test_the_longest_part_goes_on(hub: Hub, client: HubClient, store: Store) -> None:
    part = break_off(hub, store)
    own = store.partial_folder(NAME, NEW) / part.name
    own.parent.mkdir()
    own.write_bytes(WEIGHTS[: HERE + 1])
    get(client, store)
    assert ranges(hub) == [f"bytes={HERE + 1}-"]
    assert part.exists()


def test_a_part_that_another_process_goes_on_with_is_left_to_it(
    hub: Hub, client: HubClient, store: Store
) -> None:
    part = break_off(hub, store)
    with store.alone(NAME, OLD, may_wait=False):
        get(client, store)
    assert ranges(hub) == [None]
    assert part.stat().st_size == HERE


@pytest.mark.parametrize("kind", ["part", "record", "folder"])
def test_a_link_among_parts_is_not_followed(
    kind: str, hub: Hub, client: HubClient, store: Store, tmp_path: Path
) -> None:
    part = break_off(hub, store)
    at = {"part": part, "record": part.with_suffix(".version"), "folder": part.parent}[kind]
    own = tmp_path / "own"
    os.rename(at, own)
    if kind == "record":
        os.mkfifo(at)
    else:
        at.symlink_to(own)
    entry = get(client, store)
    assert ranges(hub) == [None]
    assert (entry.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert own.exists()


def test_a_shard_that_an_older_commits_download_has_is_not_fetched(
    hub: Hub, client: HubClient, store: Store
) -> None:
    shards = {f"y-0000{one}-of-00002.gguf": gguf(bytes([one]) * 1000) for one in (1, 2)}
    hub.files, hub.commit = dict(shards), OLD

    def refuse(handler: Handler, content: bytes) -> bool:
        is_second = content == shards["y-00002-of-00002.gguf"]
        if is_second:
            handler.reply(404, b"", {"x-error-code": "EntryNotFound"})
        return is_second

    hub.fault = refuse
    with pytest.raises(DownloadError, match="lacks a file"):
        get(client, store, "y*")
    hub.commit, hub.fault = NEW, None
    hub.asked.clear()
    entry = get(client, store, "y*")
    assert [one.path.rsplit("/", 1)[1] for one in hub.asked_files()] == ["y-00002-of-00002.gguf"]
    assert {path.name: path.read_bytes() for path in entry.folder.iterdir()} == shards
    assert run("prune")[0] == 0
    assert entry.changed() == [] or store.verified(entry) is not None


# --- a further file of a model that is in use --------------------------------------------------


@pytest.fixture
def first(hub: Hub, client: HubClient, store: Store, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A GGUF file of two that the hub has."""
    monkeypatch.setenv("HF_HUB_CACHE", str(constants.HF_HUB_CACHE))
    hub.files = {Q4: gguf(b"4" * 1000), Q8: gguf(b"8" * 1000)}
    return get(client, store, Q4)


def test_a_further_file_is_fetched_while_the_first_is_in_use(
    first: Entry, hub: Hub, client: HubClient, store: Store
) -> None:
    before = (first.folder / Q4).stat()
    waited: list[bool] = []
    with used_by_another(f"{NAME}:{Q4}"):
        plan = plan_download(client, store, NAME, None, Q8)
        both = download(client, store, plan, wait=lambda: waited.append(True))
        assert run("rm", NAME)[0] == 1  # it is in use as before
        assert run("rm", f"{NAME}:{Q8}")[0] == 1
        assert (first.folder / Q4).stat() == before
    assert waited == []
    assert both.folder == first.folder
    assert {file.name for file in both.files} == {Q4, Q8}
    assert find_model_folder(f"{NAME}:{Q8}").read_bytes() == hub.files[Q8]
    store.let_go(NAME, both.revision)
    assert run("rm", NAME)[0] == 0
    assert list(store.root.iterdir()) == []


def test_a_further_file_is_fetched_where_the_one_in_use_was_touched(
    first: Entry, client: HubClient, store: Store
) -> None:
    with used_by_another(f"{NAME}:{Q4}"):
        os.utime(first.folder / Q4)
        assert {file.name for file in get(client, store, Q8).files} == {Q4, Q8}


def test_a_file_is_used_while_a_further_one_is_fetched(
    first: Entry, hub: Hub, client: HubClient, store: Store
) -> None:
    used = []

    def use(handler: Handler, content: bytes) -> bool:
        os.utime(first.folder / Q4)  # it is read anew, and what is found is not to be lost
        with used_by_another(f"{NAME}:{Q4}"):
            used.append(Q4)
        return False

    hub.fault = use
    both = get(client, store, Q8)
    assert used == [Q4]
    assert store.find(NAME) == both
    assert {file.name for file in both.files} == {Q4, Q8}


@pytest.mark.parametrize("kind", ["damaged", "a link"])
def test_a_file_in_use_is_not_replaced_until_its_users_end(
    kind: str, first: Entry, hub: Hub, client: HubClient, store: Store, tmp_path: Path
) -> None:
    class Waited(Exception):
        pass

    def wait() -> None:
        raise Waited

    path = first.folder / Q4
    with used_by_another(f"{NAME}:{Q4}"):
        if kind == "damaged":
            path.write_bytes(b"other")
        else:
            shutil.move(path, tmp_path / "own")
            path.symlink_to(tmp_path / "own")
        status = path.lstat()
        plan = plan_download(client, store, NAME, None, Q8)
        with pytest.raises(Waited):
            download(client, store, plan, wait=wait)
        assert path.lstat() == status
    assert {file.name for file in get(client, store, "*.gguf").files} == {Q4, Q8}
    assert path.read_bytes() == hub.files[Q4]


def test_two_further_files_are_fetched_one_after_the_other(
    first: Entry, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["x-Q6_K.gguf"] = gguf(b"6")
    waited: list[str] = []

    def wait_for(what: str) -> None:
        waited.append(what)
        raise RuntimeError

    plan = plan_download(client, store, NAME, None, Q8)
    with store.adding(NAME, first.revision, may_wait=False), pytest.raises(RuntimeError):
        download(client, store, plan, wait=lambda: wait_for(Q8))
    assert waited == [Q8]
    get(client, store, Q8)
    assert {file.name for file in get(client, store, "*Q6_K*").files} == {Q4, Q8, "x-Q6_K.gguf"}


def test_all_of_a_model_is_fetched_while_its_gguf_file_is_in_use(
    first: Entry, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files |= FILES
    with used_by_another(f"{NAME}:{Q4}"):
        whole = get(client, store)
    assert {file.name for file in whole.files} >= {Q4, "model.safetensors", "config.json"}
    assert find_model_folder(NAME) == whole.folder
