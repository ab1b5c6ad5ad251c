"""Write a file, all or nothing: it gets its name when it is whole and on the disk."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from inferno.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Written:
    """A model that was written: its size, and the bytes of tensors by GGUF's name of their type."""

    path: Path
    num_bytes: int
    types: Mapping[str, int]


def check_target(path: Path, *, replace: bool, source: Path) -> None:
    """Refuse a path that can't be written, or that holds something that is not to be replaced.

    source  the model's own, which is never replaced. Raises InvalidRequest.
    """
    folder = path.parent
    if not folder.is_dir():
        raise InvalidRequest(f"there is no folder {folder} for {path.name}; make it first")
    if not os.path.lexists(path):
        return
    if path.is_dir():
        raise InvalidRequest(f"{path} is a folder; give the name of a file that is to be written")
    if not stat.S_ISREG(path.lstat().st_mode) and not path.is_symlink():
        raise InvalidRequest(
            f"{path} is no file but a device or the like, which would be gone; give another name"
        )
    refuse_own(path, [source])
    if not replace:
        raise InvalidRequest(
            f"{path} is there already; give another name, or --force to replace it"
        )


def refuse_own(path: Path, sources: Iterable[Path]) -> None:
    """Refuse a path that is one of the files that are read. Raises InvalidRequest."""
    if any(path.exists() and one.exists() and os.path.samefile(path, one) for one in sources):
        raise InvalidRequest(f"{path} is the model that is read; give another file to write")


@contextmanager
def new_file(path: Path, num_bytes: int, *, replace: bool) -> Iterator[BinaryIO]:
    """Yield a file of so many bytes to be written, which is `path` once the block has ended.

    Until then it is NAME.part beside it, which is removed if anything goes wrong.

    Raises InvalidRequest where there is no room, or somebody else is writing the same file.
    """
    part = path.with_name(f"{path.name}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(part, "wb", opener=lambda name, _: os.open(name, flags, 0o666)) as file:
        _lock(file, part)
        try:
            file.truncate(0)
            check_room(path.parent, num_bytes)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not replace and os.path.lexists(path):
                raise InvalidRequest(f"{path} was made meanwhile; give another name, or --force")
            os.replace(part, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
    sync_folder(path.parent)


def _lock(file: BinaryIO, part: Path) -> None:
    """Keep others from writing the same; what one that was killed has left is taken over."""
    busy = InvalidRequest(f"{part} is being written by another process; wait for it to end")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours, theirs = os.fstat(file.fileno()), os.lstat(part)
    except (BlockingIOError, FileNotFoundError):
        raise busy from None
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        raise busy  # it was given its name between our opening and locking it
    if not stat.S_ISREG(ours.st_mode):
        raise InvalidRequest(f"{part} is no regular file; remove it")


def check_room(folder: Path, num_bytes: int) -> None:
    """Raise InvalidRequest where so many bytes have no room on a folder's disk."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InvalidRequest(
            f"the file takes {num_bytes:,} bytes, and {folder} has {free:,} free; make room, or "
            "write it elsewhere"
        )


def sync_folder(folder: Path) -> None:
    """Bring the new name to the disk too, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
