"""Replace a file, all or nothing: the new file gets its name when it is whole."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from inferno.json_file import open_nonblocking


@contextmanager
def whole_file(path: Path, *, prefix: str, is_shared: bool = False) -> Iterator[BinaryIO]:
    """Yield a file to write to, private to its user, which becomes `path` when the block ends.

    prefix      the beginning of the file's name, beside `path`, until then. The file is removed if
                anything goes wrong; where the process is killed, by `remove_unfinished`.
    is_shared   whether it may be read by all who may read its folder.
    """
    handle, temporary = _locked_file(path.parent, prefix)
    try:
        if is_shared:
            readers = stat.S_IMODE(path.parent.stat().st_mode) & 0o444
            os.fchmod(handle, readers | stat.S_IRUSR | stat.S_IWUSR)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def remove_unfinished(folder: Path, prefix: str) -> int:
    """Remove what killed processes have left of files, and return how many bytes that frees."""
    freed = 0
    for path in folder.glob(f"{prefix}*"):
        with suppress(OSError), open(path, "rb", opener=open_nonblocking) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # who still writes it has the lock
            path.unlink()
            freed += os.fstat(file.fileno()).st_size
    return freed


def _locked_file(folder: Path, prefix: str) -> tuple[int, str]:
    """Return a new file's descriptor, locked, and its name."""
    while True:
        handle, name = tempfile.mkstemp(dir=folder, prefix=prefix)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(name):
            return handle, name
        os.close(handle)  # `remove_unfinished` was faster
