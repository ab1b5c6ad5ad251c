"""A model's small files: those of a Hugging Face folder, or what a GGUF file says in their place.

Whoever reads a config, a tokenizer or a chat template asks for it by Hugging Face's name, and need
not know where it comes from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from inferno.errors import ModelError
from inferno.gguf.file import is_gguf_name
from inferno.gguf.hf_files import HfFiles
from inferno.json_file import MAX_JSON_BYTES, read_file, read_json


class ModelFiles(Protocol):
    """The small files of a model, by the names that they have in a Hugging Face folder."""

    path: Path

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""

    def place(self, name: str) -> str:
        """Return what messages call it."""

    def read(self, name: str, *, error: type[ModelError], max_bytes: int) -> bytes:
        """Return its bytes; a missing, special or too large one raises `error`."""

    def json(
        self, name: str, *, error: type[ModelError], max_bytes: int = MAX_JSON_BYTES
    ) -> dict[str, Any]:
        """Return the JSON object that it holds; `error` says why not."""


def model_files(path: Path) -> ModelFiles:
    """Return the files of a model that is a folder, or a GGUF file.

    Raises CheckpointError where a GGUF file is damaged.
    """
    return GgufFiles(path) if is_gguf_name(path) and not path.is_dir() else FolderFiles(path)


class FolderFiles:
    """The files of a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def place(self, name: str) -> str:
        return str(self.path / name)

    def read(self, name: str, *, error: type[ModelError], max_bytes: int) -> bytes:
        return read_file(self.path / name, error=error, max_bytes=max_bytes)

    def json(
        self, name: str, *, error: type[ModelError], max_bytes: int = MAX_JSON_BYTES
    ) -> dict[str, Any]:
        return read_json(self.path / name, error=error, max_bytes=max_bytes)


class GgufFiles:
    """What a GGUF file says, as the files of a folder would say it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = HfFiles(path)

    def has(self, name: str) -> bool:
        return name in self._files.NAMES

    def place(self, name: str) -> str:
        return f"{self.path} (its {name})"

    def read(self, name: str, *, error: type[ModelError], max_bytes: int) -> bytes:
        content = json.dumps(self.json(name, error=error)).encode()
        if len(content) > max_bytes:
            raise error(f"{self.place(name)} is larger than the {max_bytes:,} bytes allowed for it")
        return content

    def json(
        self, name: str, *, error: type[ModelError], max_bytes: int = MAX_JSON_BYTES
    ) -> dict[str, Any]:
        if not self.has(name):
            raise error(f"{self.place(name)} is missing")
        return self._files.content(name)
