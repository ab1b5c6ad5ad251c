"""The small files of a Hugging Face folder, made of what a GGUF file says."""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from inferno.errors import ConfigError, ModelError
from inferno.gguf.config import config_of, sampling_defaults
from inferno.gguf.file import read_gguf
from inferno.gguf.names import ROPE_FACTORS
from inferno.gguf.tokenizer import tokenizer_files

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"

_MOST_FACTORS = 4096  # half a head's size; real ones have 64
_DTYPES = {"F64": "float32", "F32": "float32", "F16": "float16"}


class HfFiles:
    """What a GGUF file says in the words of a folder's files; each is made when it is asked for."""

    NAMES = (CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._model = read_gguf(path)

    def content(self, name: str) -> dict[str, Any]:
        """Return what the file of that name would hold. Raises ModelError, which names the file."""
        try:
            if name == CONFIG:
                return self._config
            if name == GENERATION_CONFIG:
                return self._tokenizer[name] | sampling_defaults(self._model.metadata)
            return self._tokenizer[name]
        except ModelError as problem:
            raise type(problem)(f"{self._path}: {problem}") from None

    @cached_property
    def _config(self) -> dict[str, Any]:
        return config_of(
            self._model.metadata,
            tuple(self._model.tensors),
            dtype=self._dtype(),
            rope_factors=self._rope_factors(),
        )

    @cached_property
    def _tokenizer(self) -> Mapping[str, dict[str, Any]]:
        return tokenizer_files(self._model.metadata)

    def _dtype(self) -> str:
        """Return torch's name of the type to compute in, by the type of most values."""
        counts: Counter[str] = Counter()
        for _, tensor in self._model.tensors.values():
            counts[tensor.type.name] += math.prod(tensor.shape)
        ((name, _),) = counts.most_common(1) or [("F32", 0)]
        return _DTYPES.get(name, "bfloat16")

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
        return struct.unpack(f"<{len(content) // 4}f", content)
