"""Downloads from a hub of our own: whole and verified, or an error and nothing that is a model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import constants

from inferno.errors import (
    DownloadError,
    HubUnreachable,
    InvalidRequest,
    ModelError,
    ModelNotFound,
)
from inferno.hub.client import HubClient, Patience, _next_url
from inferno.hub.fetch import download, fetch_model, local_entry, plan_download
from inferno.hub.find import find_model_folder, is_absent
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from inferno.hub.stored_file import stored_file
from tests.hub.conftest import TOKEN
from tests.hub.loopback import (
    COMMIT,
    FILES,
    WEIGHTS,
    Asked,
    Handler,
    Hub,
    gguf,
    git_oid,
    redirect,
    reply_chunked,
    running,
    safetensors,
    sibling,
)
from tests.patience import PATIENCE

NAME = "a/model"
ONE, TWO = safetensors(b"one"), safetensors(b"two")
READ = {"config.json", "tokenizer.json", "model.safetensors"}


def fetch(client: HubClient, store: Store, **options: Any) -> Entry:
    return download(client, store, plan_download(client, store, NAME, **options))


@pytest.fixture(autouse=True)
def _nothing_outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Hold for every test: all files are in the store, in the cache, or the test's own."""
    yield
    for path in tmp_path.rglob("*"):
        top = path.relative_to(tmp_path).parts[0]
        assert top in ("home", "hf", "own"), f"{path} is outside"
    home = tmp_path / "home"
    assert not home.exists() or {path.name for path in home.iterdir()} <= {"models"}


def nothing_is_a_model(store: Store) -> bool:
    return store.entries() == [] and local_entry(store, NAME, None) is None


def test_a_model_is_there_with_all_its_files_and_no_others(
    hub: Hub, client: HubClient, store: Store
) -> None:
    entry = fetch(client, store)
    assert {path.name for path in entry.folder.iterdir()} == READ
    assert all((entry.folder / name).read_bytes() == FILES[name] for name in READ)
    assert (entry.revision, entry.asked, entry.licence) == (COMMIT, ("main",), "apache-2.0")
    assert {file.sha256 for file in entry.files} == {
        hashlib.sha256(FILES[name]).hexdigest() for name in READ
    }
    hub.asked.clear()
    for revision in (None, "main", COMMIT):
        assert find_model_folder(NAME, revision) == entry.folder
    assert hub.asked == []  # what is here needs no hub


def test_all_files_are_of_the_commit_that_was_listed(
    hub: Hub, client: HubClient, store: Store
) -> None:
    fetch(client, store, revision="v1.0")
    assert all(f"/resolve/{COMMIT}/" in one.path for one in hub.asked_files())
    assert "/revision/v1.0?" in hub.asked[0].path


def test_progress_is_told_of_each_file(hub: Hub, client: HubClient, store: Store) -> None:
    told: dict[str, list[int]] = {}
    download(
        client,
        store,
        plan_download(client, store, NAME),
        lambda file, done: told.setdefault(file.name, []).append(done),
    )
    assert set(told) == READ
    assert all(sorted(done) == done and done[-1] == len(FILES[name]) for name, done in told.items())


# --- what a hostile hub says -----------------------------------------------------------------

