"""Make blocks of Q4_K and Q6_K of floats, with the least squared error that a search finds.

Both hold 256 values in groups, whose scales are small integers in a unit of the block. There is no
formula for the best of all these numbers. So each is found with the others held fixed, in turn: a
group's scale by least squares, its codes by rounding, the integers by trying neighbours, the units
by least squares again; what doesn't make the error smaller is dropped.

Shape letters: N blocks, G groups of a block, V values of a group.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_Q4_LAST = 15  # the largest code of Q4_K, and the largest integer for its scales and minimums
_Q4_LAST_SCALE = 63
# How many codes a group's range is spread over at first: fewer, and its ends are cut off.
_Q4_SPREADS = (13.6, 14.0, 14.3, 14.6, 14.9, 15.2, 15.5, 15.8, 16.1)
_Q6_SPREADS = (29.5, 30.25, 31.0, 31.4, 31.8, 32.2, 32.6, 33.0)
_Q6_LOWEST, _Q6_LAST = -32, 31
_Q6_LAST_SCALE = 127
_NEIGHBOURS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
_ROUNDS = 1  # a second one takes a tenth of a percent off the error
_LARGEST_FLOAT16 = 65504.0
_SMALLEST = 1e-30


def q4_k(values: Tensor) -> Tensor:
    """Return uint8 [N, 144] of float32 [N, 256]: value = unit * scale * code - other * minimum."""
    values_NGV = values.view(-1, 8, 32)
    scales, minimums = _fit_lines(values_NGV)
    found = _in_units(scales, minimums)
    best = _tried(values_NGV, found, _NEIGHBOURS)
    for _ in range(_ROUNDS):
        best = _better(best, _tried(values_NGV, _with_best_units(values_NGV, best), _NEIGHBOURS))
    lines, codes = best.lines, best.codes.to(torch.uint8)
    units = torch.cat([lines.unit, lines.other], 1).half()
    six_bits = _pack_six_bits(lines.scales.to(torch.uint8), lines.minimums.to(torch.uint8))
    # Two groups share 32 bytes: the lower four bits are the first one's.
    pairs = codes.view(-1, 4, 2, 32)
    nibbles = pairs[:, :, 0] | pairs[:, :, 1] << 4
    return torch.cat([units.view(torch.uint8), six_bits, nibbles.flatten(1)], 1)


def q6_k(values: Tensor) -> Tensor:
    """Return uint8 [N, 210] of float32 [N, 256]: value = unit * scale * (code - 32)."""
    values_NGV = values.view(-1, 16, 16)
    scales = _fit_scales(values_NGV)
    peaks = scales.gather(1, scales.abs().argmax(1, keepdim=True))
    unit = _as_float16(peaks / -(_Q6_LAST_SCALE + 1))
    integers = _divided(scales, unit).round().clamp(-_Q6_LAST_SCALE - 1, _Q6_LAST_SCALE)
    integers, codes, error = _nearest_integers(values_NGV, unit, integers)
    for _ in range(_ROUNDS):
        products = (integers[:, :, None] * codes).flatten(1)
        other_unit = _as_float16(
            _divided(
                (products * values).sum(1, keepdim=True), products.square().sum(1, keepdim=True)
            )
        )
        others = _nearest_integers(values_NGV, other_unit, integers)
        is_better = (others[2] < error)[:, None]
        unit = torch.where(is_better, other_unit, unit)
        integers = torch.where(is_better, others[0], integers)
        codes = torch.where(is_better[:, :, None], others[1], codes)
        error = torch.minimum(error, others[2])
    six_bits = (codes - _Q6_LOWEST).to(torch.uint8).view(-1, 2, 4, 32)
    low, high = six_bits & 15, six_bits >> 4
    # By 128 values: 32 bytes' lower halves, 32 more, and their upper halves; two bits by four.
    nibbles = low[:, :, :2] | low[:, :, 2:] << 4
    upper = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    signed = integers.to(torch.int8).view(torch.uint8)
    return torch.cat(
        [nibbles.flatten(1), upper.flatten(1), signed, unit.half().view(torch.uint8)], 1
    )


class _Lines(NamedTuple):
    """The lines of N blocks of Q4_K: units [N, 1], and integers in them [N, G]."""

    unit: Tensor
    other: Tensor
    scales: Tensor
    minimums: Tensor


class _Coded(NamedTuple):
    """The lines with the nearest codes [N, G, V], and the squared error of each block [N]."""

    lines: _Lines
    codes: Tensor
    error: Tensor


def _fit_lines(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale and the minimum, not negative, of each group's best line: [N, G] each."""
    low, high = values.amin(2, keepdim=True).clamp(max=0), values.amax(2, keepdim=True)
    span = high - low
    best = _solved(values, _line_codes(values, span / _Q4_LAST, low))
    for spread in _Q4_SPREADS:
        line = _solved(values, _line_codes(values, span / spread, low))
        best = _keep_better(best, line)
    for _ in range(_ROUNDS):
        best = _keep_better(best, _solved(values, _line_codes(values, best[0], best[1])))
    return best[0].squeeze(2), -best[1].squeeze(2)


