"""Keep the content that files had when last read, so that a second start need not read them.

A file is known by its FileIdentity, which changes when it is replaced or written in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inferno.errors import CheckpointError
from inferno.file_identity import FileIdentity
from inferno.json_file import read_json
from inferno.whole_file import whole_file

_VERSION = 1
_MOST_FILES = 2000
_MOST_BYTES = 1 << 20


class KnownFiles:
    """The table of known contents, in a file of our own, which counts as empty if damaged.

    key_name  the name of the key of the hashes; hashes of another key are ignored.
    """

    def __init__(self, path: Path, key_name: str) -> None:
        self._path = path
        self._key_name = key_name

    def find(self, identity: FileIdentity) -> str | None:
        """Return the content of a file, or None if it is not known."""
        content = self._read().get(_name(identity))
        return content if isinstance(content, str) else None

    def add(self, contents: Iterable[tuple[FileIdentity, str]]) -> None:
        """Remember files' contents; the oldest are dropped. Raises OSError where writing fails."""
        files = self._read()
        for identity, content in contents:
            files.pop(_name(identity), None)
            files[_name(identity)] = content
        newest = dict(list(files.items())[-_MOST_FILES:])
        table = {"version": _VERSION, "key": self._key_name, "files": newest}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self._path, prefix=".known-") as file:
            file.write(json.dumps(table).encode())

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
