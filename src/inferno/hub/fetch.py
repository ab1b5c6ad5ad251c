"""Fetch a model from a hub into the store: plan, fetch and verify file by file, then add it."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from inferno.errors import (
    CheckpointError,
    DownloadError,
    HubUnreachable,
    InvalidRequest,
    ModelError,
)
from inferno.gguf.file import is_gguf_name
from inferno.hub.cached import Snapshot, cached_snapshot, has_all_weights
from inferno.hub.client import HubClient, Patience, find_token
from inferno.hub.environment import constants, download_timeout
from inferno.hub.facts import check_safetensors
from inferno.hub.headers import check_remote_ggufs
from inferno.hub.kinds import refuse_config_in, refuse_listing
from inferno.hub.manifest import Entry
from inferno.hub.names import (
    READ_FILES,
    WEIGHTS,
    Listing,
    RemoteFile,
    is_repository,
    split_file,
)
from inferno.hub.reuse import brought, here_already, num_missing_of_all, recorded
from inferno.hub.store import Store
from inferno.hub.stored_file import StoredFile, stored_file
from inferno.hub.transfer import (
    FULL,
    disk_full,
    fetch_file,
    file_too_large,
    part_of,
    version_at,
)
from inferno.hub.whole import check_shards, check_small, check_weights
from inferno.json_file import INDEX_FILE, SINGLE_FILE
from inferno.untrusted_json import quoted

_logger = logging.getLogger("inferno")

# Hears of which file how many bytes are there.
Tell = Callable[[RemoteFile, int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A model that is to be fetched: a repository as of one commit, asked for by a branch or tag.

    is_whole    whether all files of the model are fetched, and not only some that were chosen.
    """

    name: str
    asked: str | None
    listing: Listing
    is_whole: bool
    num_missing: int

    @property
    def revision(self) -> str:
        """Return the commit that is fetched."""
        return self.listing.commit


def fetch_model(name: str, revision: str | None) -> Path:
    """Return the path of a model, downloaded where the store and the cache lack it.

    Raises ModelNotFound, DownloadError or ModelError where that fails.
    """
    store = Store.of_user()
    entry = local_entry(store, name, revision)
    repository, include = split_file(name)
    if entry is None:
        with hub_client(repository) as client:
            plan = plan_download(client, store, repository, revision, include)
            _logger.info("downloading %s, %d bytes", name, plan.num_missing)
            entry = download(client, store, plan)
    used = store.use(entry)
    if used is None:
        raise ModelError(f"{name} was removed while it was looked for; try again")
    return used.path if include is None else used.chosen(include, name)


@contextlib.contextmanager
def hub_client(
    name: str, *, token_file: Path | None = None, patience: Patience | None = None
) -> Iterator[HubClient]:
    """Yield a connection to the user's hub; ModelNotFound where HF_HUB_OFFLINE forbids it."""
    _check_online(name)
    patience = patience or Patience(stall=download_timeout())
    client = HubClient(constants.ENDPOINT, find_token(token_file), patience)
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def web_client(folder: str) -> Iterator[HubClient]:
    """Yield a connection to a folder on the web, which gets no token."""
    _check_online(folder)
    patience = Patience(stall=download_timeout())
    with contextlib.closing(HubClient(folder, None, patience, is_hub=False)) as client:
        yield client


def _check_online(name: str) -> None:
    if constants.HF_HUB_OFFLINE:
        raise HubUnreachable(
            f"HF_HUB_OFFLINE forbids to download {name}, or to look for what is new of it; unset "
            "HF_HUB_OFFLINE, or give a folder"
        )


def local_entry(
    store: Store, name: str, revision: str | None, include: str | None = None
) -> Entry | None:
    """Return a model that is here and unchanged since it was verified, without asking a hub.

    name        a repository's name, or OWNER/NAME:FILE, whose file must be here.
    include     the same as FILE, as a pattern.

    A complete model in Hugging Face's cache, or a GGUF model that is all there, is verified, once,
    and used where it lies.
    """
    name, chosen = split_file(name)
    include = include or chosen
    entry = store.find(name, revision)
    has_it = entry is not None and (
        _is_model(entry) if include is None else _has_chosen(entry, include, chosen)
    )
    if entry is not None and has_it and (found := store.verified(entry)) is not None:
        return found
    snapshot = cached_snapshot(name, revision, include)
    if snapshot is None:
        return None
    with store.adding(name, snapshot.commit, may_wait=True):
        return _adopted(store, name, revision, snapshot)


