"""The messages that a person typed, kept from one conversation to the next."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

_MOST_BYTES = 2**20
_MOST_ENTRIES = 1000
_LONGEST = 50_000  # characters


def history_path() -> Path | None:
    """Return the history's path, in INFERNO_HOME or the user's state folder; None without home."""
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:  # no home
        state = None
    home = os.environ.get("INFERNO_HOME") or (state and Path(state) / "inferno")
    return Path(home) / "history" if home else None


class FileHistory(History):
    """One JSON text per line, the oldest first; where the file can't be used, memory alone."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the messages, the newest first, as prompt_toolkit wants them."""
        entries, is_long = self._read()
        if is_long:
            self._write("w", entries)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Add a message, if it is not so long that it would drive out all the others."""
        if len(string) <= _LONGEST:
            self._write("a", [string])

    def _read(self) -> tuple[list[str], bool]:
        """Return the last entries, oldest first, and whether the file holds more than it should."""
        if self._path is None:
            return [], False
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MOST_BYTES))
                lines = file.read(_MOST_BYTES).split(b"\n")
        except OSError:
            return [], False
        entries = [entry for line in lines if (entry := _parse(line))]
        return entries[-_MOST_ENTRIES:], size > _MOST_BYTES or len(entries) > _MOST_ENTRIES

    def _write(self, mode: str, entries: Iterable[str]) -> None:
        if self._path is None:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, mode, opener=_open_private) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _parse(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, str) else None
