"""Values with a bound on what rounding may have done to each: how one product may err.

Nothing here is measured. Where kernels round by a rule, the rule is followed; where they add in
float32 in an order of their own, the bound is that of any order (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1).

Shape letters: T rows, I input and O output features, F outputs of gate and of up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch
import torch.nn.functional as F
from torch import Tensor

_GROUP = 32
_UNIT_32 = 2.0**-24  # of float32: half the distance from 1 to the next number
_TINY = 1e-30  # such groups count as zeros, and denormals may be lost
_LARGEST_CODE = 127
_FP8_GROUP = 128
_LARGEST_FP8 = 448
# Of a sum of 128 products of FP8, by the sum of their sizes: tensor cores of SM90 keep 13 bits of
# the largest of 32 terms, and may lose as much of each (arXiv:2412.19437, section 3.5.2).
_FP8_SUM = 4 * 32 * 2.0**-13
_TIE = _LARGEST_CODE * 4 * _UNIT_32  # so near a tie, a code's own float32 rounding decides
_LEAST_SHARE = (
    2.0**-40
)  # of a row's largest value: beside int4, groups that are smaller may be zeros
_FEW = 8  # roundings besides those of a sum: of scales, the bias, what is written
_STEEPEST = 1.1  # slope of x * sigmoid(a x), for any a
_GATE_UNITS = 32  # units in the last place that an exponential, a quotient and products may err
_OUTPUTS_AT_A_TIME = 4096


class Rounds(Enum):
    """The ways in which a kernel rounds the inputs of a product; the weight's packing decides."""

    NOTHING = auto()
    TO_INT8 = auto()  # groups of 32, each with the scale of its largest value
    BY_POWERS = auto()  # likewise, scales rounded up to powers of two
    TO_FP8 = auto()  # groups of 128, likewise to 8-bit floats


@dataclass(frozen=True, slots=True)
class Bounded:
    """Float64 values, and how far from each what is found may be."""

    value: Tensor
    radius: Tensor

    @classmethod
    def exactly(cls, value: Tensor) -> Bounded:
        """Take values unchanged, for nothing was rounded."""
        return cls(value.double(), torch.zeros_like(value, dtype=torch.float64))

    @classmethod
    def beside(cls, parts: Sequence[Bounded]) -> Bounded:
        """Join columns."""
        value, radius = ([getattr(part, name) for part in parts] for name in ("value", "radius"))
        return cls(torch.cat(value, dim=1), torch.cat(radius, dim=1))

    def columns(self, columns: slice) -> Bounded:
        """Return some of the columns."""
        return Bounded(self.value[:, columns], self.radius[:, columns])

    def rows(self, rows: slice | Tensor) -> Bounded:
        """Return some of the rows."""
        return Bounded(self.value[rows], self.radius[rows])

    def summed(self, shares_TA: Tensor) -> Bounded:
        """Sum A rows each by their shares, in float32: [T * A, O] -> [T, O]."""
        num_tokens, count = shares_TA.shape
        shares = shares_TA.double()[..., None]
        value, radius = (x.view(num_tokens, count, -1) for x in (self.value, self.radius))
        sizes = (value * shares).abs().sum(1)
        err = (radius * shares.abs()).sum(1) + (count + _FEW) * _UNIT_32 * sizes
        return Bounded((value * shares).sum(1), err + _TINY)


