"""Rotary angles from config.json, written a second time; see plain_config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from inferno.verify.plain_config import PlainConfig


def plain_cos_sin(
    config: PlainConfig, positions: Tensor, *, dtype: torch.dtype = torch.float32, **changes: Any
) -> Tensor:
    """Return D/2 cosines, then D/2 sines, of each position: [T, D]; changes are to the section."""
    rope = {**config.rope, **changes}
    frequencies, magnitude = _frequencies(rope, config, dtype)
    angles = positions.to(dtype)[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1) * magnitude


def _frequencies(
    rope: Mapping[str, Any], config: PlainConfig, dtype: torch.dtype
) -> tuple[Tensor, float]:
    """Return each pair's radians per position, and the factor of cosines and sines."""
    size = config.head_dim
    base = rope["rope_theta"] ** (torch.arange(0, size, 2, dtype=dtype) / size)
    match rope.get("rope_type", rope.get("type", "default")):
        case "linear":
            return 1.0 / (rope["factor"] * base), 1.0
        case "llama3":
            return _llama3(1.0 / base, rope, config), 1.0
        case "yarn":
            return _yarn(base, rope, config)
    return 1.0 / base, 1.0


def _llama3(plain: Tensor, rope: Mapping[str, Any], config: PlainConfig) -> Tensor:
    """Stretch wavelengths over original / low, and keep those under original / high."""
    original = rope.get("original_max_position_embeddings", config.max_positions)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    wavelengths = 2 * math.pi / plain
    smooth = (original / wavelengths - low) / (high - low)
    between = (1 - smooth) * plain / factor + smooth * plain
    result = torch.where(wavelengths > original / low, plain / factor, plain)
    is_between = (wavelengths <= original / low) & (wavelengths >= original / high)
    return torch.where(is_between, between, result)


def _yarn(base: Tensor, rope: Mapping[str, Any], config: PlainConfig) -> tuple[Tensor, float]:
    size, theta = config.head_dim, rope["rope_theta"]
    original = rope.get("original_max_position_embeddings", config.max_positions)
    factor = rope.get("factor", config.max_positions / original)

    def pair_of(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_of(rope.get("beta_fast", 32)), pair_of(rope.get("beta_slow", 1))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    pairs = torch.arange(size // 2, dtype=base.dtype)
    ramp = ((pairs - low) / ((high - low) or 0.001)).clamp(0, 1)
    frequencies = (1 / (factor * base)) * ramp + (1 / base) * (1 - ramp)
    return frequencies, _magnitude(rope, factor)


def _magnitude(rope: Mapping[str, Any], factor: float) -> float:
    if "attention_factor" in rope:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return _temperature(factor, rope["mscale"]) / _temperature(factor, rope["mscale_all_dim"])
    return _temperature(factor, 1.0)


def _temperature(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
