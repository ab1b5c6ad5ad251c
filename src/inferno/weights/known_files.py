"""Keep the content that files had when last read, so that a second start need not read them.

A file is known by device, inode, size, and the times of its last modification and change. Users can
set the first time back, not the second: a file that was replaced or written in place is another.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from inferno.errors import CheckpointError
from inferno.json_file import read_json

_VERSION = 1
_MOST_FILES = 2000
_MOST_BYTES = 1 << 20
_SECOND = 10**9
# Clocks of file systems tick, every 2 s at worst. As in git's index, what was changed so shortly
# before it was opened may have been changed once more without another time.
_SETTLED = 2 * _SECOND


class FileIdentity(NamedTuple):
    """The numbers that tell a file from all others and change with it; times in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size,
            modified=status.st_mtime_ns,
            changed=status.st_ctime_ns,
        )

    def is_settled(self, now: int) -> bool:
        """Return whether any change after `now` would show, as far as this file system tells.

        One that counts whole seconds may not keep the time of the change at all.
        """
        last = max(self.modified, self.changed)
        return last + _SETTLED <= now and self.changed % _SECOND != 0


class KnownFiles:
    """The table of known contents, in a file of our own, which counts as empty if damaged.

    key_name  under which the contents were hashed: those of another key are worth nothing.
    """

    def __init__(self, path: Path, key_name: str) -> None:
        self._path = path
        self._key_name = key_name

    def find(self, identity: FileIdentity) -> str | None:
        """Return the content of a file, or None if it is not known."""
        content = self._read().get(_name(identity))
        return content if isinstance(content, str) else None

    def add(self, contents: Iterable[tuple[FileIdentity, str]]) -> None:
        """Remember contents; the longest unchanged go. Raises OSError where it can't be written."""
        files = self._read()
        for identity, content in contents:
            files.pop(_name(identity), None)
            files[_name(identity)] = content
        newest = dict(list(files.items())[-_MOST_FILES:])
        table = {"version": _VERSION, "key": self._key_name, "files": newest}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".known-")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(table, file)
            os.replace(temporary, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _read(self) -> dict[str, Any]:
        try:
            table: Mapping[str, Any] = read_json(
                self._path, error=CheckpointError, max_bytes=_MOST_BYTES
            )
        except CheckpointError:
            return {}
        files = table.get("files")
        is_ours = table.get("version") == _VERSION and table.get("key") == self._key_name
        return dict(files) if is_ours and isinstance(files, dict) else {}


def _name(identity: FileIdentity) -> str:
    return " ".join(map(str, identity))
