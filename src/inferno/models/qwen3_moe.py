"""Qwen3 with mixtures of experts, such as 30B-A3B: Qwen3's attention (arXiv:2505.09388)."""

from __future__ import annotations

from inferno.config.decoder import DecoderConfig
from inferno.layers.decoder import CausalLM
from inferno.models import common, qwen3
from inferno.models.mixture import experts_apart, feed_forward
from inferno.weights.pieces import FusedSpec, side_by_side


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters."""
    return common.build(config, qwen3.Attention, feed_forward)


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return how parameters differ from a checkpoint's tensors, where experts are apart."""
    assert config.mixture is not None
    return {
        **common.fused_weights(config),
        **experts_apart(config),
        "mlp.router": side_by_side(("mlp.gate", config.mixture.num_experts)),
    }
