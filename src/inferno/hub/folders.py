"""Count and remove what lies in a folder of the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from inferno.errors import ModelError


def is_folder_name(text: str) -> bool:
    """Return whether a text may be the path of a folder, wherever it lies."""
    path = os.fsencode(text)  # ValueError: no path of this system
    is_short = len(path) < 4096 and max(map(len, path.split(b"/"))) < 256
    return Path(text).is_absolute() and "\0" not in text and is_short


def remove_links(folder: Path) -> None:
    """Remove symbolic links from where a download writes, and a file in the place of its folder.

    What links point to stays as it is.
    """
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink() or (path == folder and path.is_file()):
            path.unlink()


def remove_tree(folder: Path) -> int:
    """Remove a folder of the store, and return how many bytes that frees.

    Raises ModelError where a part of it stays, once all else is removed.
    """
    if folder.is_symlink() or folder.is_file():
        return remove_file(folder)
    freed = bytes_freed(folder)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise ModelError(
            f"{problem.filename or folder} can't be removed: {problem.strerror}; remove {folder} "
            "yourself"
        ) from None
    return freed


def remove_file(path: Path) -> int:
    """Remove a file of the store, and return how many bytes that frees."""
    freed = _bytes_of(path)
    path.unlink(missing_ok=True)
    return freed


def bytes_freed(folder: Path) -> int:
    """Return the bytes of the files in a folder that are found nowhere else."""
    return sum(map(_bytes_of, [folder, *folder.rglob("*")]))


def _bytes_of(path: Path) -> int:
    """Return the bytes of a file that is found nowhere else; 0 of all else."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return status.st_size
    return 0
