"""How far a tensor is from what was expected, and how far it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.verify.outcome import Measure

# Roundings that a tensor of layer 0 has gone through, as multiples of the dtype's epsilon and of
# the tensor's largest value; measured on random models, whose errors came to 0.4 of it at most.
_ROUNDINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """The largest error that each tensor may have.

    dtype     what the engine computes with.
    relative  asked for: a share of the tensor's largest value.
    noise     by tensor: what plain maths errs at that dtype; twice that is allowed, as in
              FlashAttention's tests, and two roundings of a typical value. Without it, what the
              dtype's rounding and the depth explain.
    """

    dtype: torch.dtype
    relative: float | None
    noise: Mapping[str, float]

    def of(self, name: str, expected: Tensor, depth: int) -> float:
        """For a tensor `depth` layers deep."""
        scale = largest(expected)
        if self.relative is not None:
            return self.relative * scale
        epsilon = torch.finfo(self.dtype).eps
        if name in self.noise:
            return 2 * self.noise[name] + 2 * epsilon * _typical(expected)
        return _ROUNDINGS * depth * epsilon * scale


def measure(tap: str, name: str, found: Tensor, expected: Tensor, tolerance: float) -> Measure:
    """The errors of a tensor; equal infinities are equal, and NaN is infinitely far."""
    if found.shape != expected.shape:
        shapes = f"{name}, {list(found.shape)} where {list(expected.shape)} is expected"
        return _infinitely_far(tap, shapes, tolerance)
    found, expected = found.double(), expected.double()
    errors = torch.where(found == expected, 0.0, (found - expected).abs())
    errors = errors.nan_to_num(nan=math.inf, posinf=math.inf)
    if not errors.isfinite().all():
        num_lost = int((~found.isfinite() & expected.isfinite()).sum())
        words = f"{name}, {num_lost} of whose values are no finite numbers," if num_lost else name
        return _infinitely_far(tap, words, tolerance)
    is_number = expected.isfinite()
    found, expected = found[is_number], expected[is_number]
    length = float(expected.norm())
    return Measure(
        tap=tap,
        name=name,
        max_error=float(errors.max()) if errors.numel() else 0.0,
        mean_error=float(errors.mean()) if errors.numel() else 0.0,
        relative_error=float(errors.norm()) / length if length else float(errors.norm()),
        cosine=_cosine(found, expected),
        tolerance=tolerance,
    )


def max_error(found: Tensor, expected: Tensor) -> float:
    """The largest error alone."""
    return measure("", "", found, expected, 0.0).max_error


def largest(x: Tensor) -> float:
    """The largest finite magnitude."""
    finite = x.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return float(finite.abs().max()) if x.numel() else 0.0


def _typical(x: Tensor) -> float:
    """The root mean square of the finite values."""
    finite = x[x.isfinite()].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _cosine(found: Tensor, expected: Tensor) -> float:
    lengths = float(found.norm() * expected.norm())
    return float(found @ expected) / lengths if lengths else float(torch.equal(found, expected))


def _infinitely_far(tap: str, name: str, tolerance: float) -> Measure:
    return Measure(
        tap=tap,
        name=name,
        max_error=math.inf,
        mean_error=math.inf,
        relative_error=math.inf,
        cosine=math.nan,
        tolerance=tolerance,
    )