def _has_chosen(entry: Entry, include: str, chosen: str | None) -> bool:
    """Return whether a model has weights that match: a GGUF file, or all of it in safetensors."""
    if chosen is not None or entry.gguf_files(include):
        return bool(entry.gguf_files(include))
    return _is_model(entry) and any(
        file.name.endswith(WEIGHTS) and fnmatchcase(file.name, include) for file in entry.files
    )


def plan_download(
    client: HubClient,
    store: Store,
    name: str,
    revision: str | None = None,
    include: str | None = None,
) -> Plan:
    """Return the plan to fetch a repository; ModelError for kinds that we don't run."""
    if not is_repository(name):
        raise InvalidRequest(f"a Hugging Face id is OWNER/NAME, not {quoted(name)}")
    asked = "main" if revision is None else revision
    listing = client.listing(name, asked, include)
    refuse_listing(name, listing, include)
    plan = Plan(name, asked, listing, include is None, 0)
    if _cached(plan) is not None:
        return plan
    folders = [store.partial_folder(name, listing.commit), store.folder(name, listing.commit)]
    return replace(plan, num_missing=num_missing_of_all(store, name, listing.files, folders))


def download(
    client: HubClient,
    store: Store,
    plan: Plan,
    tell: Tell = lambda file, done: None,
    *,
    wait: Callable[[], None] = lambda: None,
    refuse: Callable[[Path], str | None] = lambda folder: None,
) -> Entry:
    """Have a model completely in the store, verified, and return its entry.

    tell    is told how far the download is.
    wait    is called before waiting for another process that fetches or uses the same model.
    refuse  returns why a folder of configs is of no model that can be run; asked before weights
            are fetched.
    """
    try:
        with _locked(store.adding, plan, wait):
            found = _verified(store, plan, tell)
            if found is None and _keeps_all(store, plan):
                found = _fetched(client, store, plan, tell, refuse)
        if found is not None:
            return found
        store.let_go(plan.name, plan.revision)  # or this process would wait for itself
        with _locked(store.alone, plan, wait):
            # Another process may have been faster.
            return _verified(store, plan, tell) or _fetched(client, store, plan, tell, refuse)
    except OSError as problem:
        if problem.errno in FULL:
            raise disk_full(plan.name, store.root) from None
        if problem.errno == errno.EFBIG:
            raise file_too_large(plan.name, store.root) from None
        raise ModelError(
            f"{problem.filename or store.root} can't be written: {problem.strerror}; set "
            "INFERNO_HOME to a folder of yours"
        ) from None


@contextlib.contextmanager
def _locked(
    lock: Callable[..., AbstractContextManager[None]], plan: Plan, wait: Callable[[], None]
) -> Iterator[None]:
    """Hold a lock of a model until the block ends, and say so before waiting for it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock(plan.name, plan.revision, may_wait=False))
        except ModelError:
            wait()
            stack.enter_context(lock(plan.name, plan.revision, may_wait=True))
        yield


def _verified(store: Store, plan: Plan, tell: Tell) -> Entry | None:
    """Return the model if all its files are here and have the hashes that the hub lists."""
    entry = store.find(plan.name, plan.revision)
    if entry is not None and not entry.foreign_files():
        files = _verify(entry.folder, plan.listing, tell)
        if files is not None:
            entry = store.asked_also(replace(entry, files=_joined(files, entry)), plan.asked)
            with contextlib.suppress(OSError):  # a store that can't be written
                store.write(entry)
            return entry
    snapshot = _cached(plan)
    if snapshot is None:
        return None
    return _adopted(store, plan.name, plan.asked, snapshot, plan.listing.licence)


def _cached(plan: Plan) -> Snapshot | None:
    """Return what Hugging Face's cache has of a plan, not verified yet, if that is all it takes.

    Of a GGUF model no other file is read.
    """
    if plan.asked is None:  # it is of no hub
        return None
    if plan.is_whole:
        snapshot = cached_snapshot(plan.name, plan.revision)
        wanted = plan.listing.files
    else:
        snapshot = cached_snapshot(plan.name, plan.revision, "*")
        wanted = tuple(file for file in plan.listing.files if file.is_weights)
    if snapshot is None or not {*wanted} <= {*snapshot.files}:
        return None
    return snapshot if plan.is_whole else replace(snapshot, files=wanted)


def _keeps_all(store: Store, plan: Plan) -> bool:
    """Return whether a download leaves all files alone that the model's users may be using."""
    entry = store.find(plan.name, plan.revision)
    if entry is None:
        return False
    return not entry.is_owned or all(
        not path.is_symlink() and _still_there(entry.folder, file) is not None
        for path, file in zip(entry.paths, entry.files, strict=True)
    )


