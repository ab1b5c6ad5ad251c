"""The errors of a tensor against what was expected, and the errors that it may have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.verify.outcome import Measure

# Without measured noise: roundings that a tensor of layer 0 has gone through, as multiples of
# epsilon and of the tensor's largest value.
_ROUNDINGS = 32
# With it: how many times more than plain maths an engine may err. Of all tensors of 550 random
# right models the worst used up 0.87 of what is allowed.
_NOISES_32 = 6
_NOISES_COARSE = 3


@dataclass(frozen=True, slots=True)
class Noise:
    """The error of plain maths at a dtype: the largest of any value, and relative to the whole.

    It tells how well a tensor is conditioned: a norm of tiny heads, or a sum of large terms that
    cancel, makes much of a rounding.
    """

    largest: float
    relative: float

    def plus(self, other: Noise) -> Noise:
        """Return the noise of a difference of two, each with its own rounding."""
        relative = math.hypot(self.relative, other.relative)  # as independent errors add up
        return Noise(self.largest + other.largest, relative)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """The largest error that each tensor may have.

    dtype         what the engine computes with.
    relative      asked for: a share of the tensor's largest value.
    noise         by tensor; where it is not measured, what the dtype's rounding and the depth
                  explain.
    is_quantized  products round what meets weights more than the dtype does.
    """

    dtype: torch.dtype
    relative: float | None
    noise: Mapping[str, Noise]
    is_quantized: bool = False

    @property
    def is_coarse(self) -> bool:
        """Return whether a tensor is judged as a whole too: sharper, as roundings average."""
        return self.dtype.itemsize == 2 or self.is_quantized

    def of(self, name: str, expected: Tensor, depth: int) -> float:
        """Return the error that a value may have, of a tensor that is `depth` layers deep."""
        scale = largest(expected)
        if self.relative is not None:
            return self.relative * scale
        epsilon, noise = torch.finfo(self.dtype).eps, self.noise.get(name)
        rounding = _ROUNDINGS * depth * epsilon * scale
        if noise is None:
            return rounding
        if not self.is_coarse:
            return max(rounding, _NOISES_32 * noise.largest)
        if self.dtype.itemsize > 2:
            return max(rounding, _NOISES_COARSE * noise.largest)
        return _NOISES_COARSE * noise.largest + 2 * epsilon * typical(expected)

    def relative_of(self, name: str) -> float:
        """Return the error that a tensor may have as a whole; infinity: it isn't judged so."""
        noise, epsilon = self.noise.get(name), torch.finfo(self.dtype).eps
        if noise is None or not self.is_coarse:
            return math.inf
        rounding = epsilon * (_ROUNDINGS if self.dtype.itemsize > 2 else 0.5)
        return _NOISES_COARSE * noise.relative + rounding


def measure(
    tap: str,
    name: str,
    found: Tensor,
    expected: Tensor,
    tolerance: float,
    relative_tolerance: float = math.inf,
) -> Measure:
    """Measure the errors of a tensor; equal infinities are equal, and NaN is infinitely far."""
    if found.shape != expected.shape:
        shapes = f"{list(found.shape)}, where {list(expected.shape)} is expected"
        problem = f"the shape of {name} is {shapes}"
        return without_numbers(tap, name, tolerance, problem)
    found, expected = found.double(), expected.double()
    errors = torch.where(found == expected, 0.0, (found - expected).abs())
    if not errors.isfinite().all():
        num_lost = int((~found.isfinite() & expected.isfinite()).sum())
        values = f"{num_lost} of {found.numel()} values of {name}"
        problem = f"{values} are NaN or infinite"
        return without_numbers(tap, name, tolerance, problem if num_lost else "")
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
        relative_tolerance=relative_tolerance,
    )


def noise_between(rounded: Tensor, exact: Tensor) -> Noise:
    """Measure the noise of plain maths: how far a rounded tensor is from the exact one."""
    found = measure("", "", rounded, exact, 0.0)
    return Noise(found.max_error, found.relative_error)


def max_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest error of a tensor, and no other measure."""
    return measure("", "", found, expected, 0.0).max_error


def largest(x: Tensor) -> float:
    """Return the largest finite magnitude of a tensor; 0 where it is empty."""
    finite = x.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return float(finite.abs().max()) if x.numel() else 0.0


def typical(x: Tensor) -> float:
    """Return the root mean square of a tensor's finite values; 0 where there are none."""
    finite = x[x.isfinite()].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _cosine(found: Tensor, expected: Tensor) -> float:
    lengths = float(found.norm() * expected.norm())
    if not lengths:
        return 1.0 if torch.equal(found, expected) else math.nan
    return float(found @ expected) / lengths


def without_numbers(tap: str, name: str, tolerance: float, problem: str) -> Measure:
    """Build the measure of a tensor that can't be compared, or is infinitely far off."""
    return Measure(
        tap=tap,
        name=name,
        max_error=math.inf,
        mean_error=math.inf,
        relative_error=math.inf,
        cosine=math.nan,
        tolerance=tolerance,
        problem=problem,
    )
