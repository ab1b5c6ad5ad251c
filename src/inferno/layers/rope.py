"""Compute rotary position embedding (arXiv:2104.09864): frequencies, scalings, a step's angles."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.config.rope import (
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    RopeConfig,
    YarnScaling,
)


class RotaryEmbedding(nn.Module):
    """A map of positions_T int64 to float32 cos_sin_TD: head_dim/2 cosines, then as many sines."""

    frequencies: Tensor

    def __init__(self, config: RopeConfig, head_dim: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies(config, head_dim), persistent=False)
        scaling = config.scaling
        self.attention_factor = (
            scaling.attention_factor if isinstance(scaling, YarnScaling) else 1.0
        )

    def forward(self, positions_T: Tensor) -> Tensor:
        return ops.cos_sin(positions_T, self.frequencies, self.attention_factor)


def frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    """Return [head_dim / 2] float32: radians per position of each pair, from fast to slow."""
    # The device is named because models are built under torch.device("meta").
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    plain = 1.0 / config.theta**exponents
    match config.scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case FactorScaling(factors=factors):
            return plain / torch.tensor(factors, dtype=torch.float32, device="cpu")
        case Llama3Scaling():
            return _llama3(plain, config.scaling)
        case YarnScaling():
            return _yarn(plain, config.scaling, config.theta)


def _llama3(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    turns = scaling.original_max_positions * plain / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0, 1)
    return plain * kept + plain / scaling.factor * (1 - kept)


def _yarn(plain: Tensor, scaling: YarnScaling, theta: float) -> Tensor:
    head_dim = 2 * len(plain)

    def dimension_of(num_turns: float) -> float:
        """Return the pair, as a real number, that turns so often over the original context."""
        turns = scaling.original_max_positions / (num_turns * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # no division by zero; the published code's value
    ramp = (torch.arange(len(plain), dtype=torch.float32, device="cpu") - low) / (high - low)
    stretched = ramp.clamp(0, 1)
    return plain / scaling.factor * stretched + plain * (1 - stretched)