def _verify(folder: Path, listing: Listing, tell: Tell) -> tuple[StoredFile, ...] | None:
    found = []
    for file in listing.files:
        stored = recorded(folder, file)
        if stored is None:
            return None
        tell(file, file.size)
        found.append(stored)
    return tuple(found)


def _fetched(
    client: HubClient,
    store: Store,
    plan: Plan,
    tell: Tell,
    refuse: Callable[[Path], str | None],
) -> Entry:
    before = store.find(plan.name, plan.revision)
    keeps = before is not None
    partial_folder = store.reopen(plan.name, plan.revision, keeps=keeps)
    folder = store.folder(plan.name, plan.revision)
    found = dict(_good_files(folder, plan.listing)) if keeps else {}
    _check_room(store, partial_folder, plan, found)

    kept, has_configs = {*found}, False

    def place(name: str) -> Path:
        return (folder if name in kept else partial_folder) / name

    for file in plan.listing.files:
        if file.is_weights and not has_configs:
            has_configs = True
            if any(one.name.endswith(".safetensors") for one in plan.listing.files):
                _refuse_kinds(plan.name, partial_folder, refuse)  # GGUF files have their configs
            _check_before_weights(client, plan, place)
        path = partial_folder / file.name
        if file.name not in found:
            stored = here_already(store, plan.name, file, partial_folder)
            if stored is None:
                sha256 = fetch_file(
                    client, plan.name, plan.revision, file, path, partial(tell, file)
                )
                version = file.version if file.has_hash else version_at(path)
                stored = replace(stored_file(partial_folder, file.name, sha256), version=version)
            found[file.name] = stored
            if file.name.endswith(".safetensors"):
                with _judged(plan):
                    check_safetensors(path)
        tell(file, file.size)
    with _judged(plan):
        check_weights(plan.name, {file.name for file in plan.listing.files}, place)
    _remove_others(partial_folder, found)
    store.gather(plan.name, plan.revision)
    files = tuple(one.as_moved_to(folder) for one in found.values())
    if before is not None and not before.is_owned:
        files += _linked(before, {*found}, folder)
    entry = Entry(
        name=plan.name,
        revision=plan.revision,
        asked=before.asked if before is not None else (),
        source=client.endpoint,
        licence=plan.listing.licence,
        folder=folder,
        is_owned=True,
        files=_joined(files, before, folder),
        added_at=before.added_at if before is not None else time.time(),
    )
    _remove_others(folder, {file.name for file in entry.files})
    entry = store.asked_also(entry, plan.asked)
    store.write(entry)
    return entry


def _good_files(folder: Path, listing: Listing) -> Iterator[tuple[str, StoredFile]]:
    """Yield the files of a listing that a folder has, by their names."""
    for file in listing.files:
        if (stored := recorded(folder, file)) is not None:
            yield file.name, stored


def _check_before_weights(client: HubClient, plan: Plan, place: Callable[[str], Path]) -> None:
    """Refuse what the small files, and the headers of large ones, show to be no whole model."""
    small = [file for file in plan.listing.files if not file.is_weights]
    names = {file.name for file in plan.listing.files}
    with _judged(plan):
        check_small(
            place(file.name) for file in small if not file.has_hash or file.name in READ_FILES
        )
        if plan.is_whole and INDEX_FILE in names and SINGLE_FILE not in names:
            check_shards(place(INDEX_FILE).parent, names)
        absent = [name for name in names if not _has_begun(place(name))]
        check_remote_ggufs(client, plan.name, plan.listing, absent)


def _has_begun(path: Path) -> bool:
    return path.exists() or part_of(path).exists()


