"""The roundings of kernels besides their dtype's, in plain maths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.verify.plain_maths import linear, wide

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]

INT8_UNIT = 1 / 254  # half a step of a group's largest value
_GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """The roundings of a product's inputs and of cached keys and values.

    mxfp4     what meets MXFP4 weights is rounded to int8.
    matrices  so is what meets all others, but a router's.
    powers    by scales that are powers of two, as beside int4: not what meets the head, or MXFP4.
    kv        what keys and values are kept in; None: as they come.
    """

    mxfp4: bool = False
    matrices: bool = False
    powers: bool = False
    kv: torch.dtype | None = None

    @property
    def is_any(self) -> bool:
        return self.mxfp4 or self.matrices

    @property
    def unit(self) -> float:
        """Return the largest error of a rounded value, relative to its group's largest value."""
        if not self.matrices:
            return 0.0
        return 2 * INT8_UNIT if self.powers else INT8_UNIT

    def product(self, *, is_mxfp4: bool = False, is_head: bool = False) -> Product:
        """Return the function that multiplies with a matrix of that kind, with its rounding."""
        if not (self.mxfp4 if is_mxfp4 else self.matrices):
            return floating_linear
        return partial(packed_linear, powers=self.powers and not (is_mxfp4 or is_head))

    def cached(self, x: Tensor) -> Tensor:
        """Return keys or values as attention reads them from the cache."""
        return x if self.kv is None else x.to(self.kv).to(x.dtype)


EXACT = Rounding()


def floating_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply in the dtype of the input."""
    return linear(x, weight.to(x.dtype), bias)


def packed_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, powers: bool = False
) -> Tensor:
    """Multiply small whole numbers, which is exact, times scales: rounded when all is done."""
    rounded = in_int8(x, powers=powers)
    return linear(rounded, wide(weight), None if bias is None else wide(bias)).to(x.dtype)


def in_int8(x: Tensor, *, powers: bool = False) -> Tensor:
    """Round groups of 32 values to int8 with a scale, in float32: what meets packed weights.

    With `powers` scales are rounded up to powers of two.
    """
    width = x.shape[-1]
    filled = F.pad(wide(x), (0, -width % _GROUP))
    groups = filled.view(*filled.shape[:-1], -1, _GROUP)
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    if powers:
        scales = scales.log2().ceil().exp2()
    rounded: Tensor = ((groups / scales).round() * scales).flatten(-2)
    return rounded[..., :width]