BAD_NAMES = [
    *("../../evil.json", "/abs.json", "..\\..\\evil.json", "C:\\evil.json", "D:evil.json"),
    *("\\\\host\\share.json", "a\0b.json", "a//b.json", "./a.json", "a/../b.json", "a:b.json"),
    *("x" * 4096 + ".json", "\n.json", "a/../../b.bin", ".../b.bin", "CONFIG.json"),
    "model.safetensors/x.jinja",
]
ODD_NAMES = [
    *(".hidden.json", "a b.json", "a/.git/x.jinja", "é.json", "-rf.json", "a/b/c/d/e.jinja"),
    *("x.part/y.jinja", "~root.json", "$HOME.json", "a|b.json"),
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_file_with_a_dangerous_name_is_refused(
    name: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files[name] = b"{}"
    with pytest.raises(DownloadError, match="its hub lists"):
        fetch(client, store)
    assert hub.asked_files() == []
    assert nothing_is_a_model(store)


def test_files_with_odd_names_are_left_out(hub: Hub, client: HubClient, store: Store) -> None:
    hub.files |= dict.fromkeys(ODD_NAMES, b"{}")
    assert {file.name for file in fetch(client, store).files} == READ
    assert len(hub.asked_files()) == len(READ)


@pytest.mark.parametrize(
    "commit",
    ["../../evil", "/abs", "main", COMMIT.upper(), COMMIT + "0", "", None, 7, [COMMIT], "a\0" * 20],
    ids=ascii,
)
def test_a_revision_that_is_no_hash_is_refused(
    commit: object, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.answer = {"sha": commit, "siblings": hub.siblings()}
    with pytest.raises(DownloadError, match="not 40 hexadecimal digits"):
        fetch(client, store)
    assert nothing_is_a_model(store)


@pytest.mark.parametrize(
    "changes",
    [
        *({"size": size} for size in (-1, 2**70, 1.5, True, None, "7", 2**30)),
        *({"blobId": oid} for oid in ("../../evil", "/abs", "", None, 7, "g" * 40)),
        *({"lfs": {"size": 1, "sha256": one}} for one in ("../../evil", "/abs", None, "A" * 64)),
        *({"lfs": {"size": size, "sha256": "a" * 64}} for size in (-1, 2**70, None)),
    ],
    ids=ascii,
)
def test_a_size_or_hash_that_is_none_is_refused(
    changes: dict[str, Any], hub: Hub, client: HubClient, store: Store
) -> None:
    listed = {**sibling("config.json", b"{}"), **changes}
    hub.answer = {"sha": COMMIT, "siblings": [listed]}
    with pytest.raises(DownloadError, match=r"its hub lists config.json with"):
        fetch(client, store)
    assert nothing_is_a_model(store)


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"<html>", b"[]", b"{", b'{"sha": NaN}', b"[" * 100_000, b"\xff"),
        *({}, {"sha": COMMIT}, {"sha": COMMIT, "siblings": []}, {"sha": COMMIT, "siblings": [7]}),
        {"sha": COMMIT, "siblings": [{}]},
    ],
    ids=lambda one: ascii(one)[:30],
)
def test_an_answer_that_says_nothing_is_refused(
    answer: object, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.answer = answer
    with pytest.raises(DownloadError, match="is not downloaded, as its hub"):
        fetch(client, store)


def test_another_commit_than_was_asked_for_is_refused(
    hub: Hub, client: HubClient, store: Store
) -> None:
    with pytest.raises(DownloadError, match="another commit than dddd"):
        fetch(client, store, revision="d" * 40)
    assert hub.asked_files() == []


def test_a_listed_file_that_is_not_there_is_an_error(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.answer = {"sha": COMMIT, "siblings": [*hub.siblings(), sibling("gone.json", b"{}")]}
    with pytest.raises(DownloadError, match="lacks a file of a/model"):
        fetch(client, store)
    assert nothing_is_a_model(store)


def test_an_endless_answer_is_cut(hub: Hub, client: HubClient, store: Store) -> None:
    hub.answer = b" " * (9 << 20)
    with pytest.raises(DownloadError, match="sends more than the"):
        fetch(client, store)


def test_an_etag_is_never_part_of_a_path(hub: Hub, client: HubClient, store: Store) -> None:
    def evil(handler: Handler, content: bytes) -> bool:
        evil = "../../../evil"
        headers = {"etag": f'"{evil}"', "x-repo-commit": evil, "x-linked-etag": "/abs/evil"}
        handler.reply(200, content, headers)
        return True

    hub.fault = evil
    assert {path.name for path in fetch(client, store).folder.iterdir()} == READ


@pytest.mark.parametrize(
    "name", ["a/../b", "../b", "a/b/c", "a", "a\0/b", "/a/b", "a/b ", "a--b/c"]
)
def test_a_repository_that_could_be_a_path_is_refused(
    name: str, hub: Hub, client: HubClient, store: Store
) -> None:
    with pytest.raises(InvalidRequest, match="a Hugging Face id is OWNER/NAME"):
        plan_download(client, store, name)
    assert hub.asked == []


@pytest.mark.parametrize("revision", ["../../x", "a//b", "", "-x", "a\0b", "x" * 300])
def test_a_revision_that_is_no_name_is_refused(revision: str, hub: Hub, client: HubClient) -> None:
    with pytest.raises(InvalidRequest, match="must be a branch, tag or commit"):
        client.listing(NAME, revision)
    assert hub.asked == []


def test_a_compressed_answer_is_refused(hub: Hub, client: HubClient, store: Store) -> None:
    def bomb(handler: Handler, content: bytes) -> bool:
        handler.reply(200, content, {"content-encoding": "gzip"})
        return True

    hub.fault = bomb
    with pytest.raises(DownloadError, match="compressed"):
        fetch(client, store)
    assert nothing_is_a_model(store)


# --- bodies that are wrong -------------------------------------------------------------------


def is_weights(handler: Handler) -> bool:
    return handler.path.endswith(".safetensors")


def test_a_flipped_bit_is_never_kept(hub: Hub, client: HubClient, store: Store) -> None:
    def flip(handler: Handler, content: bytes) -> bool:
        if is_weights(handler):
            handler.serve(content[:500_000] + bytes([content[500_000] ^ 1]) + content[500_001:])
        return is_weights(handler)

    hub.fault = flip
    with pytest.raises(DownloadError, match="does not match its hash"):
        fetch(client, store)
    assert nothing_is_a_model(store)
    assert not list(store.root.rglob("model.safetensors*"))
    hub.fault = None
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_what_is_wrong_once_is_fetched_anew(
    file: str, hub: Hub, client: HubClient, store: Store
) -> None:
    num_bad = 0

    def flip_first(handler: Handler, content: bytes) -> bool:
        nonlocal num_bad
        if not handler.path.endswith(file) or num_bad:
            return False
        num_bad += 1
        handler.serve(bytes(len(content)))
        return True

    hub.fault = flip_first
    assert (fetch(client, store).folder / file).read_bytes() == FILES[file]


def test_a_body_that_breaks_off_is_gone_on_with(hub: Hub, client: HubClient, store: Store) -> None:
    def cut(handler: Handler, content: bytes) -> bool:
        if not is_weights(handler) or handler.start():
            return False
        handler.reply(200, content[:300_000], length=len(content))
        return True

    hub.fault = cut
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    asked = [one.range for one in hub.asked_files() if one.path.endswith(".safetensors")]
    assert asked == [None, "bytes=300000-"]


def test_a_hub_that_always_breaks_off_ends_in_an_error(
    hub: Hub, client: HubClient, store: Store
) -> None:
    def drip(handler: Handler, content: bytes) -> bool:
        start = handler.start()
        where = f"bytes {start}-{len(content) - 1}/{len(content)}"
        headers = {"content-range": where} if start else {}
        body = content[start : start + 3]
        handler.reply(206 if start else 200, body, headers, length=len(content) - start)
        return True

    hub.fault = drip
    with pytest.raises(DownloadError, match="broke off 5 times"):
        fetch(client, store)
    assert nothing_is_a_model(store)


def test_a_hub_that_always_begins_again_ends_in_an_error(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["model.safetensors"] = WEIGHTS * 3
    num_asked = 0

    def half(handler: Handler, content: bytes) -> bool:
        nonlocal num_asked
        num_asked += is_weights(handler)
        if not is_weights(handler) or num_asked > 20:
            return False
        handler.reply(200, content[: 2 << 20], length=len(content))
        return True

    hub.fault = half
    with pytest.raises(DownloadError, match="broke off 5 times"):
        fetch(client, store)


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("length", [len(WEIGHTS) + 1, len(WEIGHTS) * 3])
def test_a_body_that_is_too_long_is_refused(
    length: int, is_told: bool, hub: Hub, client: HubClient, store: Store
) -> None:
    def pad(handler: Handler, content: bytes) -> bool:
        if is_weights(handler):
            body = (content * 3)[:length]
            if is_told:
                handler.reply(200, body)
            else:
                reply_chunked(handler, body)
        return is_weights(handler)

    hub.fault = pad
    expected = f"{length:,} bytes were sent in place" if is_told else "bytes that are due"
    with pytest.raises(DownloadError, match=expected):
        fetch(client, store)
    assert nothing_is_a_model(store)
    assert all(path.stat().st_size == 0 for path in store.root.rglob("*.part"))


def part_of(store: Store, content: bytes) -> Path:
    folder = store.partial_folder(NAME, COMMIT)
    folder.mkdir(parents=True)
    path = folder / "model.safetensors.part"
    path.write_bytes(content)
    return path


def ranges(hub: Hub) -> list[str | None]:
    return [one.range for one in hub.asked_files() if one.path.endswith(".safetensors")]


def test_a_part_of_another_content_is_fetched_anew(
    hub: Hub, client: HubClient, store: Store
) -> None:
    part_of(store, b"\0" * 1000)  # as after a power cut
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == ["bytes=1000-", None]


def test_a_part_that_is_too_long_is_fetched_anew(hub: Hub, client: HubClient, store: Store) -> None:
    part_of(store, WEIGHTS + b"more")
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [None]


def test_a_hub_without_ranges_begins_again(hub: Hub, client: HubClient, store: Store) -> None:
    def whole(handler: Handler, content: bytes) -> bool:
        handler.reply(200, content)
        return True

    hub.fault = whole
    part_of(store, WEIGHTS[:1000])
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    "where", ["bytes 0-9/1048576", "bytes 1000-1048575/7", "", "bytes x", "bytes 2000-3000/*"]
)
def test_another_range_than_was_asked_for_is_not_taken(
    where: str, hub: Hub, client: HubClient, store: Store
) -> None:
    def wrong(handler: Handler, content: bytes) -> bool:
        if not handler.start():
            return False
        handler.reply(206, content[handler.start() :], {"content-range": where})
        return True

    hub.fault = wrong
    part_of(store, WEIGHTS[:1000])
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == ["bytes=1000-", "bytes=1000-", None]


def test_a_link_in_the_place_of_a_part_is_not_followed(
    hub: Hub, client: HubClient, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    victim = tmp_path / "own" / "victim"
    victim.write_text("mine")
    folder = store.partial_folder(NAME, COMMIT)
    folder.mkdir(parents=True)
    (folder / "model.safetensors.part").symlink_to(victim)
    fetch(client, store)
    assert victim.read_text() == "mine"


def test_a_body_that_stalls_ends_in_an_error(hub: Hub, client: HubClient, store: Store) -> None:
    released = threading.Event()

    def stall(handler: Handler, content: bytes) -> bool:
        if is_weights(handler):
            handler.reply(200, content[:10], length=len(content))
            released.wait(PATIENCE)
        return is_weights(handler)

    hub.fault = stall
    plan = plan_download(client, store, NAME)
    hasty = HubClient(hub.url, None, Patience(stall=0.2, attempts=2, sleep=lambda _: None))
    try:
        with pytest.raises(DownloadError, match=r"stalled: .* broke off 2 times \(it sent nothing"):
            download(hasty, store, plan)
    finally:
        released.set()
        hasty.close()
    assert nothing_is_a_model(store)


def test_a_body_that_drips_ends_in_an_error(hub: Hub, store: Store) -> None:
    patience = Patience(
        stall=PATIENCE, slowest=-1.0, pace=1 << 30, attempts=2, sleep=lambda _: None
    )
    client = HubClient(hub.url, None, patience)
    with pytest.raises((DownloadError, ModelNotFound), match="bytes came in"):
        fetch(client, store)
    client.close()


# --- redirects and tokens --------------------------------------------------------------------


def token_of(asked: Asked) -> str | None:
    return asked.headers.get("authorization")


def test_the_token_goes_to_the_hub_and_to_no_other_host(
    hub: Hub, client: HubClient, store: Store
) -> None:
    with running(Hub()) as other:
        hub.fault = redirect(other.url)
        fetch(client, store)
    assert {token_of(one) for one in hub.asked} == {f"Bearer {TOKEN}"}
    assert len(other.asked) == len(READ)
    assert {token_of(one) for one in other.asked} == {None}
    assert all("secret" not in str(one.headers) for one in other.asked)


def test_the_token_is_gone_once_another_host_was_asked(
    hub: Hub, client: HubClient, store: Store
) -> None:
    def back(handler: Handler, content: bytes) -> bool:
        handler.reply(302, b"", {"location": f"{hub.url}/cdn/{handler.path.rsplit('/', 1)[1]}"})
        return True

    with running(Hub(fault=back)) as other:
        hub.fault = redirect(other.url)
        fetch(client, store)
    returned = [one for one in hub.asked if "/cdn/" in one.path]
    assert len(returned) == len(READ)
    assert {token_of(one) for one in returned} == {None}


def test_a_token_is_not_sent_unencrypted() -> None:
    for endpoint, is_sent in {
        "http://hub.example": False,
        "http://10.0.0.1": False,
        "http://127.0.0.1.example": False,
        "https://hub.example": True,
        "http://localhost:81": True,
        "http://[::1]:81": True,
    }.items():
        client = HubClient(endpoint, TOKEN, Patience())
        assert (client._token == TOKEN) is is_sent, endpoint
        client.close()


@pytest.mark.parametrize(
    "location",
    ["", "file:///etc/passwd", "ftp://x/y", "http://user:pass@127.0.0.1/x", "data:,x"],
)
def test_a_redirect_to_what_is_no_hub_is_refused(
    location: str, hub: Hub, client: HubClient, store: Store
) -> None:
    def elsewhere(handler: Handler, content: bytes) -> bool:
        handler.reply(302, b"", {"location": location} if location else {})
        return True

    hub.fault = elsewhere
    with pytest.raises(DownloadError, match="is not followed"):
        fetch(client, store)


def test_https_is_never_left_for_http() -> None:
    with pytest.raises(DownloadError, match="only an address as safe"):
        _next_url(httpx.URL("https://hub.example/a"), "http://hub.example/a")


def test_endless_redirects_end(hub: Hub, client: HubClient, store: Store) -> None:
    def again(handler: Handler, content: bytes) -> bool:
        handler.reply(302, b"", {"location": handler.path})
        return True

    hub.fault = again
    with pytest.raises(DownloadError, match="redirects more than"):
        fetch(client, store)


# --- refusals of an honest hub ---------------------------------------------------------------


def answering(status: int, headers: dict[str, str]) -> Any:
    def answer(handler: Handler, *_: object) -> bool:
        handler.reply(status, b'{"error": "no"}', headers)
        return True

    return answer


REFUSALS = [
    (
        403,
        {"x-error-code": "GatedRepo"},
        ModelNotFound,
        "accepted its licence: do so at {}/a/model",
    ),
    (
        401,
        {"x-error-code": "GatedRepo"},
        ModelNotFound,
        "accepted its licence: do so at {}/a/model",
    ),
    (403, {}, ModelNotFound, "accepted its licence: do so at {}/a/model"),
    (401, {}, ModelNotFound, "shows it to its owners only: see {}/a/model"),
    (404, {"x-error-code": "RepoNotFound"}, ModelNotFound, "the hub has no such model"),
    (404, {"x-error-code": "RevisionNotFound"}, ModelNotFound, "has no revision 'main'"),
    (400, {}, DownloadError, "answers with status 400"),
    (204, {}, DownloadError, "answers with status 204"),
    (429, {"retry-after": "1"}, HubUnreachable, "can't be reached (status 429)"),
    (500, {}, HubUnreachable, "can't be reached (status 500)"),
]


@pytest.mark.parametrize(("status", "headers", "kind", "said"), REFUSALS, ids=str)
def test_the_reason_of_a_refusal_is_said(
    status: int,
    headers: dict[str, str],
    kind: type[ModelError],
    said: str,
    hub: Hub,
    client: Any,
    store: Store,
) -> None:
    hub.api_fault = answering(status, headers)
    with pytest.raises(ModelError) as caught:
        fetch(client, store)
    assert type(caught.value) is kind
    assert said.format(hub.url) in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_who_has_no_token_is_told_how_to_log_in(hub: Hub, store: Store) -> None:
    hub.fault = answering(401, {"x-error-code": "GatedRepo"})  # the list is open, the files aren't
    client = HubClient(hub.url, None, Patience(stall=PATIENCE))
    with pytest.raises(
        ModelNotFound, match="HF_TOKEN, run `hf auth login` or `inferno download --token-file"
    ):
        fetch(client, store)
    client.close()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_fails_for_a_while_is_asked_again(status: int, hub: Hub, store: Store) -> None:
    pauses: list[float] = []
    num_failed = 0

    def busy(handler: Handler, *_: object) -> bool:
        nonlocal num_failed
        num_failed += 1
        if num_failed % 3 == 0:
            return False
        handler.reply(status, b"", {"retry-after": "7"})
        return True

    hub.fault = hub.api_fault = busy
    client = HubClient(hub.url, None, Patience(stall=PATIENCE, sleep=pauses.append))
    assert {file.name for file in fetch(client, store).files} == READ
    client.close()
    assert pauses
    assert min(pauses) >= 7


def test_a_hub_that_is_not_there_is_named(
    hub: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        client = HubClient(url, None, Patience(stall=PATIENCE, sleep=lambda _: None))
        with pytest.raises(ModelNotFound, match="can't be reached"):
            fetch(client, store)
        client.close()


def test_offline_nothing_is_asked(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE forbids to download a/model"):
        fetch_model(NAME, None)
    assert hub.asked == []


def test_offline_what_is_here_is_used(
    hub: Hub, client: HubClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch(client, store).folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch_model(NAME, None) == folder


# --- the disk, and others on it --------------------------------------------------------------


def test_a_disk_without_room_is_told_before_a_byte_is_fetched(
    hub: Hub, client: HubClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(Path(__file__))
    tight = usage._replace(free=len(WEIGHTS) - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: tight)
    with pytest.raises(ModelError, match=r"the disk is full: .* set INFERNO_HOME"):
        fetch(client, store)
    assert hub.asked_files() == []


def test_a_disk_that_fills_up_is_an_error_of_one_line(
    hub: Hub, client: HubClient, store: Store
) -> None:
    # Writes beyond a limit fail, as those to a full disk do.
    program = (
        "import errno, os, sys; from inferno.hub import transfer; from inferno.hub.fetch import *\n"
        "def write(self, piece): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "transfer._Part.write = write\n"
        "try: fetch_model('a/model', None)\n"
        "except ModelError as problem: sys.exit(f'said: {problem}')\n"
    )
    done = run(program, hub)
    assert done.stderr.startswith("said: the disk is full: "), done.stderr
    assert nothing_is_a_model(store)


def test_files_of_another_revision_are_not_fetched_again(
    hub: Hub, client: HubClient, store: Store
) -> None:
    first = fetch(client, store)
    hub.commit = "d" * 40
    hub.files["config.json"] = FILES["config.json"] + b"\n"
    hub.asked.clear()
    second = fetch(client, store)
    assert not [one for one in hub.asked_files() if one.path.endswith(".safetensors")]
    assert (second.folder / "model.safetensors").samefile(first.folder / "model.safetensors")
    assert local_entry(store, NAME, None) == second
    found = local_entry(store, NAME, COMMIT)
    assert found is not None
    assert found.contents == first.contents


def test_a_model_that_was_changed_on_disk_is_fetched_anew(
    hub: Hub, client: HubClient, store: Store
) -> None:
    fetch(client, store)
    path = fetch_model(NAME, None) / "model.safetensors"  # from now on this process uses it
    content = bytearray(WEIGHTS)
    content[9] ^= 1
    path.write_bytes(content)
    assert local_entry(store, NAME, None) is None
    assert (fetch_model(NAME, None) / "model.safetensors").read_bytes() == WEIGHTS
    assert len(ranges(hub)) == 2


def change_a_bit(path: Path) -> None:
    """Write it in place, and set the time of modification back."""
    before = path.stat()
    content = bytearray(WEIGHTS)
    content[9] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_model_that_was_changed_with_its_old_time_is_fetched_anew(
    hub: Hub, client: HubClient, store: Store
) -> None:
    change_a_bit(fetch(client, store).folder / "model.safetensors")
    assert local_entry(store, NAME, None) is None
    assert (fetch_model(NAME, None) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_bit_that_flipped_on_disk_is_found_by_the_next_download(
    hub: Hub, client: HubClient, store: Store
) -> None:
    entry = fetch(client, store)
    change_a_bit(entry.folder / "model.safetensors")
    flipped = [stored_file(entry.folder, one.name, one.sha256) for one in entry.files]
    store.write(replace(entry, files=tuple(flipped)))  # as disks do: no time tells of it
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_file_that_was_only_touched_is_used(hub: Hub, client: HubClient, store: Store) -> None:
    entry = fetch(client, store)
    os.utime(entry.folder / "model.safetensors")
    found = local_entry(store, NAME, None)
    assert found is not None
    assert found.folder == entry.folder
    again = store.find(NAME)
    assert again is not None
    assert again.changed() == []


def run(program: str, hub: Hub) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


FETCH = "from inferno.hub.fetch import fetch_model; print(fetch_model('a/model', None))"


def test_a_killed_download_goes_on_where_it_stopped(
    hub: Hub, client: HubClient, store: Store
) -> None:
    has_come, is_killed = threading.Event(), threading.Event()

    def half(handler: Handler, content: bytes) -> bool:
        if not is_weights(handler) or is_killed.is_set():
            return False
        handler.reply(200, content[:600_000], length=len(content))
        is_killed.wait(PATIENCE)
        return True

    hub.fault = half
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
    env["HF_HUB_DOWNLOAD_TIMEOUT"] = str(int(PATIENCE))
    process = subprocess.Popen([sys.executable, "-c", FETCH], env=env)
    part = store.partial_folder(NAME, COMMIT) / "model.safetensors.part"
    while not part.exists() or part.stat().st_size < 600_000:
        assert process.poll() is None, "it ended by itself"
        has_come.wait(0.01)
    process.kill()
    process.wait()
    is_killed.set()
    assert nothing_is_a_model(store)
    assert not store.folder(NAME, COMMIT).exists()
    assert (fetch(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [None, "bytes=600000-"]
    assert store.partials() == []


def test_a_model_without_its_manifest_is_made_again_without_fetching(
    hub: Hub, client: HubClient, store: Store
) -> None:
    folder = fetch(client, store).folder
    folder.with_name(f"{COMMIT}.json").unlink()  # killed between the two
    assert nothing_is_a_model(store)
    hub.asked.clear()
    assert fetch(client, store).folder == folder
    assert hub.asked_files() == []


def test_two_processes_at_once_fetch_a_file_once(hub: Hub, store: Store) -> None:
    both, gate = threading.Event(), threading.Lock()

    def slow(handler: Handler, content: bytes) -> bool:
        both.wait(PATIENCE)
        return False

    def listed(handler: Handler) -> bool:
        with gate:
            if len([one for one in hub.asked if "/api/" in one.path]) >= 2:
                both.set()
        return False

    hub.fault, hub.api_fault = slow, listed
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
    env["HF_HUB_DOWNLOAD_TIMEOUT"] = str(int(PATIENCE))
    command = [sys.executable, "-c", FETCH]
    processes = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = {process.communicate(timeout=PATIENCE)[0] for process in processes}
    assert said == {f"{store.folder(NAME, COMMIT)}\n"}
    assert len(ranges(hub)) == 1


def test_files_are_for_their_owner_to_write(hub: Hub, client: HubClient, store: Store) -> None:
    folder = fetch(client, store).folder
    for path in folder.iterdir():
        assert stat.S_ISREG(path.lstat().st_mode)
        assert not path.stat().st_mode & (stat.S_IWOTH | stat.S_IXUSR)


# --- Hugging Face's cache --------------------------------------------------------------------


@dataclass
class Cache:
    """A repository in Hugging Face's cache, as its library lays it out."""

    root: Path

    def add(self, files: dict[str, bytes], commit: str = COMMIT) -> Path:
        repository = self.root / "models--a--model"
        snapshot = repository / "snapshots" / commit
        for folder in (snapshot, repository / "blobs", repository / "refs"):
            folder.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        for name, content in files.items():
            listed = sibling(name, content)
            digest = listed["lfs"]["sha256"] if "lfs" in listed else listed["blobId"]
            (repository / "blobs" / digest).write_bytes(content)
            (snapshot / name).symlink_to(Path("..") / ".." / "blobs" / digest)
        return snapshot


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hf")


def test_what_the_cache_has_is_used_where_it_lies(
    hub: Hub, cache: Cache, client: HubClient, store: Store
) -> None:
    snapshot = cache.add(FILES)
    assert fetch_model(NAME, None) == snapshot
    assert hub.asked == []
    entry = fetch(client, store)
    assert (entry.folder, entry.is_owned) == (snapshot, False)
    assert hub.asked_files() == []
    assert not store.folder(NAME, COMMIT).exists()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_damaged_file_of_the_cache_is_not_used(
    file: str, hub: Hub, cache: Cache, store: Store
) -> None:
    snapshot = cache.add(FILES)
    (snapshot / file).resolve().write_bytes(FILES[file][:-1] + b"?")
    folder = fetch_model(NAME, None)
    assert folder == store.folder(NAME, COMMIT)
    assert (folder / file).read_bytes() == FILES[file]


def test_a_file_that_the_cache_has_is_not_fetched(
    hub: Hub, cache: Cache, client: HubClient, store: Store
) -> None:
    snapshot = cache.add({"model.safetensors": WEIGHTS})
    entry = fetch(client, store)
    assert ranges(hub) == []
    assert (entry.folder / "model.safetensors").samefile(snapshot / "model.safetensors")


@pytest.mark.parametrize(
    "target", ["/etc/hostname", f"../../../../own/{git_oid(b'{}')}", "blobs", "config.json"]
)
def test_a_link_out_of_the_cache_is_not_followed(
    target: str, hub: Hub, cache: Cache, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / git_oid(b"{}")).write_bytes(b"{}")  # named as a blob would be
    snapshot = cache.add(FILES)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(target)
    assert fetch_model(NAME, None) != snapshot


@pytest.mark.parametrize("ref", ["../../evil", "/abs", "", COMMIT[:-1], "\xff" * 40])
def test_a_reference_that_is_no_hash_is_not_followed(
    ref: str, hub: Hub, cache: Cache, store: Store
) -> None:
    snapshot = cache.add(FILES)
    (cache.root / "models--a--model" / "refs" / "main").write_bytes(ref.encode("latin-1"))
    assert local_entry(store, NAME, None) is None
    assert fetch_model(NAME, None) == snapshot  # the hub has said which commit it is


# --- choices and kinds -----------------------------------------------------------------------


def test_a_gguf_file_is_chosen_by_name(hub: Hub, client: HubClient, store: Store) -> None:
    hub.files = {"q4.gguf": gguf(b"4"), "q8.gguf": gguf(b"8"), "README.md": b""}
    with pytest.raises(ModelError, match=r"a/model:FILE, FILE being one of 'q4.gguf', 'q8.gguf'"):
        fetch(client, store)
    assert [file.name for file in fetch(client, store, include="q4*").files] == ["q4.gguf"]
    both = fetch(client, store, include="q8.gguf")
    assert {path.name for path in both.folder.iterdir()} == {"q4.gguf", "q8.gguf"}
    assert len([one for one in hub.asked_files() if one.path.endswith("q4.gguf")]) == 1
    with pytest.raises(ModelError, match="no weights that match"):
        fetch(client, store, include="nothing*")


def test_a_choice_that_breaks_off_leaves_what_was_chosen_before(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"q4.gguf": gguf(b"4"), "q8.gguf": gguf(b"8")}
    fetch(client, store, include="q4.gguf")

    def refused(handler: Handler, content: bytes) -> bool:
        handler.reply(403, b"")
        return True

    hub.fault = refused
    with pytest.raises(ModelNotFound, match="licence"):
        fetch(client, store, include="q8.gguf")
    found = local_entry(store, f"{NAME}:q4", None)
    assert found is not None
    assert found.path.read_bytes() == gguf(b"4")
    hub.fault = None
    both = fetch(client, store, include="q8.gguf")
    assert {path.name for path in both.folder.iterdir()} == {"q4.gguf", "q8.gguf"}
    assert {file.name for file in both.files} == {"q4.gguf", "q8.gguf"}
    assert both.changed() == []
    assert store.partials() == []
    assert len([one for one in hub.asked_files() if one.path.endswith("q4.gguf")]) == 1


def test_a_name_chooses_a_gguf_file(hub: Hub, store: Store) -> None:
    hub.files = {
        "x-Q4_K_M.gguf": gguf(b"4"),
        "x-q4_k.gguf": gguf(b""),
        "x-Q8_0-00001-of-00002.gguf": gguf(b"8"),
        "x-Q8_0-00002-of-00002.gguf": gguf(b"more"),
    }
    for name, file in (
        ("x-Q4_K_M.gguf", "x-Q4_K_M.gguf"),
        ("q4_k_m", "x-Q4_K_M.gguf"),
        ("Q4_K", "x-q4_k.gguf"),
        ("Q8_0", "x-Q8_0-00001-of-00002.gguf"),
        ("x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00001-of-00002.gguf"),
    ):
        path = find_model_folder(f"{NAME}:{name}")
        assert path.name == file
        assert not is_absent(f"{NAME}:{name}")
    assert (path.parent / "x-Q8_0-00002-of-00002.gguf").read_bytes() == gguf(b"more")
    assert len(hub.asked_files()) == 4  # each once
    assert is_absent(f"{NAME}:Q2_K")
    with pytest.raises(ModelError, match="no GGUF file that ends in 'Q2_K'; it has"):
        find_model_folder(f"{NAME}:q2_k")
    with pytest.raises(ModelNotFound, match="there is no folder"):
        find_model_folder(f"{NAME}:")
    with pytest.raises(ModelError, match="no weights that match"):  # it is no pattern
        find_model_folder(f"{NAME}:*.gguf")
    hub.files["y-q4_k_m.gguf"] = gguf(b"")
    hub.commit = "f" * 40
    with pytest.raises(ModelNotFound, match=r"must choose one .* 'x-Q4_K_M.gguf', 'y-q4_k_m.gguf'"):
        find_model_folder(f"{NAME}:Q4_K_M", hub.commit)


@pytest.mark.parametrize("name", ["a/model:../x.gguf", "a/model:/etc/x.gguf", "a/model:\0.gguf"])
def test_a_file_of_a_name_is_looked_for_in_the_listing_alone(
    name: str, hub: Hub, store: Store
) -> None:
    with pytest.raises(ModelError):
        find_model_folder(name)
    assert nothing_is_a_model(store)


def test_some_shards_are_no_model(hub: Hub, client: HubClient, store: Store) -> None:
    del hub.files["model.safetensors"]
    index = {"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}
    hub.files["model.safetensors.index.json"] = json.dumps(index).encode()
    hub.files |= {"model-1.safetensors": ONE, "model-2.safetensors": TWO}
    fetch(client, store, include="model-1*")
    assert local_entry(store, NAME, None) is None
    folder = fetch_model(NAME, None)
    assert (folder / "model-2.safetensors").read_bytes() == TWO
    assert len([one for one in hub.asked_files() if one.path.endswith("model-1.safetensors")]) == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        *(
            ({"quantization_config": {"quant_method": name}}, name)
            for name in ("awq", "gptq", "fp8", "bitsandbytes", "brand-new")
        ),
        ({"quantization_config": {}}, "nothing known"),
        ({"vision_config": {}}, "images"),
    ],
)
def test_kinds_that_do_not_run_are_refused_before_weights(
    config: dict[str, Any], said: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(ModelError, match="doesn't run it") as caught:
        fetch(client, store)
    assert said.lower() in str(caught.value).lower()
    assert ranges(hub) == []
    assert nothing_is_a_model(store)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}, "an adapter"),
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "pickled weights"),
        ({"config.json": b"{}"}, "no weights in safetensors"),
    ],
)
def test_repositories_without_weights_for_us_are_refused(
    files: dict[str, bytes], said: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = files
    with pytest.raises(ModelError, match=said):
        fetch(client, store)
    assert hub.asked_files() == []


def test_second_copies_of_the_weights_are_left_out(
    hub: Hub, client: HubClient, store: Store
) -> None:
    for name in (
        *("original/model.safetensors", "original/params.json", "consolidated.safetensors"),
        *("fp16/a/b.safetensors", "onnx/model.onnx", "q4.gguf", "training_args.bin"),
    ):
        hub.files[name] = b"{}"
    hub.files["additional_chat_templates/tool_use.jinja"] = b"hi"
    names = {file.name for file in fetch(client, store).files}
    assert names == {*READ, "additional_chat_templates/tool_use.jinja"}


def test_a_file_that_was_touched_stays_when_another_is_added(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files = {"q4.gguf": gguf(b"4"), "q8.gguf": gguf(b"8"), "bad.gguf": gguf(b"0")}
    first = fetch(client, store, include="q4.gguf")
    fetch(client, store, include="bad.gguf")
    os.utime(first.folder / "q4.gguf")  # as by a copy of the store, or by a link to the file
    (first.folder / "bad.gguf").write_bytes(b"other")
    both = fetch(client, store, include="q8.gguf")
    assert {path.name for path in both.folder.iterdir()} == {"q4.gguf", "q8.gguf"}
    assert both.changed() == []
    os.utime(first.folder / "q4.gguf")
    again = fetch(client, store, include="q8.gguf")
    assert {file.name for file in again.files} == {"q4.gguf", "q8.gguf"}
