"""A model's config in the metadata of a GGUF file, checked by reading it back."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from inferno.config.decoder import DecoderConfig
from inferno.config.families import read_model_config
from inferno.config.rope import (
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    RopeConfig,
    YarnScaling,
)
from inferno.errors import ConfigError
from inferno.gguf.config import architecture_of, config_of, kind_for, sizes_of
from inferno.gguf.header import Value
from inferno.layers.rope import RotaryEmbedding, frequencies

_logger = logging.getLogger("inferno")
_BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}  # which need not be said
_CLOSE_FACTOR = 1e-5  # the same of a factor, of up to 32, that converters compute in float32
_CLOSE = 1e-6  # float32's rounding of a frequency and of what it is divided by


def kind_of_model(hf_config: Mapping[str, Any]) -> str:
    """Return the kind of file that a model becomes. Raises UnknownArchitecture."""
    return kind_for(str(hf_config["architectures"][0]))


def config_metadata(config: DecoderConfig, hf_config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the keys of an architecture, such as llama.block_count."""
    kind = kind_of_model(hf_config)
    name = architecture_of(kind)
    values = _values(config, hf_config)
    found: dict[str, Value] = {key: values[theirs] for key, theirs in sizes_of(kind).items()}
    found.setdefault("feed_forward_length", config.intermediate_size)
    found |= {
        "vocab_size": config.vocab_size,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
        **dict(_rope_scaling(config.rope)),
    }
    return {f"{name}.{key}": value for key, value in found.items()}


def rope_factors(config: DecoderConfig) -> tuple[float, ...] | None:
    """Return what each rotary frequency is divided by, where GGUF has a tensor for it."""
    match config.rope.scaling:
        case FactorScaling(factors=factors):
            return factors
        case Llama3Scaling():
            plain = frequencies(RopeConfig(config.rope.theta), config.head_dim).double()
            scaled = frequencies(config.rope, config.head_dim).double()
            return tuple((plain / scaled).tolist())
    return None


def llama3_section(config: DecoderConfig) -> dict[str, Any] | None:
    """Return rope_scaling by Llama 3's rule where it gives a file's factors; None for others.

    low_freq_factor and high_freq_factor are 1 and 4, as in all of Meta's models, and the original
    context is a power of two.
    """
    scaling = config.rope.scaling
    if not isinstance(scaling, FactorScaling):
        return None
    due = torch.tensor(scaling.factors, dtype=torch.float64)
    for power in range(1, max(config.max_model_len, 2).bit_length()):
        rule = Llama3Scaling(
            factor=max(scaling.factors),
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_positions=1 << power,
        )
        found = rope_factors(replace(config, rope=RopeConfig(config.rope.theta, rule)))
        if torch.allclose(torch.tensor(found, dtype=torch.float64), due, rtol=_CLOSE_FACTOR):
            return {
                "rope_type": "llama3",
                "factor": rule.factor,
                "low_freq_factor": rule.low_freq_factor,
                "high_freq_factor": rule.high_freq_factor,
                "original_max_position_embeddings": rule.original_max_positions,
            }
    return None


def check_config(
    metadata: Mapping[str, Value],
    tensor_names: Sequence[str],
    config: DecoderConfig,
    factors: Sequence[float] | None,
) -> None:
    """Refuse a config of which the metadata says something else, once it is read back.

    Raises ConfigError, which names the key.
    """
    words = config_of(metadata, tensor_names, stored="F32", rope_factors=factors)
    found = _comparable(read_model_config(words))
    due = _comparable(config)
    for one in fields(DecoderConfig):
        ours, theirs = getattr(due, one.name), getattr(found, one.name)
        if one.name != "rope" and ours != theirs:
            raise _cannot_say(one.name, ours, theirs)
    if not _is_same_rotation(config, found):
        raise _cannot_say("rope_scaling", config.rope, found.rope)


def _cannot_say(name: str, ours: object, theirs: object) -> ConfigError:
    return ConfigError(
        f"a GGUF file can't say this model's {name}: it is {ours!s:.200}, and would be read as "
        f"{theirs!s:.200}; use the model as it is"
    )


def _values(config: DecoderConfig, hf_config: Mapping[str, Any]) -> dict[str, Value]:
    """Return sizes by config.json's names, defaults included."""
    values: dict[str, Value] = {
        "max_position_embeddings": int(hf_config["max_position_embeddings"]),
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope.theta,
        "sliding_window": max((window or 0 for window in config.windows), default=0),
    }
    if config.mixture is not None:
        values |= {
            "num_experts": config.mixture.num_experts,
            "num_local_experts": config.mixture.num_experts,
            "num_experts_per_tok": config.mixture.num_chosen,
            "moe_intermediate_size": config.mixture.size,
        }
    return values


def _rope_scaling(rope: RopeConfig) -> Iterator[tuple[str, Value]]:
    match rope.scaling:
        case LinearScaling(factor=factor):
            yield "rope.scaling.type", "linear"
            yield "rope.scaling.factor", factor
        case YarnScaling() as scaling:
            yield "rope.scaling.type", "yarn"
            yield "rope.scaling.factor", scaling.factor
            yield "rope.scaling.original_context_length", scaling.original_max_positions
            for name, usual in _BETAS.items():
                if getattr(scaling, name) != usual:
                    _logger.warning(
                        "llama.cpp doesn't read a file's YaRN %s: it takes %g for %g, so its "
                        "positions differ; inferno reads it",
                        *(name, usual, getattr(scaling, name)),
                    )
                    yield f"rope.scaling.yarn_{name}", getattr(scaling, name)


def _comparable(config: DecoderConfig) -> DecoderConfig:
    """Return what two configs must agree on: what they compute, not how checkpoints hold it."""
    windows = (
        window if window and window < config.max_model_len else None for window in config.windows
    )
    mixture = config.mixture
    if mixture is not None:
        mixture = replace(mixture, format=None, is_apart=False)
    return replace(
        config,
        rms_norm_eps=_as_float32(config.rms_norm_eps),
        windows=tuple(windows),
        mixture=mixture,
    )


def _is_same_rotation(config: DecoderConfig, other: DecoderConfig) -> bool:
    ours, theirs = (frequencies(one.rope, config.head_dim) for one in (config, other))
    factors = [
        RotaryEmbedding(one.rope, config.head_dim).attention_factor for one in (config, other)
    ]
    is_same_factor = abs(factors[0] - factors[1]) <= _CLOSE * abs(factors[0])
    return is_same_factor and torch.allclose(ours, theirs, rtol=_CLOSE, atol=0)


def _as_float32(value: float) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return number