def _line_codes(values: Tensor, scales: Tensor, offsets: Tensor) -> Tensor:
    return (values - offsets).mul_(_inverse(scales)).round_().clamp_(0, _Q4_LAST)


def _solved(values: Tensor, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scales, offsets of at most zero, and errors of the best lines for these codes."""
    count = values.shape[2]
    sum_c, sum_v = codes.sum(2, keepdim=True), values.sum(2, keepdim=True)
    sum_cc = codes.square().sum(2, keepdim=True)
    sum_cv = (codes * values).sum(2, keepdim=True)
    scales = _divided(count * sum_cv - sum_c * sum_v, count * sum_cc - sum_c.square())
    offsets = (sum_v - scales * sum_c) / count
    is_free = offsets <= 0
    scales = torch.where(is_free, scales, _divided(sum_cv, sum_cc)).clamp_(min=0)
    offsets = torch.where(is_free, offsets, 0.0)
    errors = (codes * scales).add_(offsets).sub_(values).square_().sum(2, keepdim=True)
    return scales, offsets, errors


def _keep_better(
    best: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    is_better = other[2] < best[2]
    scales, offsets, errors = (
        torch.where(is_better, new, old) for new, old in zip(other, best, strict=True)
    )
    return scales, offsets, errors


def _in_units(scales: Tensor, minimums: Tensor) -> _Lines:
    """Return the lines in units by which the largest scale and minimum are the last integers."""
    unit = _as_float16(scales.amax(1, keepdim=True) / _Q4_LAST_SCALE)
    other = _as_float16(minimums.amax(1, keepdim=True) / _Q4_LAST_SCALE)
    return _Lines(unit, other, _as_integers(scales, unit), _as_integers(minimums, other))


def _as_integers(scales: Tensor, unit: Tensor) -> Tensor:
    return _divided(scales, unit).round().clamp(0, _Q4_LAST_SCALE)


def _tried(values: Tensor, lines: _Lines, moves: list[tuple[int, int]]) -> _Coded:
    """Return the best of each group's integers after moving them a little."""
    best_scales, best_minimums = lines.scales, lines.minimums
    best_errors = torch.full_like(lines.scales, torch.inf)
    for scale_by, minimum_by in moves:
        scales = (lines.scales + scale_by).clamp(0, _Q4_LAST_SCALE)
        minimums = (lines.minimums + minimum_by).clamp(0, _Q4_LAST_SCALE)
        errors = _nearest_codes(values, _Lines(lines.unit, lines.other, scales, minimums))[1]
        is_better = errors < best_errors
        best_scales = torch.where(is_better, scales, best_scales)
        best_minimums = torch.where(is_better, minimums, best_minimums)
        best_errors = torch.where(is_better, errors, best_errors)
    found = _Lines(lines.unit, lines.other, best_scales, best_minimums)
    return _Coded(found, _nearest_codes(values, found)[0], best_errors.sum(1))


def _nearest_codes(values: Tensor, lines: _Lines) -> tuple[Tensor, Tensor]:
    """Return the codes [N, G, V] nearest to values, and the squared error of each group [N, G]."""
    scales = (lines.unit * lines.scales)[:, :, None]
    offsets = -(lines.other * lines.minimums)[:, :, None]
    codes = _line_codes(values, scales, offsets)
    return codes, (codes * scales).add_(offsets).sub_(values).square_().sum(2)


def _with_best_units(values: Tensor, coded: _Coded) -> _Lines:
    """Return the lines in the units that are best for these integers and codes."""
    lines = coded.lines
    products = (lines.scales[:, :, None] * coded.codes).flatten(1)
    minimums = lines.minimums[:, :, None].expand_as(values).flatten(1)
    flat = values.flatten(1)

    def dot(left: Tensor, right: Tensor) -> Tensor:
        return (left * right).sum(1, keepdim=True)

    pp, pm, mm = dot(products, products), dot(products, minimums), dot(minimums, minimums)
    pv, mv = dot(products, flat), dot(minimums, flat)
    determinant = pp * mm - pm.square()
    has_both = determinant > 1e-6 * pp * mm
    unit = torch.where(has_both, _divided(pv * mm - mv * pm, determinant), _divided(pv, pp))
    other = torch.where(has_both, _divided(pv * pm - mv * pp, determinant), lines.other)
    return _Lines(
        _as_float16(unit.clamp(min=0)),
        _as_float16(other.clamp(min=0)),
        lines.scales,
        lines.minimums,
    )


def _better(best: _Coded, other: _Coded) -> _Coded:
    is_better = other.error < best.error
    rows = is_better[:, None]
    lines = _Lines(
        *(torch.where(rows, new, old) for new, old in zip(other.lines, best.lines, strict=True))
    )
    codes = torch.where(rows[:, :, None], other.codes, best.codes)
    return _Coded(lines, codes, torch.minimum(best.error, other.error))


def _fit_scales(values: Tensor) -> Tensor:
    """Return the scale [N, G] of each group's best line through zero."""
    peaks = values.gather(2, values.abs().argmax(2, keepdim=True))
    best_scales = peaks / _Q6_LOWEST
    best_gains = torch.zeros_like(peaks)  # how much smaller the error is than that of zeros
    for spread in _Q6_SPREADS:
        codes = _codes_around_zero(values, peaks / -spread)
        products = (codes * values).sum(2, keepdim=True)
        squares = codes.square().sum(2, keepdim=True)
        scales = _divided(products, squares)
        gains = products * scales
        best_scales = torch.where(gains > best_gains, scales, best_scales)
        best_gains = torch.maximum(gains, best_gains)
    return best_scales.squeeze(2)


def _codes_around_zero(values: Tensor, scales: Tensor) -> Tensor:
    return (values * _inverse(scales)).round_().clamp_(_Q6_LOWEST, _Q6_LAST)


def _nearest_integers(
    values: Tensor, unit: Tensor, integers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best integers near these, with codes [N, G, V] and errors [N]."""
    best, best_errors = integers, torch.full_like(integers, torch.inf)
    for move in (0, -1, 1):
        moved = (integers + move).clamp(-_Q6_LAST_SCALE - 1, _Q6_LAST_SCALE)
        scales = (unit * moved)[:, :, None]
        codes = _codes_around_zero(values, scales)
        errors = (codes * scales).sub_(values).square_().sum(2)
        is_better = errors < best_errors
        best = torch.where(is_better, moved, best)
        best_errors = torch.where(is_better, errors, best_errors)
    codes = _codes_around_zero(values, (unit * best)[:, :, None])
    return best, codes, best_errors.sum(1)


def _as_float16(units: Tensor) -> Tensor:
    """Return units as float16 holds them, in float32."""
    if (units.abs() > _LARGEST_FLOAT16).any():
        raise ValueError("some are too large")
    return units.half().float()


def _divided(values: Tensor, by: Tensor) -> Tensor:
    """Return the quotient, and zero where it is divided by zero."""
    return torch.where(by == 0, 0.0, values / by)


def _inverse(scales: Tensor) -> Tensor:
    """Return the inverse, and zero of what is too small for a scale, or for an inverse."""
    return torch.where(scales.abs() < _SMALLEST, 0.0, 1 / scales)


def _pack_six_bits(scales: Tensor, minimums: Tensor) -> Tensor:
    """Return the twelve bytes of eight scales and minimums, as `ops.gguf_blocks` reads them."""
    first, second = scales[:, :4], scales[:, 4:]
    first_minimums, second_minimums = minimums[:, :4], minimums[:, 4:]
    return torch.cat(
        [
            first | second >> 4 << 6,
            first_minimums | second_minimums >> 4 << 6,
            second & 15 | (second_minimums & 15) << 4,
        ],
        1,
    )
