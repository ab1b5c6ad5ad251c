"""The manifest of a model of the store: its files and their hashes, and where they are."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from inferno.errors import ModelError, ModelNotFound
from inferno.gguf.file import is_gguf_name, is_later_shard, split_files
from inferno.hub.folders import is_folder_name
from inferno.hub.names import READ_FILES, WEIGHTS, is_commit, is_licence, is_repository
from inferno.hub.stored_file import StoredFile, is_sound
from inferno.json_file import read_json
from inferno.untrusted_json import quoted
from inferno.whole_file import remove_unfinished, whole_file

MANIFEST = ".json"
UNFINISHED = ".manifest-"  # how the name begins of one that is being written
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the store: all its files are there, and had the right content when it was added.

    revision    the commit; for models that come from no hub, a hash of all files.
    asked       branches and tags that were of this commit when they were last asked for.
    folder      where the files are; `is_owned` says whether that is in the store.
    """

    name: str
    revision: str
    asked: tuple[str, ...]
    source: str
    licence: str | None
    folder: Path
    is_owned: bool
    files: tuple[StoredFile, ...]
    added_at: float

    @property
    def num_bytes(self) -> int:
        """Return how many bytes the model's files have."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> list[Path]:
        """Return the paths of all files."""
        return [self.folder / file.name for file in self.files]

    @property
    def contents(self) -> set[tuple[str, str]]:
        """Return the name and the sha256 of each file."""
        return {(file.name, file.sha256) for file in self.files}

    @property
    def path(self) -> Path:
        """Return the path to run the model: its folder, or its GGUF file if it has just one."""
        files = self.gguf_files("*")
        is_file = len(files) == 1 and not self._has_safetensors
        return self.folder / files[0] if is_file else self.folder

    @property
    def _has_safetensors(self) -> bool:
        return any(file.name.endswith(".safetensors") for file in self.files)

    def gguf_files(self, pattern: str) -> list[str]:
        """Return the names of GGUF models that match; a split one has its first file's name."""
        names = sorted(file.name for file in self.files)
        return [
            name
            for name in names
            if is_gguf_name(Path(name))
            and fnmatchcase(name, pattern)
            and not is_later_shard(Path(name))
        ]

    def files_of(self, first: Path) -> set[str]:
        """Return the names of all files of the GGUF model that begins with a given file."""
        paths = {path.relative_to(self.folder).as_posix() for path in split_files(first)}
        return paths & {file.name for file in self.files}

    def without(self, names: Collection[str]) -> Entry | None:
        """Return the entry without some files; None where no weights are left."""
        files = tuple(file for file in self.files if file.name not in names)
        has_weights = any(file.name.endswith(WEIGHTS) for file in files)
        return replace(self, files=files) if has_weights else None

    def chosen(self, pattern: str, name: str) -> Path:
        """Return the GGUF file that `name`, OWNER/NAME:FILE, chooses, or raise ModelNotFound."""
        files = self.gguf_files(pattern)
        if len(files) == 1:
            return self.folder / files[0]
        some = ", ".join(map(quoted, files[:12])) or "none"
        raise ModelNotFound(f"{name} must choose one GGUF file of {self.name}, not {some}")

    def changed(self) -> list[StoredFile]:
        """Return the files that are gone, or may have changed since the last verification."""
        return [file for file in self.files if not file.is_as_verified(self.folder)]

    def foreign_files(self) -> list[Path]:
        """Return the files that who loads the folder would read, though they are not the model's.

        Of a GGUF model no other file is read.
        """
        if not self._has_safetensors:
            return []
        names = {file.name for file in self.files}
        others = (self.folder / name for name in READ_FILES if name not in names)
        return [path for path in others if os.path.lexists(path)]


def read_manifest(path: Path) -> Entry:
    """Return the model of a manifest; ModelError where it is not as `write_manifest` writes it."""
    fields = read_json(path, error=ModelNotFound)
    try:
        return _entry(path, fields)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ModelNotFound(f"{path} is no manifest of a model; remove it") from None


def _entry(path: Path, fields: dict[str, Any]) -> Entry:
    name, revision, elsewhere = fields["name"], fields["revision"], fields["folder"]
    files = tuple(StoredFile(**file) for file in fields["files"])
    is_ours = (
        fields["version"] == _VERSION
        and is_repository(name)
        and is_commit(revision)
        and (path.parent.name, path.name) == (folder_name(name), f"{revision}{MANIFEST}")
        and all(is_sound(file) for file in files)
        and (elsewhere is None or is_folder_name(elsewhere))
        and (elsewhere is not None or not _own_folder(path).is_symlink())
        and all(isinstance(text, str) for text in (*fields["asked"], fields["source"]))
        and is_licence(fields["licence"])
    )
    if not is_ours:
        raise ValueError("it is not ours")
    return Entry(
        name=name,
        revision=revision,
        asked=tuple(fields["asked"]),
        source=fields["source"],
        licence=fields["licence"],
        folder=_own_folder(path) if elsewhere is None else Path(elsewhere),
        is_owned=elsewhere is None,
        files=files,
        added_at=float(fields["added_at"]),
    )


def may_be_of_model(path: Path) -> bool:
    """Return whether a manifest may be one of a model.

    One that is damaged is none; but one that can't be read, or is of another version of inferno,
    may be.
    """
    if not path.exists():
        return False
    if not os.access(path, os.R_OK):
        return True
    try:
        if read_json(path, error=ModelNotFound).get("version") == _VERSION:
            read_manifest(path)
    except ModelError:
        return False
    return True


def write_manifest(path: Path, entry: Entry) -> None:
    """Write the manifest of a model, all or nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(path.parent, UNFINISHED)
    fields = {
        "version": _VERSION,
        **asdict(entry),
        "folder": None if entry.is_owned else str(entry.folder),
    }
    del fields["is_owned"]
    with whole_file(path, prefix=UNFINISHED, is_shared=True) as file:
        file.write(json.dumps(fields, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())


def folder_name(name: str) -> str:
    """Return what a repository's folder in the store is called."""
    return name.replace("/", "--")


def _own_folder(path: Path) -> Path:
    """Return where the store keeps the files of a manifest's model itself."""
    return path.with_name(path.name.removesuffix(MANIFEST))


def newest(entries: Iterable[Entry]) -> Entry:
    """Return the model that a name stands for: as of the main branch, else the newest."""
    return max(entries, key=lambda one: ("main" in one.asked, one.added_at))