@contextlib.contextmanager
def _judged(plan: Plan) -> Iterator[None]:
    """Say of damaged and missing files that the model is not downloaded."""
    try:
        yield
    except CheckpointError as problem:
        raise DownloadError(
            f"{plan.name} is not downloaded, as its files make no whole model: {problem}"
        ) from None


def _refuse_kinds(name: str, folder: Path, refuse: Callable[[Path], str | None]) -> None:
    refuse_config_in(name, folder)
    if (folder / "config.json").exists() and (problem := refuse(folder)) is not None:
        raise ModelError(f"{name} is not downloaded, as inferno doesn't run it: {problem}")


def _check_room(store: Store, folder: Path, plan: Plan, here: Collection[str]) -> None:
    files = [file for file in plan.listing.files if file.name not in here]
    if num_missing_of_all(store, plan.name, files, [folder]) > shutil.disk_usage(folder).free:
        raise disk_full(plan.name, folder)


def _joined(
    files: tuple[StoredFile, ...], before: Entry | None, folder: Path | None = None
) -> tuple[StoredFile, ...]:
    """Return the files and those that were there before, chosen otherwise, and still are."""
    names = {file.name for file in files}
    others = before.files if before is not None else ()
    place = folder or (before.folder if before is not None else Path())
    kept = (_still_there(place, one) for one in others if one.name not in names)
    return (*files, *(one for one in kept if one is not None))


def _still_there(folder: Path, file: StoredFile) -> StoredFile | None:
    """Return a file as it is now, read anew where it was touched; None where it is another."""
    if file.is_as_verified(folder):
        return file
    return recorded(folder, _as_listed(file))


def _linked(before: Entry, names: Collection[str], folder: Path) -> tuple[StoredFile, ...]:
    """Return the files of a model elsewhere that a folder of the store shares with it now."""
    others = [file for file in before.files if file.name not in names]
    sources = ((file, [before.folder / file.name]) for file in others)
    shared = [brought(one, _as_listed(file), folder, copies=False) for file, one in sources]
    return tuple(file for file in shared if file is not None)


def _as_listed(file: StoredFile) -> RemoteFile:
    return RemoteFile(file.name, file.size, sha256=file.sha256, version=file.version)


def _remove_others(folder: Path, names: Collection[str]) -> None:
    """Remove what other tries have left in a folder."""
    for path in folder.rglob("*"):
        if not path.is_dir() and path.relative_to(folder).as_posix() not in names:
            path.unlink()


def _is_model(entry: Entry) -> bool:
    """Return whether all of a model is there, and not some weights that were chosen."""
    names = {file.name for file in entry.files}
    if any(is_gguf_name(Path(name)) for name in names):
        return True
    return "config.json" in names and has_all_weights(entry.folder, names)


def _adopted(
    store: Store, name: str, asked: str | None, snapshot: Snapshot, licence: str | None = None
) -> Entry | None:
    """Return the entry of a model that stays in Hugging Face's cache; None where it is damaged.

    Where the store has files of the commit itself, those of the cache join them there.
    """
    files = snapshot.verified()
    if files is None:
        return None
    try:
        check_weights(name, {file.name for file in files}, lambda one: snapshot.folder / one)
    except CheckpointError:
        return None
    before = store.find(name, snapshot.commit)
    folder, is_owned = snapshot.folder, before is not None and before.is_owned
    if before is not None and is_owned:
        folder = before.folder
        joining = [
            recorded(folder, file) or brought([snapshot.folder / file.name], file, folder)
            for file in snapshot.files
        ]
        files = tuple(file for file in joining if file is not None)
        if len(files) < len(joining):
            return None
    elif before is not None and before.foreign_files():
        before = None
    entry = Entry(
        name=name,
        revision=snapshot.commit,
        asked=before.asked if before is not None else (),
        source=before.source if before is not None and is_owned else constants.HF_HUB_CACHE,
        licence=licence or (before.licence if before is not None else None),
        folder=folder,
        is_owned=is_owned,
        files=_joined(files, before, folder),
        added_at=time.time(),
    )
    entry = store.asked_also(entry, asked or "main")
    with contextlib.suppress(OSError):  # a store that can't be written: verified again next time
        store.write(entry)
    return entry
