"""Mixtral: Llama's attention, and a mixture of experts in every layer (arXiv:2401.04088)."""

from __future__ import annotations

from dataclasses import replace

from inferno.layers.decoder import CausalLM
from inferno.layers.moe import MixtureConfig
from inferno.models import common
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.mixture import feed_forward, read_num_chosen, read_num_experts
from inferno.models.windows import num_layers
from inferno.ops import PlainSwiGLU
from inferno.weights.pieces import FusedSpec, side_by_side, stacked


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a MixtralForCausalLM config.json; a sliding_window holds in all layers."""
    config.must_be("attention_bias", False)
    count = num_layers(config)
    decoder = read_decoder(
        config,
        windows=(config.optional_integer("sliding_window"),) * count,
        num_kv_heads=8,
        rope_theta=1e6,
        rms_norm_eps=1e-5,
    )
    num_experts = read_num_experts(config, count)
    mixture = MixtureConfig(
        layers=(True,) * count,
        num_experts=num_experts,
        num_chosen=read_num_chosen(config, num_experts),
        size=decoder.intermediate_size,
        renormalize=True,
        activation=PlainSwiGLU(),
    )
    return replace(decoder, mixture=mixture)


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters."""
    return common.build(config, mlp=feed_forward)


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return where the checkpoint has other tensors than we; w1, w3, w2 are gate, up, down."""
    assert config.mixture is not None
    count, ffn_rows, block = config.mixture.num_experts, config.mixture.size, "block_sparse_moe"
    return {
        "qkv_proj": common.fused_weights(config)["qkv_proj"],
        "mlp.router": side_by_side((f"{block}.gate", count)),
        "mlp.experts.gate_up_proj.weight": stacked(
            count,
            (f"{block}.experts.{{}}.w1.weight", ffn_rows),
            (f"{block}.experts.{{}}.w3.weight", ffn_rows),
        ),
        "mlp.experts.down_proj.weight": stacked(
            count, (f"{block}.experts.{{}}.w2.weight", config.hidden_size)
        ),
    }
