"""Use models in Hugging Face's cache where they lie, once verified; other tools fill it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inferno.errors import ModelError
from inferno.gguf.file import is_later_shard, split_files
from inferno.hub.environment import constants
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


def cached_snapshot(name: str, revision: str | None, include: str | None = None) -> Snapshot | None:
    """Return a model of a commit that seems complete in the cache, not verified yet; or None.

    include     a pattern of GGUF files, whose models are returned, all that are complete. Without
                it, the model in safetensors, or the GGUF model that is there alone.
    """
    found = _found(name, revision)
    if found is None:
        return None
    repository, commit, folder = found
    if include is None:
        files = tuple(_files(repository, folder))
        names = {file.name for file in files}
        if _is_whole(folder, names):
            # With a file of somebody else's, it would be read by who loads the folder.
            is_pure = {name for name, _ in _wanted(folder)} == names
            return Snapshot(commit, folder, files) if is_pure else None
        if any(file.is_weights for file in files):
            return None  # the rest is still to come
    ggufs = cached_ggufs(name, revision, include or "*")
    if not ggufs or (include is None and len(ggufs) > 1):
        return None
    return Snapshot(commit, folder, tuple(file for one in ggufs for file in one.files))


def cached_ggufs(name: str, revision: str | None, include: str = "*") -> list[Snapshot]:
    """Return the GGUF models of a commit in the cache of which all files are there.

    They are not verified yet. `include` is a pattern of their names.
    """
    found = _found(name, revision)
    if found is None:
        return []
    repository, commit, folder = found
    files = {file.name: file for file in _files(repository, folder, include) if file.is_gguf}
    models = []
    for first in sorted(name for name in files if not is_later_shard(Path(name))):
        names = [path.as_posix() for path in split_files(Path(first))]
        if files.keys() >= {*names}:
            models.append(Snapshot(commit, folder, tuple(files[name] for name in names)))
    return models


def cached_blob(name: str, file: RemoteFile) -> Path | None:
    """Return the path at which the cache would have content with a given hash."""
    return _repository_folder(name) / "blobs" / file.digest if file.digest is not None else None


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


def _found(name: str, revision: str | None) -> tuple[Path, str, Path] | None:
    """Return a repository's folder, the commit of a revision and its folder; None where unknown."""
    repository = _repository_folder(name)
    commit = _commit(repository, revision or "main")
    return None if commit is None else (repository, commit, repository / "snapshots" / commit)


def _is_whole(folder: Path, names: Collection[str]) -> bool:
    return {"config.json", "tokenizer.json"} <= {*names} and has_all_weights(folder, names)


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


def _files(repository: Path, folder: Path, include: str | None = None) -> Iterator[RemoteFile]:
    """Yield the files of a snapshot that are links to blobs of the same repository."""
    for name, path in _wanted(folder, include):
        if not path.is_symlink():
            continue
        try:
            # A link to elsewhere is no file of this repository, whoever made it.
            blob = _target(path)
            if blob.parent != Path(os.path.normpath(repository / "blobs")) or _is_astray(blob):
                continue
            size = blob.stat().st_size
        except OSError:
            continue
        if is_sha256(blob.name):
            yield RemoteFile(name, size, sha256=blob.name)
        elif is_commit(blob.name):
            yield RemoteFile(name, size, git_oid=blob.name)


def _target(link: Path) -> Path:
    return Path(os.path.normpath(link.parent / os.readlink(link)))


def _is_astray(blob: Path) -> bool:
    """Return whether a blob is a link, but to a blob that repositories of the cache share.

    huggingface_hub keeps those as blobs/XX/HASH in the cache's folder, by a hash of another kind.
    """
    if not blob.is_symlink():
        return False
    shared = _target(blob)
    parts = (Path(constants.HF_HUB_CACHE).absolute() / "blobs", shared.name[:2], shared.name)
    is_one = is_sha256(shared.name) and shared == Path(os.path.normpath(Path(*parts)))
    return not is_one or shared.is_symlink()


def _wanted(folder: Path, include: str | None = None) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file in a folder that a model may have."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if is_wanted(name, include) and (path.is_symlink() or not path.is_dir()):
            yield name, path
