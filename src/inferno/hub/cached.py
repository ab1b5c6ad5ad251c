"""Use models in Hugging Face's cache where they lie, once verified; other tools fill it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from huggingface_hub import constants

from inferno.errors import ModelError
from inferno.hub.names import (
    RemoteFile,
    is_commit,
    is_repository,
    is_revision,
    is_sha256,
    is_wanted,
)
from inferno.hub.stored_file import StoredFile, record_file
from inferno.hub.transfer import has_content
from inferno.json_file import INDEX_FILE, MAX_INDEX_BYTES, SINGLE_FILE, read_json


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit of a repository as the cache has it; its blobs are named by their hashes."""

    commit: str
    folder: Path
    files: tuple[RemoteFile, ...]

    def verified(self) -> tuple[StoredFile, ...] | None:
        """Return all files with their hashes, read anew; None where a file has another hash."""
        found = []
        for file in self.files:
            stored = record_file(self.folder, file.name, partial(has_content, file=file))
            if stored is None:
                return None
            found.append(stored)
        return tuple(found)


def cached_snapshot(name: str, revision: str | None) -> Snapshot | None:
    """Return a commit that seems complete in the cache, not verified yet; or None."""
    repository = _repository_folder(name)
    commit = _commit(repository, revision or "main")
    if commit is None:
        return None
    folder = repository / "snapshots" / commit
    files = tuple(_files(repository, folder))
    names = {file.name for file in files}
    if {name for name, _ in _wanted(folder)} != names:
        return None  # who loads the folder would read a file of somebody else's
    is_complete = {"config.json", "tokenizer.json"} <= names and has_all_weights(folder, names)
    return Snapshot(commit, folder, files) if is_complete else None


def cached_blob(name: str, file: RemoteFile) -> Path | None:
    """Return the path at which the cache would have content with a given hash."""
    digest = file.sha256 or file.git_oid
    return _repository_folder(name) / "blobs" / digest if digest is not None else None


def has_all_weights(folder: Path, names: Collection[str]) -> bool:
    """Return whether a folder has one file of weights, or every shard that an index lists."""
    if SINGLE_FILE in names:
        return True
    if INDEX_FILE not in names:
        return False
    try:
        index = read_json(folder / INDEX_FILE, error=ModelError, max_bytes=MAX_INDEX_BYTES)
    except ModelError:
        return False
    shards = index.get("weight_map")
    return isinstance(shards, dict) and bool(shards) and {*map(str, shards.values())} <= {*names}


def _repository_folder(name: str) -> Path:
    assert is_repository(name), name
    return Path(constants.HF_HUB_CACHE).absolute() / f"models--{name.replace('/', '--')}"


def _commit(repository: Path, revision: str) -> str | None:
    if is_commit(revision):
        return revision
    if not is_revision(revision):
        return None
    try:
        with open(repository / "refs" / revision, encoding="ascii") as file:
            commit = file.read(100).strip()
    except (OSError, ValueError):
        return None
    return commit if is_commit(commit) else None


def _files(repository: Path, folder: Path) -> Iterator[RemoteFile]:
    """Yield the files of a snapshot that are links to blobs of the same repository."""
    blobs = repository / "blobs"
    for name, path in _wanted(folder):
        if not path.is_symlink():
            continue
        try:
            # A link to elsewhere is no file of this repository, whoever made it.
            blob = Path(os.path.normpath(path.parent / os.readlink(path)))
            if blob.parent != Path(os.path.normpath(blobs)) or blob.is_symlink():
                continue
            size = blob.stat().st_size
        except OSError:
            continue
        if is_sha256(blob.name):
            yield RemoteFile(name, size, sha256=blob.name)
        elif is_commit(blob.name):
            yield RemoteFile(name, size, git_oid=blob.name)


def _wanted(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file in a folder that a model may have."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if is_wanted(name) and (path.is_symlink() or not path.is_dir()):
            yield name, path
