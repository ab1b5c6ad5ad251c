"""A model's small files: those of a Hugging Face folder, or what a GGUF file says in their place.

Whoever reads a config, a tokenizer or a chat template asks for it by Hugging Face's name, and need
not know where it comes from.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from inferno.errors import CheckpointError, ConfigError, ModelError
from inferno.gguf.config import computed_dtype, config_of, sampling_defaults
from inferno.gguf.file import is_gguf_name, read_gguf
from inferno.gguf.names import ROPE_FACTORS
from inferno.gguf.tokenizer import tokenizer_files
from inferno.json_file import MAX_JSON_BYTES, read_file, read_json

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"

_MOST_FACTORS = 4096  # half a head's size; real ones have 64


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
    """The files that a folder would have, made of a GGUF file, each when it is asked for.

    Raises CheckpointError where the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model = read_gguf(path)

    def has(self, name: str) -> bool:
        return name in (CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG)

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
        try:
            if name == CONFIG:
                return self._config
            if name == GENERATION_CONFIG:
                return self._texts[name] | sampling_defaults(self._model.metadata)
            return self._texts[name]
        except ModelError as problem:
            raise type(problem)(f"{self.path}: {problem}") from None

    @cached_property
    def _config(self) -> dict[str, Any]:
        return config_of(
            self._model.metadata,
            tuple(self._model.tensors),
            dtype=computed_dtype(tensor for _, tensor in self._model.tensors.values()),
            rope_factors=self._rope_factors(),
        )

    @cached_property
    def _texts(self) -> Mapping[str, dict[str, Any]]:
        return tokenizer_files(self._model.metadata)

    def _rope_factors(self) -> Sequence[float] | None:
        """Return what each rotary frequency is divided by; None where the file doesn't say."""
        if ROPE_FACTORS not in self._model.tensors:
            return None
        path, tensor = self._model.tensors[ROPE_FACTORS]
        if tensor.type.name != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > _MOST_FACTORS:
            raise ConfigError(
                f"{ROPE_FACTORS} is {tensor.type.name} {list(tensor.shape)}, expected a row of F32"
            )
        with path.open("rb", buffering=0) as file:
            content = os.pread(file.fileno(), tensor.stop - tensor.start, tensor.start)
        if len(content) < tensor.stop - tensor.start:
            raise CheckpointError(
                f"{path}: changed while it was being read; wait for the download to finish, "
                "then load again"
            )
        return struct.unpack(f"<{len(content) // 4}f", content)
