"""Qwen3 with mixtures of experts, such as 30B-A3B: Qwen3's attention (arXiv:2505.09388)."""

from __future__ import annotations

from dataclasses import replace

from inferno.layers.decoder import CausalLM
from inferno.layers.moe import MixtureConfig
from inferno.models import common, qwen3
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.mixture import experts_apart, feed_forward, read_num_chosen, read_num_experts
from inferno.models.windows import num_layers, read_layer_windows, refuse_windows
from inferno.ops import PlainSwiGLU
from inferno.weights.pieces import FusedSpec, side_by_side


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a Qwen3MoeForCausalLM config.json; windows, which no model has, are refused."""
    refuse_windows(config)
    has_bias = config.boolean("attention_bias", False)
    decoder = read_decoder(
        config,
        windows=read_layer_windows(config),
        num_kv_heads=4,
        qkv_bias=has_bias,
        output_bias=has_bias,
    )
    return replace(decoder, mixture=_read_mixture(config))


def _read_mixture(config: ConfigReader) -> MixtureConfig:
    """Read the mixtures: every decoder_sparse_step-th layer has one, but for mlp_only_layers."""
    count = num_layers(config)
    step, dense = config.integer("decoder_sparse_step", 1), config.integers("mlp_only_layers")
    num_experts = read_num_experts(config, count)
    return MixtureConfig(
        layers=tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(count)),
        num_experts=num_experts,
        num_chosen=read_num_chosen(config, num_experts),
        size=config.integer("moe_intermediate_size"),
        renormalize=config.boolean("norm_topk_prob", False),
        activation=PlainSwiGLU(),
    )


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters."""
    return common.build(config, qwen3.Attention, feed_forward)


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return where the checkpoint has other tensors than we: its experts' products are apart."""
    assert config.mixture is not None
    return {
        **common.fused_weights(config),
        **experts_apart(config),
        "mlp.router": side_by_side(("mlp.gate", config.mixture.num_experts)),
    }
