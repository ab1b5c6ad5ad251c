"""Name a loaded model by a short hash of its weights, its arithmetic and inferno's version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from inferno import __version__
from inferno.errors import ConfigError
from inferno.json_file import MAX_JSON_BYTES
from inferno.model_files import CONFIG, model_files
from inferno.options import EngineOptions
from inferno.weights.open import open_checkpoint

NUM_DIGITS = 16
# Of a larger file, pieces are read at even distances: training changes all of a tensor.
MOST_WHOLE_BYTES = 64 * 2**20
NUM_PIECES = 4096
PIECE_BYTES = 4096


def fingerprint(options: EngineOptions, dtype: str, beat: Callable[[], None] = lambda: None) -> str:
    """Hash the model that these options load in a dtype; equal on every machine.

    beat    called after each piece of the weights, for reading them from a slow disk takes a while.
    """
    arithmetic = [dtype, options.quantize, options.activations, options.kv_dtype]
    arithmetic += [options.attention, options.load_format]
    words = [__version__, options.device.partition(":")[0], *arithmetic]
    digest = hashlib.sha256(json.dumps(words).encode())
    files = model_files(options.model)
    digest.update(files.read(CONFIG, error=ConfigError, max_bytes=MAX_JSON_BYTES))
    if options.load_format != "dummy":
        for piece in _weights(options.model):
            digest.update(piece)
            beat()
    return digest.hexdigest()[:NUM_DIGITS]


def _weights(path: Path) -> Iterator[bytes]:
    with open_checkpoint(path) as checkpoint:
        sizes = {path: size for path, (size, _) in checkpoint.signatures().items()}
    for each in sorted(sizes):
        yield f"{each.name} {sizes[each]}".encode()
        with each.open("rb", buffering=0) as file:
            for offset, length in _pieces(sizes[each]):
                yield os.pread(file.fileno(), length, offset)


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    """Return the offsets and lengths of the parts of a file that are hashed."""
    if size <= MOST_WHOLE_BYTES:
        yield from ((offset, 2**20) for offset in range(0, size, 2**20))
    else:
        yield from ((index * size // NUM_PIECES, PIECE_BYTES) for index in range(NUM_PIECES))
