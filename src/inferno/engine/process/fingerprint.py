"""A short name for what computes: it changes with the weights, the arithmetic and the version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from inferno import __version__
from inferno.options import EngineOptions
from inferno.weights.checkpoint import open_checkpoint

NUM_DIGITS = 16
# Of a larger file, pieces are read at even distances: training changes all of a tensor.
MOST_WHOLE_BYTES = 64 * 2**20
NUM_PIECES = 4096
PIECE_BYTES = 4096


def fingerprint(options: EngineOptions, dtype: str, beat: Callable[[], None] = lambda: None) -> str:
    """Hex digits, the same on every machine, of a model that these options load in this dtype.

    beat    called after each piece of the weights, for on a slow disk they take a while.
    """
    arithmetic = [dtype, options.quantize, options.kv_dtype, options.attention]
    words = [__version__, options.device.partition(":")[0], *arithmetic, options.load_format]
    digest = hashlib.sha256(json.dumps(words).encode())
    digest.update((options.model / "config.json").read_bytes())
    if options.load_format != "dummy":
        for piece in _weights(options.model):
            digest.update(piece)
            beat()
    return digest.hexdigest()[:NUM_DIGITS]


def _weights(folder: Path) -> Iterator[bytes]:
    with open_checkpoint(folder) as checkpoint:
        sizes = {path: size for path, (size, _) in checkpoint.signatures().items()}
    for path in sorted(sizes):
        yield f"{path.name} {sizes[path]}".encode()
        with path.open("rb", buffering=0) as file:
            for offset, length in _pieces(sizes[path]):
                yield os.pread(file.fileno(), length, offset)


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    """Offsets and lengths."""
    if size <= MOST_WHOLE_BYTES:
        yield from ((offset, 2**20) for offset in range(0, size, 2**20))
    else:
        yield from ((index * size // NUM_PIECES, PIECE_BYTES) for index in range(NUM_PIECES))
