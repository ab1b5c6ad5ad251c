"""List the models on this machine: embedded ones, the store's, and Hugging Face's cache's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from inferno.demo import MODEL_FOLDERS
from inferno.errors import ModelError
from inferno.hub.cached import Snapshot, cached_ggufs, cached_snapshot
from inferno.hub.environment import CacheNotFound, constants, scan_cache_dir
from inferno.hub.facts import read_facts, weight_files
from inferno.hub.manifest import Entry, newest
from inferno.hub.names import is_repository
from inferno.hub.store import Store
from inferno.json_file import read_json


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A complete model, not verified yet: it is loaded by its name and revision.

    name            with a file's, where a repository has several GGUF models.
    folder          the folder or GGUF file.
    num_bytes       of all its files in the store; elsewhere of its weights.
    architecture    the class that config.json names, or the family that a GGUF file does.
    """

    name: str
    folder: Path
    num_bytes: int
    architecture: str
    revision: str | None = None


def local_models() -> list[LocalModel]:
    """Return all complete models on this machine, embedded ones first; some may not run here."""
    entries = Store.of_user().entries()
    stored = {one.name for one in entries}
    models = [_read(name, folder) for name, folder in MODEL_FOLDERS.items()]
    for name in sorted(stored):
        entry = newest(one for one in entries if one.name == name)
        model = _read(name, entry.folder, entry.revision)
        models += [model and replace(model, num_bytes=entry.num_bytes), *_ggufs(entry)]
    for name, commit in sorted(_cached()):
        ggufs = cached_ggufs(name, commit)
        if name in stored:  # with a manifest of some files; others may lie there beside them
            known = {file.name for one in entries if one.name == name for file in one.files}
            others = [one for one in ggufs if one.files[0].name not in known]
            models += (_cached_gguf(name, one, is_alone=False) for one in others)
            continue
        snapshot = cached_snapshot(name, commit)
        is_whole = snapshot is not None and not any(file.is_gguf for file in snapshot.files)
        models.append(_read(name, snapshot.folder, commit) if snapshot and is_whole else None)
        models += (_cached_gguf(name, one, is_alone=snapshot == one) for one in ggufs)
    return [model for model in models if model is not None]


def _cached() -> Iterator[tuple[str, str]]:
    """Yield the name and the last commit of each model in the cache."""
    try:
        repos = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, OSError, ValueError):  # ValueError: a file is in its place
        return
    for repo in repos:
        revisions = sorted(repo.revisions, key=lambda one: ("main" in one.refs, one.last_modified))
        if repo.repo_type == "model" and revisions and is_repository(repo.repo_id):
            yield repo.repo_id, revisions[-1].commit_hash


def _ggufs(entry: Entry) -> Iterator[LocalModel]:
    """Yield the GGUF models of a model of the store."""
    for file in entry.gguf_files("*"):
        path = entry.folder / file
        sizes = {one.name: one.size for one in entry.files}
        num_bytes = sum(sizes[name] for name in entry.files_of(path))
        name = entry.name if path == entry.path else f"{entry.name}:{file}"
        architecture = read_facts(path).architecture
        if architecture is not None:
            yield LocalModel(name, path, num_bytes, architecture, entry.revision)


def _cached_gguf(name: str, model: Snapshot, *, is_alone: bool) -> LocalModel | None:
    """Return a GGUF model of the cache, which needs a file's name where it isn't alone there."""
    file = model.files[0].name
    architecture = read_facts(model.folder / file).architecture
    if architecture is None:
        return None
    num_bytes = sum(one.size for one in model.files)
    name = name if is_alone else f"{name}:{file}"
    return LocalModel(name, model.folder / file, num_bytes, architecture, model.commit)


def _read(name: str, folder: Path, revision: str | None = None) -> LocalModel | None:
    """Return the model in a folder; None where a file is missing or damaged."""
    try:
        weights = [folder / name for name in weight_files(folder) or ()]
        config = read_json(folder / "config.json", error=ModelError)
        num_bytes = sum(path.stat().st_size for path in weights)
    except (ModelError, OSError):
        return None
    if not weights or not (folder / "tokenizer.json").exists():
        return None
    match config.get("architectures"):
        case [str(architecture), *_] if architecture.isprintable() and name.isprintable():
            return LocalModel(name, folder, num_bytes, architecture[:64], revision)
    return None
