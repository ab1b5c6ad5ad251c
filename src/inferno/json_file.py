"""Read a small, untrusted file of a model's folder, within bounds."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferno.errors import CheckpointError, ModelError, ModelNotFound
from inferno.untrusted_json import Malformed, parse_object, quoted

MAX_JSON_BYTES = 8 * 2**20
MAX_TEMPLATE_BYTES = 2**20  # of a chat template, wherever it stands

# The files of a folder that hold its chat templates, by the names of these.
TEMPLATE_FILES: Mapping[str, str] = {
    "default": "chat_template.jinja",
    "tool_use": "additional_chat_templates/tool_use.jinja",
}

# The files of a folder that hold its weights: one, or shards that an index names.
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# The largest published models list 140,000 tensors in about 14 MB.
MAX_INDEX_BYTES = 16 << 20
MAX_TOKENIZER_BYTES = 128 << 20
# Every JSON value follows one of the SEPARATORS, so counting them bounds what the parser makes of a
# tokenizer.json. The largest vocabularies have a quarter of a million tokens, and half a million
# merges.
MAX_TOKENIZER_SEPARATORS = 10_000_000
MAX_DIMS = 16  # of a tensor in safetensors
# A safetensors header may have 100 MB. Real ones take about 100 bytes a tensor: 4 MiB hold some
# 40,000 tensors, and anything larger exists only to exhaust memory.
MAX_HEADER_BYTES = 4 << 20
_PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


def read_json(
    path: Path, *, error: type[ModelError], max_bytes: int = MAX_JSON_BYTES
) -> dict[str, Any]:
    """Return the JSON object in a file: UTF-8, at most `max_bytes` long, no key with two meanings.

    Other content raises `error`, whose message names the file.
    """
    content = read_file(path, error=error, max_bytes=max_bytes)
    try:
        return parse_object(content, may_repeat=True)
    except Malformed as problem:
        raise error(f"{path} can't be read: {problem}; download it again") from None


def read_file(path: Path, *, error: type[ModelError], max_bytes: int) -> bytes:
    """Return the bytes of a regular file; a missing, special or too large one raises `error`."""
    try:
        with open(path, "rb", opener=open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise error(f"{path} must be a regular file")
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        raise error(f"{path} can't be read: {problem}") from None
    if len(content) > max_bytes:
        raise error(f"{path} is larger than the {max_bytes:,} bytes allowed for such a file")
    return content


def open_nonblocking(path: str, flags: int) -> int:
    """Open a file as an `opener` does; a named pipe would otherwise wait for a writer for ever.

    The descriptor is closed where the path is a folder; `open` alone would leave it open then.
    """
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def no_weights(folder: Path) -> ModelNotFound | CheckpointError:
    """Return the error of a folder that has neither of the files that hold weights."""
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return ModelNotFound(f"{folder}: is not a folder that can be read ({error})")
    pickles = [name for name in names if Path(name).suffix.lower() in _PICKLE_SUFFIXES]
    if pickles:
        return CheckpointError(
            f"{folder}: has only pickled weights ({quoted(pickles[0])}), which can run any code "
            "and are never read; convert them in a sandbox with transformers' "
            "`model.save_pretrained(folder, safe_serialization=True)`"
        )
    return ModelNotFound(
        f"{folder}: has neither {SINGLE_FILE} nor {INDEX_FILE}; give the folder of a "
        "Hugging Face checkpoint in safetensors"
    )


def missing_file(path: Path) -> CheckpointError:
    """Return the error of a file of weights that should be there."""
    return CheckpointError(f"{path}: is missing; download the checkpoint again")