def rounded(x: Bounded, dtype: torch.dtype) -> Bounded:
    """Round values to a dtype: each becomes one number, unless several are within its reach."""
    if dtype.itemsize > 2:
        return x  # float32's rounding is counted with the sums'
    low, high = ((x.value + side * x.radius).to(dtype).double() for side in (-1, 1))
    return Bounded((low + high) / 2, (high - low).abs() / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A way to compute a product.

    rounds    what it makes of its input.
    is_ours   it is one of the compiled kernels, which round once; PyTorch's round a product before
              they add the bias.
    on_cpu    elsewhere partial sums may be kept in 16 bits.
    dtype     of activations; out: what is written.
    """

    rounds: Rounds
    is_ours: bool
    on_cpu: bool
    dtype: torch.dtype
    out: torch.dtype

    def multiply(self, x: Bounded, weight_OI: Tensor, bias_O: Tensor | None) -> Bounded:
        """Return x @ weight.T + bias, of a float32 weight: [T, I] -> [T, O]."""
        x = _as_rounded(x, self.rounds)
        parts = [self._multiply(x, weight, bias) for weight, bias in _parts(weight_OI, bias_O)]
        return rounded(Bounded.beside(parts), self.out)

    def _multiply(self, x: Bounded, weight_OI: Tensor, bias_O: Tensor | None) -> Bounded:
        width, sizes_IO = weight_OI.shape[1], weight_OI.abs().T
        are_codes_whole = self.rounds in (Rounds.TO_INT8, Rounds.BY_POWERS)  # their sums are exact
        num_sums = -(-width // _GROUP) if are_codes_whole else width
        coarse = torch.finfo(self.dtype).eps / 2 if self.dtype.itemsize <= 2 else 0.0
        value = x.value @ weight_OI.double().T
        radius = _widened((x.radius.float() @ sizes_IO).double())
        sizes = _widened((x.value.abs().float() @ sizes_IO).double())
        if bias_O is not None:
            radius = radius if self.is_ours else radius + coarse * (value.abs() + radius)
            value, sizes = value + bias_O.double(), sizes + bias_O.abs().double()
        if not self.on_cpu:
            is_fp8 = self.rounds is Rounds.TO_FP8
            radius = radius + max(4 * coarse, _FP8_SUM if is_fp8 else 0.0) * sizes
        return Bounded(value, radius + (num_sums + _FEW) * _UNIT_32 * sizes + _TINY)


def silu_gate(both: Bounded, dtype: torch.dtype) -> Bounded:
    """Return silu(gate) * up of gates and ups side by side, each written in that dtype."""
    gate, up = _halves(both)
    sigmoid = torch.sigmoid(gate.value)
    exact = gate.value * sigmoid
    silu = Bounded(exact, _STEEPEST * gate.radius + _GATE_UNITS * _UNIT_32 * exact.abs() + _TINY)
    return rounded(_times(rounded(silu, dtype), up), dtype)


def clamped_gate(both: Bounded, alpha: float, limit: float, dtype: torch.dtype) -> Bounded:
    """Return (up + 1) * gate * sigmoid(alpha * gate) of clamped values, rounded at the end."""
    gate, up = _halves(both)
    g, more = gate.value.clamp(max=limit), up.value.clamp(-limit, limit) + 1
    exact = g * torch.sigmoid(alpha * g)
    # What rounds is alpha * g too, and a sigmoid's slope times its argument is at most 0.28.
    err = _GATE_UNITS * _UNIT_32 * (exact.abs() + g.abs())
    gated = Bounded(exact, _STEEPEST * gate.radius + err + _TINY)
    return rounded(_times(gated, Bounded(more, up.radius + _UNIT_32 * (more.abs() + 1))), dtype)


def _times(a: Bounded, b: Bounded) -> Bounded:
    value = a.value * b.value
    radius = a.value.abs() * b.radius + b.value.abs() * a.radius + a.radius * b.radius
    return Bounded(value, radius + 4 * _UNIT_32 * value.abs())


def _halves(both: Bounded) -> tuple[Bounded, Bounded]:
    (gate, up), (gate_radius, up_radius) = both.value.chunk(2, dim=-1), both.radius.chunk(2, dim=-1)
    return Bounded(gate, gate_radius), Bounded(up, up_radius)


def _parts(weight_OI: Tensor, bias_O: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """Split a product into some outputs at a time, for float64 takes room."""
    parts = torch.split(weight_OI, _OUTPUTS_AT_A_TIME)
    biases = [None] * len(parts) if bias_O is None else torch.split(bias_O, _OUTPUTS_AT_A_TIME)
    return list(zip(parts, biases, strict=True))


def _widened(x: Tensor) -> Tensor:
    """Widen a bound that was added up in float32 by more than the sum's rounding may have lost."""
    return 1.01 * x


def _as_rounded(exact: Bounded, rounds: Rounds) -> Bounded:
    """Return codes times scales, if kernels make codes of inputs."""
    if rounds is Rounds.NOTHING:
        return exact
    assert not exact.radius.any(), "codes are made of what is known"
    return _as_fp8(exact) if rounds is Rounds.TO_FP8 else _as_codes(exact, rounds)


def _as_fp8(exact: Bounded) -> Bounded:
    """Return the nearest elements times scales: quotients that are rounded right leave no choice.

    A group with a NaN or infinity becomes NaN.
    """
    width, x = exact.value.shape[1], exact.value.float()
    groups = F.pad(x, (0, -width % _FP8_GROUP)).view(len(x), -1, _FP8_GROUP)
    peaks = groups.abs().amax(-1, keepdim=True)
    # A quotient of tensors: of a tensor and a number PyTorch may make a product with an inverse.
    scales = peaks / torch.full_like(peaks, _LARGEST_FP8)
    quotients = groups / torch.where(peaks > _TINY, scales, torch.full_like(scales, torch.inf))
    values = quotients.to(torch.float8_e4m3fn).double() * scales.double()
    values = torch.where(peaks <= _TINY, torch.zeros_like(values), values)
    return Bounded.exactly(values.flatten(1)[:, :width])


def _as_codes(exact: Bounded, rounds: Rounds) -> Bounded:
    """Return whole numbers times scales; a tie may fall to either neighbour."""
    width, x = exact.value.shape[1], exact.value.float()
    groups = F.pad(x, (0, -width % _GROUP)).view(len(x), -1, _GROUP)
    peaks = groups.abs().amax(-1, keepdim=True)
    # Quotients of tensors: of a number and a tensor PyTorch may make a product with an inverse.
    most = torch.full_like(peaks, _LARGEST_CODE)
    scales, inverses = peaks / most, most / peaks
    if rounds is Rounds.BY_POWERS:
        scales = _power_of_two(scales)
        inverses = torch.ones_like(scales) / scales
    inverses = torch.where(peaks > _TINY, inverses, torch.zeros_like(inverses))
    codes = groups.double() * inverses.double()
    is_tie = (codes - codes.floor() - 0.5).abs() < _TIE
    radius = torch.where(is_tie, scales, torch.zeros_like(groups)).double()
    if rounds is Rounds.BY_POWERS:
        radius = radius + _LEAST_SHARE * peaks.amax(1, keepdim=True).double()
    values = (groups * inverses).round().double() * scales.double()
    return Bounded(*(each.flatten(1)[:, :width] for each in (values, radius)))


def _power_of_two(x: Tensor) -> Tensor:
    """Return the least power of two that is at least x."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ones_like(x), exponent - (mantissa == 0.5).int())
