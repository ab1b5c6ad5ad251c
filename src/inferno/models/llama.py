"""Llama 2 and 3, and what shares its maths, such as TinyLlama."""

from __future__ import annotations

from inferno.models.common import build, fused_weights
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.windows import num_layers, refuse_windows

__all__ = ["build", "fused_weights", "read_config"]


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a LlamaForCausalLM config.json: attention biases on all products or none, no windows."""
    config.must_be("rope_interleaved", False)
    refuse_windows(config)
    has_bias = config.boolean("attention_bias", False)
    return read_decoder(
        config,
        windows=(None,) * num_layers(config),
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=config.boolean("mlp_bias", False),
    )
