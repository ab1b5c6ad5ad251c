"""Mistral: Llama's maths with a sliding window on every layer (arXiv:2310.06825)."""

from __future__ import annotations

from inferno.models.common import build, fused_weights
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.windows import num_layers

__all__ = ["build", "fused_weights", "read_config"]


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a MistralForCausalLM config.json: null means none, a missing key the first release's."""
    config.must_be("attention_bias", False)
    window = config.optional_integer("sliding_window", 4096)
    return read_decoder(config, windows=(window,) * num_layers(config), num_kv_heads=8)
