"""Build the common parts of mixture-of-experts models: a layer's modules, and their weights."""

from __future__ import annotations

from torch import nn

from inferno.config.decoder import DecoderConfig
from inferno.layers.moe import MixtureOfExperts
from inferno.models import common
from inferno.weights.pieces import FusedSpec, stacked


def experts_apart(config: DecoderConfig) -> FusedSpec:
    """Return the pieces of experts where a checkpoint holds each one's three products apart."""
    assert config.mixture is not None
    count, ffn_rows = config.mixture.num_experts, config.mixture.size
    return {
        "experts.gate_up_proj": stacked(
            count, ("experts.{}.gate_proj", ffn_rows), ("experts.{}.up_proj", ffn_rows)
        ),
        "experts.down_proj": stacked(count, ("experts.{}.down_proj", config.hidden_size)),
    }


def feed_forward(config: DecoderConfig, layer: int) -> nn.Module:
    """Build a mixture of experts in the layers that have one, else a single network."""
    assert config.mixture is not None, "the function that reads such a config sets it"
    if config.mixture.layers[layer]:
        return MixtureOfExperts(config.mixture, config.hidden_size)
    return common.feed_forward(config, layer)
