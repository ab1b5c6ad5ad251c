"""Bound how quantized weights may differ from the files': by half a step, if scales fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_GROUP = 32
_HALF_STEP = 0.5001
_NOTHING = 1e-30  # as small may become zero


@dataclass(frozen=True, slots=True)
class _Format:
    """The limits of a packed type's steps.

    last        the last step that both signs have: what lies beyond may be cut off.
    cut_off     so many steps at most, where that leaves the smaller error in all.
    least_peak  the step of a group's largest value: less, and its scale is too large.
    """

    last: int
    cut_off: float
    least_peak: int


_FORMATS: Mapping[str, _Format] = {
    "int8": _Format(last=127, cut_off=0.5001, least_peak=100),
    "int4": _Format(last=7, cut_off=2.5, least_peak=5),
}


def far_off(found: Tensor, expected: Tensor, steps: Tensor, kind: str) -> Tensor:
    """Mark values farther from the file's than half a step, but for what is cut off."""
    format = _FORMATS[kind]
    is_last = found.abs() > (format.last - 0.5) * steps
    is_beyond = (expected.abs() > found.abs()) & (expected.signbit() == found.signbit())
    allowed = torch.where(is_last & is_beyond, format.cut_off, _HALF_STEP) * steps
    return ~((found - expected).abs() <= allowed.clamp(min=_NOTHING))


def num_coarse_groups(values: Tensor, steps: Tensor, kind: str) -> int:
    """Count groups of 32 on the last axis whose scale is too large, so that codes go unused."""
    peaks = _groups(values.abs()).amax(-1)
    least = _FORMATS[kind].least_peak * _groups(steps).amax(-1)
    return int((peaks < least).sum())


def _groups(x: Tensor) -> Tensor:
    filled = F.pad(x, (0, -x.shape[-1] % _GROUP))
    return filled.view(*filled.shape[:-1], -1, _GROUP)
