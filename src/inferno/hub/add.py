"""Add a folder or a file of the user's to the store: known by a name, and left where it lies."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from inferno.errors import InvalidRequest, ModelNotFound
from inferno.hub.names import is_repository, is_wanted
from inferno.hub.store import Entry, Store, stored_file

OWNER = "local"


def is_local(text: str) -> bool:
    """Return whether a model's name is a path of this machine."""
    try:
        return "://" not in text and Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such home
        return False


def add_local(store: Store, path: Path) -> Entry:
    """Add a model's folder or .gguf file as local/NAME, and return its entry; nothing is copied."""
    path = path.resolve()
    name = f"{OWNER}/{path.name if path.is_dir() else path.stem}"
    if not is_repository(name):
        raise InvalidRequest(
            f"{path} can't be known as {name!r}: rename it to letters, digits, '.', '_' and '-'"
        )
    folder = path if path.is_dir() else path.parent
    files = tuple(stored_file(folder, file, _sha256(folder / file)) for file in _files(path))
    revision = hashlib.sha256("".join(sorted(file.sha256 for file in files)).encode()).hexdigest()
    entry = Entry(
        name=name,
        revision=revision[:40],
        asked=(),
        source=str(path),
        licence=None,
        folder=folder,
        is_owned=False,
        files=files,
        added_at=time.time(),
    )
    store.write(entry)
    return entry


def _files(path: Path) -> list[str]:
    if path.is_file() and path.suffix == ".gguf":
        return [path.name]
    names = [one.relative_to(path).as_posix() for one in sorted(path.rglob("*")) if one.is_file()]
    names = [name for name in names if is_wanted(name, "*")]
    if "config.json" not in names and not any(name.endswith(".gguf") for name in names):
        raise ModelNotFound(f"{path} holds no config.json and no .gguf file, so it is no model")
    return names


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
