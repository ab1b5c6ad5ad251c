"""Rows of tensors become bytes of a type, on several threads, some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from inferno.convert.blocks import encode
from inferno.convert.tensors import Source
from inferno.errors import CheckpointError
from inferno.gguf.tensor_types import TensorType

_CHUNK_VALUES = 1 << 16  # encoded at a time, so that what comes of each step stays in the caches
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Encoder:
    """Threads that make bytes of rows, each alone: PyTorch's own would wait for each other."""

    def __init__(self, pool: ThreadPoolExecutor, num_threads: int) -> None:
        self._pool = pool
        self._depth = 2 * num_threads

    def encode(self, source: Source, type: TensorType) -> Iterator[memoryview]:
        """Yield a tensor's bytes, of which some are made while those before them are written.

        type    what floats become; blocks stay what they are, or become floats.

        Raises CheckpointError where values don't fit in the type.
        """
        as_blocks = source.type == type.name and type.block_values > 1
        make = _bytes_of if as_blocks else partial(_made, type)
        coming: deque[Future[memoryview]] = deque()
        try:
            for piece in source.pieces(as_blocks):
                coming.append(self._pool.submit(make, piece))
                if len(coming) > self._depth:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        except ValueError as problem:
            raise CheckpointError(
                f"the weights of {source.name} can't be {type.name}: {problem}"
            ) from None


@contextmanager
def encoder(num_threads: int) -> Iterator[Encoder]:
    """Yield an encoder of so many threads, which end with the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(num_threads) as pool:
            yield Encoder(pool, num_threads)
    finally:
        torch.set_num_threads(before)


def _made(type: TensorType, rows: Tensor) -> memoryview:
    """Return rows of floats as bytes of a type. Raises ValueError where they don't fit in it."""
    if type.name in _PLAIN:
        values = rows.to(_PLAIN[type.name])
        if not torch.equal(values.isfinite(), rows.isfinite()):
            raise ValueError("some are too large")
        return _bytes_of(values)
    step = _CHUNK_VALUES // type.block_values
    blocks = torch.split(rows.view(-1, type.block_values), step)
    return _bytes_of(torch.cat([encode(type.name, some) for some in blocks]))


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().data
