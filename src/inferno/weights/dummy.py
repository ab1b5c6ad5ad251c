"""Fill a model with random weights, to measure its speed without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from inferno.ops import FILL_ROWS, Fillable
from inferno.weights.allocate import (
    allocate,
    check_fits,
    kept_dtype,
    num_bytes,
    owners,
    replace,
)

STANDARD_DEVIATION = 0.02  # what such models are initialized with before training
# Values nearer to zero are lifted to this: float16's denormals would be slow to compute with.
_SMALLEST = 1e-4
# A prime number of values: rows of any usual length then start at different places of the pool,
# so that matrices keep their rank.
_POOL_SIZE = 2**22 - 3
_CHUNK_VALUES = 1 << 22  # made at a time where a weight is packed at once
_MXFP4_SCALE = 120  # 2^-7: all elements equally often have a deviation of 2.9


def fill_dummy(
    model: nn.Module,
    *,
    device: torch.device,
    dtype: torch.dtype,
    prepare: Callable[[nn.Module], None] | None = None,
    begin: Callable[[str, Tensor], Fillable | None] | None = None,
    kept_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    seed: int = 0,
) -> None:
    """Replace the parameters of `model`, built on the meta device, by random ones.

    The weights of norms are ones; everything else is normal with mean 0 and a standard deviation
    of 0.02, taken in turn from one pool of four million values that `seed` determines, which is
    two orders of magnitude faster than drawing every weight. MXFP4 weights are random elements
    under one scale, with about that deviation. `prepare`, `begin`, `kept_bytes` and `progress`
    are as in `load_weights`. Raises NotEnoughMemory.
    """
    done, total = 0, num_bytes(model, dtype)
    check_fits(kept_bytes or total, device, dtype)
    pool = _pool(seed).to(device=device, dtype=dtype)
    bits = torch.randint(256, (_POOL_SIZE,), dtype=torch.uint8, generator=_generator(seed))
    bits = bits.to(device)
    position = 0
    for owner, names in owners(model):
        for name in names:
            unfilled = model.get_parameter(name)
            fillable = begin(name, unfilled) if begin else None
            if fillable is not None:
                replace(model, name, fillable)
                position = _fill_rows(fillable, pool, position)
            else:
                parameter = allocate(model, name, device, dtype)
                source = pool if parameter.is_floating_point() else bits
                position = _fill(name, parameter, source, position)
            done += unfilled.numel() * kept_dtype(unfilled, dtype).itemsize
            if progress:
                progress(done, total)
        if prepare:
            prepare(owner)


def _fill(name: str, parameter: Tensor, source: Tensor, position: int) -> int:
    if name.endswith("norm.weight"):
        parameter.fill_(1)
    elif name.endswith(".scales"):
        parameter.fill_(_MXFP4_SCALE)
    else:
        return _copy_cyclic(source, position, parameter.view(-1))
    return position


def _fill_rows(weight: Fillable, pool: Tensor, position: int) -> int:
    num_rows, width = weight.shape
    step = max(1, _CHUNK_VALUES // (width * FILL_ROWS)) * FILL_ROWS
    for first in range(0, num_rows, step):
        rows = torch.empty((min(step, num_rows - first), width), dtype=pool.dtype)
        position = _copy_cyclic(pool, position, rows.view(-1))
        weight.fill(first, rows)
    return position


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _pool(seed: int) -> Tensor:
    pool = torch.randn(_POOL_SIZE, generator=_generator(seed)) * STANDARD_DEVIATION
    return torch.where(pool.abs() < _SMALLEST, _SMALLEST, pool)


def _copy_cyclic(pool: Tensor, position: int, out: Tensor) -> int:
    """Fill `out` from `pool`, starting at `position` and going round; the position after that."""
    while len(out):
        piece = pool[position : position + len(out)]
        out[: len(piece)] = piece
        out = out[len(piece) :]
        position = (position + len(piece)) % len(pool)
    return position
