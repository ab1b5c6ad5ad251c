"""Fetch a model from the Hugging Face hub into the cache that other tools share."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from inferno.errors import ModelNotFound

# Weights, tokenizer, configs and templates; never code, never pickles.
_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja"]


def fetch_model(name: str, revision: str | None) -> Path:
    """The folder of a model, downloaded where the cache lacks it; ModelNotFound says why not."""
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = str(problem).strip().splitlines()[0][:200] if str(problem).strip() else ""
        raise ModelNotFound(
            f"there is no folder {name!r}, and the Hugging Face hub gave no such model ({reason}); "
            f"check the name and the connection, or give a folder"
        ) from None
