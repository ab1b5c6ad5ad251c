"""Record a file of a model with its hash, so that a change of it is seen without reading it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from inferno.hub.names import is_file_name, is_sha256, is_version
from inferno.json_file import open_nonblocking


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a model, with the times of its last modification and change when it was hashed.

    Users can change the time of modification, but not the other. `version` is what a site on the
    web, which knows no hashes, told it from other versions by.
    """

    name: str
    size: int
    sha256: str
    mtime_ns: int
    ctime_ns: int
    version: str | None = None

    def is_as_verified(self, folder: Path) -> bool:
        """Return whether size and times are still the same as when the hash was compared."""
        try:
            status = (folder / self.name).stat()
        except OSError:
            return False
        found = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return found == (self.size, self.mtime_ns, self.ctime_ns)

    def as_moved_to(self, folder: Path) -> StoredFile:
        """Return the record after a move to a folder, which changes one of the times."""
        return replace(self, ctime_ns=(folder / self.name).stat().st_ctime_ns)


def stored_file(folder: Path, name: str, sha256: str) -> StoredFile:
    """Return the record of a file whose hash has just been compared."""
    status = (folder / name).stat()
    return StoredFile(name, status.st_size, sha256, status.st_mtime_ns, status.st_ctime_ns)


def record_file(
    folder: Path, name: str, hash_of: Callable[[Path], str | None]
) -> StoredFile | None:
    """Return the record of a file that is hashed now; None where it keeps changing meanwhile.

    hash_of     returns the file's sha256, or None where it has not the right content.
    """
    with contextlib.suppress(OSError):
        for _ in range(2):  # a hard link that somebody makes changes a time, too
            before = stored_file(folder, name, "")
            sha256 = hash_of(folder / name)
            if sha256 is None:
                return None
            if stored_file(folder, name, "") == before:
                return replace(before, sha256=sha256)
    return None


def read_anew(folder: Path, file: StoredFile) -> StoredFile | None:
    """Return a file as it is now, read where it was touched; None where it is another."""
    if file.is_as_verified(folder):
        return file
    found = record_file(folder, file.name, sha256_of)
    if found is None or found.sha256 != file.sha256:
        return None
    return replace(found, version=file.version)


def sha256_of(path: Path) -> str | None:
    """Return the sha256 of a regular file; None of anything else."""
    with open(path, "rb", opener=open_nonblocking) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_sound(file: StoredFile) -> bool:
    """Return whether a manifest's file is one that we may have written there."""
    numbers = (file.size, file.mtime_ns, file.ctime_ns)
    is_counted = all(type(number) is int and abs(number) < 1 << 63 for number in numbers)
    is_known = is_file_name(file.name) and is_sha256(file.sha256)
    has_version = file.version is None or is_version(file.version)
    return is_known and is_counted and file.size >= 0 and has_version
