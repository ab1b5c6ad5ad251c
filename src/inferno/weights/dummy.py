"""Fill a model with random weights, to measure its speed without a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.ops import FILL_ROWS, PackedExperts, PackedWeight, StoredRows, matrices
from inferno.quantization import RowRange, WeightFormat, is_matrix
from inferno.weights.allocate import (
    FormatOf,
    allocate,
    allocate_packed,
    check_fits,
    weight_bytes,
)
from inferno.weights.pieces import FusedSpec, find_pieces

STANDARD_DEVIATION = 0.02  # what such models are initialized with before training
# Values nearer to zero are lifted to this: float16's denormals would be slow to compute with.
_SMALLEST = 1e-4
# A prime number of values: rows of any usual length then start at different places of the pool,
# so that matrices keep their rank.
_POOL_SIZE = 2**22 - 3
_CHUNK_VALUES = 1 << 22  # made at a time where a weight is packed at once
_E8M0_SCALE = 120  # 2^-7: all of MXFP4's elements equally often have a deviation of 2.9


def fill_dummy(
    model: nn.Module,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: FusedSpec | None = None,
    format_of: FormatOf | None = None,
    kept_bytes: float | None = None,
    is_invariant: bool = False,
    progress: Callable[[int, int], None] | None = None,
    seed: int = 0,
) -> None:
    """Replace the parameters of `model`, built on the meta device, by random ones.

    The weights of norms are ones; everything else is normal with mean 0 and a standard deviation of
    0.02, taken in turn from one pool of four million values that `seed` determines, which is two
    orders of magnitude faster than drawing every weight. Weights that checkpoints hold packed are
    random codes under one scale, with about that deviation. `fused`, `format_of`, `kept_bytes`,
    `is_invariant` and `progress` are as in `load_weights`. Raises NotEnoughMemory.
    """
    sizes = {
        name: math.ceil(size) for name, size in weight_bytes(model, dtype, fused=fused).items()
    }
    done, total = 0, sum(sizes.values())
    check_fits(kept_bytes or total, device, dtype)
    pool = _Pool(seed, device, dtype)
    for name, unfilled in list(model.named_parameters()):
        stored = find_pieces(name, fused or {})[0].format
        packed = None
        if format_of and is_matrix(name, unfilled.ndim):
            kept = format_of(name, unfilled, stored or ops.float_format(dtype))
            ranges = [RowRange(unfilled.shape[-2], kept)]
            packed = allocate_packed(model, name, device, dtype, ranges, is_invariant=is_invariant)
        if packed is None:
            parameter = allocate(model, name, device, dtype)
            if name.endswith("norm.weight"):
                parameter.fill_(1)
            else:
                pool.fill(parameter)
        elif stored is None:
            _fill_rows(packed, pool)
        else:
            for matrix in matrices(packed):
                matrix.fill(0, pool.packed(matrix.shape, stored))
        done += sizes[name]
        if progress:
            progress(done, total)


def _fill_rows(packed: PackedWeight | PackedExperts, pool: _Pool) -> None:
    for matrix in matrices(packed):
        num_rows, width = matrix.shape
        step = max(1, _CHUNK_VALUES // (width * FILL_ROWS)) * FILL_ROWS
        for first in range(0, num_rows, step):
            shape = (min(step, num_rows - first), width)
            rows = torch.empty(shape, dtype=pool.dtype, device=pool.device)
            pool.fill(rows)
            matrix.fill(first, rows)


class _Pool:
    """The random values, and as many random bytes; both are taken in turn, round and round."""

    def __init__(self, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        values = torch.randn(_POOL_SIZE, generator=_generator(seed)) * STANDARD_DEVIATION
        self._values = torch.where(values.abs() < _SMALLEST, _SMALLEST, values).to(device, dtype)
        self._bytes = torch.randint(
            256, (_POOL_SIZE,), dtype=torch.uint8, generator=_generator(seed)
        ).to(device)
        self._position = 0

    def fill(self, out: Tensor) -> None:
        """Fill a tensor with values, or a packed weight's codes with bytes."""
        pool, out = self._values if out.is_floating_point() else self._bytes, out.view(-1)
        while len(out):
            piece = pool[self._position : self._position + len(out)]
            out[: len(piece)] = piece
            out = out[len(piece) :]
            self._position = (self._position + len(piece)) % len(pool)

    def packed(self, shape: Sequence[int], format: WeightFormat) -> StoredRows:
        """Return rows of random codes."""
        with self.device:
            rows = StoredRows.empty(format, shape)
        codes, *scales = rows.parts
        self.fill(codes)
        for part in scales:
            part.fill_(_E8M0_SCALE)
        return rows


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
