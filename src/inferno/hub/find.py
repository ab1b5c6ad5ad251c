"""Find a model's folder or GGUF file by a name: a path, an embedded model, a Hugging Face id."""

from __future__ import annotations

from pathlib import Path

from inferno import hub
from inferno.demo import MODEL_FOLDERS
from inferno.errors import InvalidRequest, ModelError, ModelNotFound
from inferno.gguf.file import is_gguf_name, is_later_shard, split_files
from inferno.hub.add import OWNER
from inferno.hub.manifest import Entry
from inferno.hub.names import WEIGHTS, is_repository, split_file
from inferno.hub.store import Store


def find_model_folder(name: str, revision: str | None = None) -> Path:
    """Return a model's folder or GGUF file: an embedded one, a path, or an id.

    A model with an id is fetched when needed. For a folder with nothing but one GGUF model, the
    file is returned.

    The embedded ones are `demo` and `demo-draft`; an id is such as Qwen/Qwen3-0.6B. An id with a
    file, OWNER/NAME:FILE, chooses one of a repository's GGUF files, by its name or an end of it,
    such as Q4_K_M. Until this process ends, `inferno rm` leaves a model of the store alone.

    Raises ModelNotFound, which says what was tried; ModelError for a changed model of the store.
    """
    if revision is not None and not _is_of_hub(name):
        raise InvalidRequest(
            f"revision {revision!r} goes with a Hugging Face id, not with {name!r}",
            param="revision",
        )
    if name in MODEL_FOLDERS:
        return MODEL_FOLDERS[name]
    path = _as_path(name)
    if path.is_dir():
        found = _model_in(path)
        _use_stored(found)
        return found
    if is_gguf_name(path) and path.exists():
        _use_stored(path)
        return path
    if path.exists():
        raise ModelNotFound(
            f"{name} is a file, and no GGUF file by its name; give the folder that holds the model"
        )
    if not _is_of_hub(name):
        raise ModelNotFound(
            f"there is no folder {name!r}; give a model's folder, a GGUF file, an id such as "
            f"Qwen/Qwen3-0.6B, or demo"
        )
    _check_is_not_lost(name, revision)
    path = hub.fetch_model(name, revision)
    return _model_in(path) if path.is_dir() else path


def _model_in(folder: Path) -> Path:
    """Return the folder, or the GGUF file in it where it holds no other weights."""
    files = [path for path in sorted(folder.glob("*.gguf")) if not is_later_shard(path)]
    is_whole = not files or any(folder.glob("*.safetensors"))
    if is_whole and (folder / "config.json").exists():
        return folder
    if len(files) == 1:
        return files[0]
    if files:
        raise ModelNotFound(
            f"{folder} holds {len(files)} GGUF models; give the path of one, such as {files[0]}"
        )
    raise ModelNotFound(
        f"{folder} holds no config.json, so it is not a Hugging Face model; give a model's folder"
    )


def _use_stored(path: Path) -> None:
    """Verify and hold the models of the store that the files of a path belong to, by links too.

    Raises ModelError where a file in the store belongs to no model, or isn't as it was verified.
    """
    files = split_files(path) if path.is_file() else list(path.glob("*"))
    store = Store.of_user()
    owners = store.owners(files)
    for entry in owners:
        if store.use(verified(store, entry)) is None:
            raise ModelError(f"{path} was removed while it was looked for; try again")
    known = {one.resolve() for entry in owners for one in entry.paths}
    for file in map(Path.resolve, files):
        is_weights = file.name.endswith(WEIGHTS)
        if is_weights and file.is_relative_to(store.root.resolve()) and file not in known:
            raise ModelNotFound(
                f"{file} is in the store, but no file of a complete model: name the model, so that "
                "it is downloaded"
            )


def verified(store: Store, entry: Entry) -> Entry:
    """Return a model of the store as it is now; ModelError where it has changed."""
    now = store.verified(entry)
    if now is None:
        raise ModelError(
            f"{entry.folder} has changed since {entry.name} was verified; `inferno download` "
            "verifies it again"
        )
    return now


def is_absent(name: str, revision: str | None = None) -> bool:
    """Return whether a name is a Hugging Face id of a model that must be downloaded first."""
    if not _is_of_hub(name) or _as_path(name).exists():
        return False
    _check_is_not_lost(name, revision)
    return hub.find_here(name, revision) is None


def _check_is_not_lost(name: str, revision: str | None) -> None:
    """Raise ModelNotFound for a folder of the user's that isn't as it was added.

    A hub may have another model of that name.
    """
    if name.startswith(f"{OWNER}/") and hub.find_here(name, revision) is None:
        raise ModelNotFound(
            f"{name} is not on this machine as it was added: `inferno download FOLDER` adds a "
            "folder again"
        )


def _is_of_hub(name: str) -> bool:
    """Return whether a name is spelled as a Hugging Face id, or one with a GGUF file of it."""
    return is_repository(split_file(name)[0])


def _as_path(name: str) -> Path:
    try:
        path = Path(name).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as problem:  # no such home, too long, a NUL
        raise ModelNotFound(f"{name[:80]!r} can't be a folder: {problem}") from None
    if not name:
        raise ModelNotFound("the model's name is empty; give a model's folder, an id, or demo")
    return path
