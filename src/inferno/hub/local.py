"""List the models on this machine: embedded ones, the store's, and Hugging Face's cache's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from inferno.demo import MODEL_FOLDERS
from inferno.errors import ModelError
from inferno.hub.facts import weight_files
from inferno.hub.store import Store
from inferno.json_file import read_json


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A complete model; its architecture is the class that config.json names."""

    name: str
    folder: Path
    num_bytes: int
    architecture: str


def local_models() -> list[LocalModel]:
    """Return all complete models on this machine, embedded ones first; some may not run here."""
    stored = dict(reversed([(one.name, one.folder) for one in Store.of_user().entries()]))
    cached = sorted((name, folder) for name, folder in _cached() if name not in stored)
    folders = [*MODEL_FOLDERS.items(), *sorted(stored.items()), *cached]
    models = [_read(name, folder) for name, folder in folders]
    return [model for model in models if model is not None]


def _cached() -> Iterator[tuple[str, Path]]:
    """Yield name and folder of each model in the cache, as of its last revision."""
    try:
        repos = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):  # ValueError: a file is in its place
        return
    for repo in repos:
        revisions = sorted(repo.revisions, key=lambda one: ("main" in one.refs, one.last_modified))
        if repo.repo_type == "model" and revisions:
            yield repo.repo_id, revisions[-1].snapshot_path


def _read(name: str, folder: Path) -> LocalModel | None:
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
            return LocalModel(name, folder, num_bytes, architecture[:64])
    return None
