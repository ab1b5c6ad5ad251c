"""Lock a model by a file: who uses it shares the lock, who fetches or removes it has it alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from inferno.errors import ModelError

# The locks of the models that this process has used, open file descriptors.
_HELD: list[int] = []
# What flock says where a file system, often one of a network, has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


def take_lock(path: Path, kind: int, *, may_wait: bool) -> int | None:
    """Return a lock, held until it is closed; None where others hold it and nobody may wait.

    kind    fcntl.LOCK_SH or fcntl.LOCK_EX.

    The file may be removed by who held it before: then it is another's, and made anew.
    """
    if path.parent.is_symlink():
        raise ModelError(
            f"{path.parent} is a link, and a model's files stay in the store: remove the link; "
            "INFERNO_HOME is for a store on another disk"
        )
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fd = _open(path, kind)
        except FileNotFoundError:  # the folder was removed meanwhile
            continue
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.EISDIR):
                raise ModelError(f"{path} is no lock of the store's: remove it") from None
            raise
        try:
            fcntl.flock(fd, kind | (0 if may_wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException as problem:
            os.close(fd)
            if isinstance(problem, OSError) and problem.errno in _NO_LOCKS:
                raise ModelError(
                    f"{path.parent} is on a file system that can't lock files "
                    f"({problem.strerror}): have INFERNO_HOME name a folder on a local disk"
                ) from None
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)


def _open(path: Path, kind: int) -> int:
    """Return a descriptor of a lock's file, made if need be.

    Who may only read the store can share a lock that is there.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as problem:
        is_read_only = problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        if kind != fcntl.LOCK_SH or not is_read_only or not path.exists():
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def hold(lock: int) -> None:
    """Keep a lock until this process ends, and of several on one file only the first."""
    if any(os.path.samestat(os.fstat(one), os.fstat(lock)) for one in _HELD):
        os.close(lock)
    else:
        _HELD.append(lock)


def let_go(path: Path) -> None:
    """Release what this process holds of a lock."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        for lock in [one for one in _HELD if os.path.samestat(os.fstat(one), status)]:
            _HELD.remove(lock)
            os.close(lock)
