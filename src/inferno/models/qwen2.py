"""Qwen2 and Qwen2.5: Llama's maths with biases on q, k and v (arXiv:2407.10671)."""

from __future__ import annotations

from inferno.models.common import build, fused_weights
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.windows import read_layer_windows

__all__ = ["build", "fused_weights", "read_config"]


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a Qwen2ForCausalLM config.json; num_key_value_heads is 32 where it isn't given."""
    config.must_be("use_mrope", False)
    config.must_be("attention_bias", True, False)  # q, k and v have biases whatever it says
    windows = read_layer_windows(config)
    return read_decoder(config, windows=windows, num_kv_heads=32, qkv_bias=True)
