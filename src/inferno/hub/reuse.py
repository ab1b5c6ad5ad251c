"""Have a file without fetching it: from other models, other downloads and Hugging Face's cache."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from inferno.errors import ModelError
from inferno.hub.cached import cached_blob
from inferno.hub.names import RemoteFile
from inferno.hub.store import Partial, Store
from inferno.hub.stored_file import StoredFile, record_file
from inferno.hub.transfer import begun_files, has_content, move_part, part_of


def recorded(folder: Path, file: RemoteFile) -> StoredFile | None:
    """Return the record of a file that has the listed content; None of another."""
    stored = record_file(folder, file.name, partial(has_content, file=file))
    return stored and replace(stored, version=file.version)


def num_missing(folder: Path, file: RemoteFile) -> int:
    """Return how many bytes of a file are still to be fetched into a folder."""
    return max(0, file.size - max(_size(folder / file.name), _size(part_of(folder / file.name))))


def num_missing_of_all(
    store: Store, name: str, files: Collection[RemoteFile], folders: Collection[Path]
) -> int:
    """Return how many bytes are to be written that neither folders nor other downloads have.

    Weights that can be linked are none.
    """
    linkable = _linkable(store, name, files)
    missing = 0
    for file in files:
        if file.name not in linkable:
            begun = max((_size(part_of(path)) for _, path in _begun(store, file)), default=0)
            lacks = (num_missing(folder, file) for folder in folders)
            missing += min(max(0, file.size - begun), *lacks)
    return missing


def here_already(store: Store, name: str, file: RemoteFile, folder: Path) -> StoredFile | None:
    """Return the record of a file that is in a folder now, with what others have of its content.

    What another download has begun goes on in the folder: then, and else, None.
    """
    if (stored := recorded(folder, file)) is not None:
        return stored
    path = folder / file.name
    path.unlink(missing_ok=True)
    if not file.is_weights or not file.has_hash:
        return None  # faster fetched than looked for
    blob = cached_blob(name, file)
    others = [*store.same_content(file), *(() if blob is None else (blob,))]
    begun = [one for one in _begun(store, file) if one[1] != path]
    stored = brought([*others, *(target for _, target in begun)], file, folder)
    if stored is not None:
        return stored
    for download, target in begun:
        if _size(part_of(target)) > _size(part_of(path)):
            # Locked: who is fetching it now keeps it.
            lock = store.alone(download.name, download.revision, may_wait=False)
            with contextlib.suppress(ModelError, OSError), lock:
                move_part(target, path)
    return None


def brought(
    sources: Iterable[Path], file: RemoteFile, folder: Path, *, copies: bool = True
) -> StoredFile | None:
    """Return the record of a file that a folder has now from the first source with its content.

    It is linked. What is on another disk is copied with `copies`. None where no source has it.
    """
    path = folder / file.name
    for source in sources:
        with contextlib.suppress(OSError):  # a folder that can't be written, too
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            if _size(source) == file.size:
                _link(source.resolve(), path, copies=copies)
        if (stored := recorded(folder, file)) is not None:
            return stored
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return None


def _link(source: Path, path: Path, *, copies: bool) -> None:
    try:
        os.link(source, path)
    except OSError:  # another disk, or one without links; or a file that isn't this user's
        if copies:
            shutil.copyfile(source, path)


def _begun(store: Store, file: RemoteFile) -> Iterator[tuple[Partial, Path]]:
    """Yield the downloads that have begun a content, or have it, with the file's path when done."""
    if file.is_weights and file.has_hash:
        for download in store.partials():
            for target in begun_files(download.folder, file):
                yield download, target


def _linkable(store: Store, name: str, files: Iterable[RemoteFile]) -> set[str]:
    """Return the names of weights that need no further room on the store's disk, by their sizes."""
    stored = {
        (file.sha256, file.size): entry.folder / file.name
        for entry in store.entries()
        for file in (entry.files if entry.is_owned else ())
    }
    disk = next(one for one in (store.root, *store.root.parents) if one.exists()).stat().st_dev
    found = set()
    for file in files:
        if not file.is_weights or not file.has_hash:
            continue
        begun = (target for _, target in _begun(store, file))
        same = stored.get((file.sha256 or "", file.size))
        for path in (same, cached_blob(name, file), *begun):
            with contextlib.suppress(OSError):
                if path is not None:
                    status = path.stat()
                    if (status.st_dev, status.st_size) == (disk, file.size):
                        found.add(file.name)
    return found


def _size(path: Path) -> int:
    """Return the size of a file; 0 of none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
