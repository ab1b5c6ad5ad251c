"""Read a model's small files, from a Hugging Face folder or made from a GGUF file's metadata.

Configs, tokenizers and chat templates are asked for by Hugging Face's names, wherever they come
from.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from inferno.config.decoder import DecoderConfig
from inferno.config.families import read_model_config
from inferno.errors import CheckpointError, ConfigError, ModelError
from inferno.gguf.config import config_of, most_type, sampling_defaults
from inferno.gguf.file import GgufModel, is_gguf_file, read_gguf
from inferno.gguf.names import ROPE_FACTORS
from inferno.gguf.tokenizer import check_merges, tokenizer_files
from inferno.json_file import MAX_JSON_BYTES, read_file, read_json

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"

_MOST_FACTORS = 4096  # half a head's size; real ones have 64


class ModelFiles(Protocol):
    """The small files of a model, by the names that they have in a Hugging Face folder.

    are_made  whether the contents are made by this package, and not read from files.
    """

    path: Path
    are_made: bool

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""

    def place(self, name: str) -> str:
        """Return the name of a file for messages."""

    def read(self, name: str, *, error: type[ModelError], max_bytes: int) -> bytes:
        """Return a file's bytes; raise `error` if the file is missing, special or too large."""

    def json(
        self, name: str, *, error: type[ModelError], max_bytes: int = MAX_JSON_BYTES
    ) -> dict[str, Any]:
        """Return the JSON object in a file; raise `error` where there is none."""

    def check(self, name: str) -> None:
        """Raise the error that says what a library refuses of a file, as far as it is known here.

        It takes long, so it is for those who have met a refusal, or pass the file on.
        """


def model_files(path: Path) -> ModelFiles:
    """Return the files of a model that is a folder, or a GGUF file.

    Raises CheckpointError where a GGUF file is damaged.
    """
    return _gguf_files(path) if is_gguf_file(path) else FolderFiles(path)


def model_config(
    path: Path, hf_config: Mapping[str, Any], *, allow_unknown: bool = False
) -> DecoderConfig:
    """Return a model's config.json, read by `read_model_config`; errors name a GGUF file."""
    place = config_place(path, is_gguf=is_gguf_file(path))
    return read_model_config(hf_config, allow_unknown=allow_unknown, place=place)


def config_place(place: object, *, is_gguf: bool) -> str:
    """Return the name of a model's config in messages."""
    return f"{place}: its metadata" if is_gguf else CONFIG


class FolderFiles:
    """The files of a folder."""

    are_made = False

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

    def check(self, name: str) -> None:
        """Do nothing: libraries read the files themselves."""


class MadeFiles:
    """Files that are made when they are asked for, as of a GGUF file's metadata.

    path    the name of their source in messages.
    makers  name -> a function that makes the file's content.
    checks  name -> a function that raises the error of what makers leave unchecked.
    """

    are_made = True

    def __init__(
        self,
        path: Path,
        makers: Mapping[str, Callable[[], dict[str, Any]]],
        checks: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self.path = path
        self._makers = makers
        self._checks = checks or {}

    @classmethod
    def of(cls, path: Path, files: Mapping[str, Mapping[str, Any]]) -> MadeFiles:
        """Return files that are made already."""
        return cls(path, {name: partial(dict[str, Any], one) for name, one in files.items()})

    def has(self, name: str) -> bool:
        return name in self._makers

    def place(self, name: str) -> str:
        return f"{self.path} (its {name})"

    def read(self, name: str, *, error: type[ModelError], max_bytes: int) -> bytes:
        made = self.json(name, error=error)
        self.check(name)
        content = json.dumps(made).encode()
        if len(content) > max_bytes:
            raise error(f"{self.place(name)} is larger than the {max_bytes:,} bytes allowed for it")
        return content

    def json(
        self, name: str, *, error: type[ModelError], max_bytes: int = MAX_JSON_BYTES
    ) -> dict[str, Any]:
        if not self.has(name):
            raise error(f"{self.place(name)} is missing")
        with self._naming():
            return self._makers[name]()

    def check(self, name: str) -> None:
        with self._naming():
            self._checks.get(name, lambda: None)()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except ModelError as problem:
            raise type(problem)(f"{self.path}: {problem}") from None


def _gguf_files(path: Path) -> MadeFiles:
    """Return the files that a GGUF file stands for. CheckpointError where it is damaged."""
    model = read_gguf(path)

    @cache
    def config() -> dict[str, Any]:
        return config_of(
            model.metadata,
            tuple(model.tensors),
            stored=most_type(tensor for _, tensor in model.tensors.values()),
            rope_factors=_rope_factors(model),
        )

    @cache
    def texts() -> Mapping[str, dict[str, Any]]:
        return tokenizer_files(model.metadata)

    return MadeFiles(
        path,
        {
            CONFIG: config,
            GENERATION_CONFIG: lambda: (
                texts()[GENERATION_CONFIG] | sampling_defaults(model.metadata)
            ),
            TOKENIZER: lambda: texts()[TOKENIZER],
            TOKENIZER_CONFIG: lambda: texts()[TOKENIZER_CONFIG],
        },
        {TOKENIZER: lambda: check_merges(model.metadata)},
    )


def _rope_factors(model: GgufModel) -> Sequence[float] | None:
    """Return what each rotary frequency is divided by; None where the file doesn't say."""
    if ROPE_FACTORS not in model.tensors:
        return None
    path, tensor = model.tensors[ROPE_FACTORS]
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
