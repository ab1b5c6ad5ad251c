"""Read config.json of gpt-oss: alternating windows, YaRN, and experts that may be packed."""

from __future__ import annotations

import re
from dataclasses import replace

from inferno.config.decoder import DecoderConfig, read_decoder
from inferno.config.mixture import (
    ClampedSwiGLU,
    MixtureConfig,
    read_num_chosen,
    read_num_experts,
)
from inferno.config.reader import ConfigReader
from inferno.config.rope import YarnScaling
from inferno.config.windows import num_layers, windows_of
from inferno.errors import ConfigError
from inferno.quantization import BLOCKS_OF_GGUF, MXFP4, PACKED_HERE

# Modules that MXFP4 checkpoints may name as left in floats: everything but the experts.
_NEVER_PACKED = re.compile(
    r"(model\.)?(embed_tokens|norm|layers\.(\*|\d+)\.(self_attn|mlp\.router|\w+_layernorm)(\..+)?)"
    r"|lm_head"
)
# Where each expert's gate, up and down are tensors of their own.
_APART = (BLOCKS_OF_GGUF, PACKED_HERE)


def read_gpt_oss(config: ConfigReader) -> DecoderConfig:
    """Read a GptOssForCausalLM config.json; without layer_types every other layer has a window."""
    count = num_layers(config)
    window = config.optional_integer("sliding_window", 128)
    kinds = config.texts("layer_types")
    alternating = ("sliding_attention", "full_attention") * count
    has_bias = config.boolean("attention_bias", True)
    decoder = read_decoder(
        config,
        windows=windows_of(kinds or alternating[:count], count, window),
        num_kv_heads=8,
        head_dim=64,
        rope_theta=150000.0,
        rms_norm_eps=1e-5,
        qkv_bias=has_bias,
        output_bias=has_bias,
    )
    _check_context(config, decoder)
    return replace(decoder, mixture=_read_mixture(config, decoder), has_sinks=True)


def _check_context(config: ConfigReader, decoder: DecoderConfig) -> None:
    """Check YaRN's numbers: the model was trained with it, so they can't be missing."""
    initial, scaling = config.optional_integer("initial_context_length"), decoder.rope.scaling
    if config.section("rope_scaling", "rope_parameters") is None:
        raise ConfigError("config.json lacks rope_scaling, which this model needs")
    if isinstance(scaling, YarnScaling) and initial not in (None, scaling.original_max_positions):
        raise ConfigError(
            f"config.json: initial_context_length ({initial}) and rope_scaling's "
            f"original_max_position_embeddings ({scaling.original_max_positions}) must be equal"
        )


def _read_mixture(config: ConfigReader, decoder: DecoderConfig) -> MixtureConfig:
    num_experts = read_num_experts(config, decoder.num_layers)
    method = _read_method(config)
    format = MXFP4 if method == "mxfp4" else None
    for name, size in (
        ("hidden_size", decoder.hidden_size),
        ("intermediate_size", decoder.intermediate_size),
    ):
        if format is not None and size % format.group:
            raise ConfigError(f"config.json: {name} ({size}) must be a multiple of 32 for MXFP4")
    return MixtureConfig(
        layers=(True,) * decoder.num_layers,
        num_experts=num_experts,
        num_chosen=read_num_chosen(config, num_experts),
        size=decoder.intermediate_size,
        renormalize=True,
        activation=ClampedSwiGLU(
            alpha=config.number("swiglu_alpha", 1.702), limit=config.number("swiglu_limit", 7.0)
        ),
        has_bias=True,
        format=format,
        is_apart=method in _APART,
    )


def _read_method(config: ConfigReader) -> str | None:
    """Return how experts are stored: as MXFP4, which nothing else is; apart; None: as floats."""
    section = config.section("quantization_config")
    if section is None:
        return None
    method = section.choice("quant_method", ("mxfp4", *_APART))
    section.must_be("dequantize", False)
    for name in section.texts("modules_to_not_convert") or ():
        if not _NEVER_PACKED.fullmatch(name):
            raise ConfigError(
                f"config.json: quantization_config.modules_to_not_convert names {name[:64]!r}; "
                f"inferno reads MXFP4 where all experts have it and nothing else"
            )
    section.refuse_unread(inert=frozenset())
    return method
