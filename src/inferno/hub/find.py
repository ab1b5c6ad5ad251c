"""A model's name becomes a folder: a path, `demo`, or a Hugging Face id."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from inferno.demo import MODEL_FOLDER
from inferno.errors import ModelNotFound

# Weights, tokenizer, configs and templates; never code, never pickles.
_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja"]
_HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


def find_model_folder(name: str, revision: str | None = None) -> Path:
    """The folder of a model: `demo`, a path, or an id such as Qwen/Qwen3-0.6B, fetched when needed.

    Raises ModelNotFound, which says what was tried.
    """
    if name == "demo":
        return MODEL_FOLDER
    path = Path(name).expanduser()
    if (path / "config.json").exists():
        return path
    if path.is_dir():
        raise ModelNotFound(
            f"{name} holds no config.json, so it is not a Hugging Face model; give a model's folder"
        )
    if path.exists():
        raise ModelNotFound(f"{name} is a file; give the folder that holds the model")
    if not _HUB_ID.fullmatch(name):
        raise ModelNotFound(
            f"there is no folder {name!r}; give a model's folder, an id such as "
            f"Qwen/Qwen3-0.6B, or demo"
        )
    return _fetch(name, revision)


def _fetch(name: str, revision: str | None) -> Path:
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = str(problem).strip().splitlines()[0][:200] if str(problem).strip() else ""
        raise ModelNotFound(
            f"there is no folder {name!r}, and the Hugging Face hub gave no such model ({reason}); "
            f"check the name and the connection, or give a folder"
        ) from None
