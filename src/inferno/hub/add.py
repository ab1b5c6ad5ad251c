"""Add a user's folder or file to the store under a name, leaving it where it lies."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

from inferno.errors import InvalidRequest, ModelError, ModelNotFound
from inferno.gguf.file import is_gguf_name, split_files
from inferno.hub.facts import weight_files
from inferno.hub.kinds import refuse_config_in, refuse_names
from inferno.hub.manifest import Entry
from inferno.hub.names import SMALL_FILES, is_file_name, is_repository, is_wanted
from inferno.hub.store import Store
from inferno.hub.stored_file import StoredFile, record_file, sha256_of
from inferno.hub.whole import check_shards, check_small, check_weights
from inferno.json_file import missing_file, no_weights

OWNER = "local"
_TRIES = 3


def is_local(text: str) -> bool:
    """Return whether a model's name is a path of this machine."""
    try:
        return bool(text) and "://" not in text and Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such home
        return False


def add_local(
    store: Store, path: Path, refuse: Callable[[Path], str | None] = lambda folder: None
) -> Entry:
    """Add a model's folder or .gguf file as local/NAME, and return its entry; nothing is copied.

    refuse  returns why a folder of configs is of no model that can be run.

    Raises ModelError where the name is another folder's, or the files make no whole model.
    """
    is_file = path.is_file() and is_gguf_name(path)
    # A link to a file, as in Hugging Face's cache, may lead to what is called by its hash.
    path = path.parent.resolve() / path.name if is_file else path.resolve()
    name = f"{OWNER}/{path.name if path.is_dir() else path.stem}"
    if not is_repository(name) or (is_file and not is_file_name(path.name)):
        raise InvalidRequest(
            f"{path} can't be known as {name!r}: rename it to letters, digits, '.', '_' and '-'"
        )
    folder = path if path.is_dir() else path.parent
    names = _files(path)
    if _is_unfinished(store, [folder / file for file in names]):
        raise ModelNotFound(
            f"{path} is in the store, but no complete model: name the model, so that it is "
            "downloaded"
        )
    _check(name, folder, names, refuse)
    files = tuple(_recorded(folder, file) for file in names)
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
    _forget_others(store, entry)
    store.write(entry)
    return entry


def _is_unfinished(store: Store, paths: Collection[Path]) -> bool:
    """Return whether files lie in the store, and are no model's."""
    root = store.root.resolve()
    is_inside = any(path.resolve().is_relative_to(root) for path in paths)
    return is_inside and not store.owners(paths)


def _forget_others(store: Store, entry: Entry) -> None:
    """Forget what a name was before: its folder with other content, or a folder that is gone."""
    for other in [one for one in store.entries() if one.name == entry.name]:
        if other.source != entry.source and Path(other.source).exists():
            raise ModelError(
                f"{entry.name} is the name of {other.source} already: `inferno rm {entry.name}` "
                f"forgets that, or rename {entry.source}"
            )
        if (other.revision, other.source) != (entry.revision, entry.source):
            with contextlib.suppress(ModelError):  # it is in use
                store.remove(other)


def _check(
    name: str, folder: Path, names: Collection[str], refuse: Callable[[Path], str | None]
) -> None:
    """Raise ModelError where files make no whole model, or one that inferno doesn't run."""
    has_ggufs = any(is_gguf_name(Path(one)) for one in names)
    if not has_ggufs or any(one.endswith(".safetensors") for one in names):
        refuse_names(name, names)
        refuse_config_in(name, folder)
        if weight_files(folder) is None:
            raise no_weights(folder)
        if not (folder / "tokenizer.json").exists():
            raise ModelNotFound(f"{folder} holds no tokenizer.json, without which no model runs")
        check_shards(folder, names)
        check_small(folder / one for one in names if one in SMALL_FILES)
        if (problem := refuse(folder)) is not None:
            raise ModelError(f"{folder} is not added, as inferno doesn't run it: {problem}")
    check_weights(name, names, lambda one: folder / one)


def _files(path: Path) -> list[str]:
    if path.is_file() and is_gguf_name(path):
        return _gguf_files(path)
    names = [one.relative_to(path).as_posix() for one in sorted(path.rglob("*")) if one.is_file()]
    names = [name for name in names if is_wanted(name, "*" if name.endswith(".gguf") else None)]
    if "config.json" not in names and not any(name.endswith(".gguf") for name in names):
        raise ModelNotFound(f"{path} holds no config.json and no .gguf file, so it is no model")
    return names


def _gguf_files(path: Path) -> list[str]:
    """Return the file's name, or all of a split model's, of which it must be the first."""
    paths = split_files(path)
    if path != paths[0]:
        raise InvalidRequest(f"{path} goes on with a model: give its first file, {paths[0].name}")
    for one in paths:
        if not one.is_file():
            raise missing_file(one)
    return [one.name for one in paths]


def _recorded(folder: Path, name: str) -> StoredFile:
    """Return the record of a file, hashed now, once nobody changes it meanwhile."""
    for _ in range(_TRIES):
        if (stored := record_file(folder, name, sha256_of)) is not None:
            return stored
    raise ModelError(
        f"{folder / name} can't be read, or changes while it is: wait until it is written, then "
        "add it again"
    )
