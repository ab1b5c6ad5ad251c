"""config.json read a second time, plainly, and the rotary angles that follow from it.

So a mistake in models/ or layers/ does not hide here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The value of a key that config.json leaves out, by architecture.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"num_key_value_heads": 8},
    "MixtralForCausalLM": {
        "num_key_value_heads": 8,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-5,
        "norm_topk_prob": True,
    },
    "Qwen2ForCausalLM": {"num_key_value_heads": 32},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "head_dim": 128},
    "Qwen3MoeForCausalLM": {"num_key_value_heads": 4},
    "GptOssForCausalLM": {
        "num_key_value_heads": 8,
        "head_dim": 64,
        "rope_theta": 150000.0,
        "rms_norm_eps": 1e-5,
        "norm_topk_prob": True,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainConfig:
    """The settings of the plain forward pass, but for those that tensors tell (biases, norms).

    windows  of each layer: how many positions a token sees, itself included; None: all.
    rope     the section that describes the rotation, rope_theta included.
    experts_per_token, renormalize  of a mixture; swiglu_alpha, swiglu_limit: of gpt-oss's experts.
    """

    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    windows: tuple[int | None, ...]
    rope: Mapping[str, Any]
    max_positions: int
    tied: bool
    experts_per_token: int
    renormalize: bool
    swiglu_alpha: float
    swiglu_limit: float | None


def read_plain_config(config: Mapping[str, Any]) -> PlainConfig:
    """Read a config that the engine has accepted, so what is read is there and sound."""
    architecture = next(name for name in config["architectures"] if name in _DEFAULTS)
    values = {**_DEFAULTS[architecture], **_present(config)}
    heads = values["num_attention_heads"]
    return PlainConfig(
        architecture=architecture,
        num_layers=values["num_hidden_layers"],
        hidden_size=values["hidden_size"],
        num_heads=heads,
        num_kv_heads=values.get("num_key_value_heads", heads),
        head_dim=values.get("head_dim", values["hidden_size"] // heads),
        eps=values.get("rms_norm_eps", 1e-6),
        windows=_windows(architecture, config),
        rope=_rope(values),
        max_positions=values["max_position_embeddings"],
        tied=values.get("tie_word_embeddings", False),
        experts_per_token=values.get("num_experts_per_tok", values.get("experts_per_token", 0)),
        renormalize=values.get("norm_topk_prob", False),
        swiglu_alpha=values.get("swiglu_alpha", 1.0),
        swiglu_limit=values.get("swiglu_limit"),
    )


def _present(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if value is not None}


def _rope(values: Mapping[str, Any]) -> dict[str, Any]:
    outer = ("rope_theta", "original_max_position_embeddings")
    section = values.get("rope_scaling") or values.get("rope_parameters") or {}
    return {
        "rope_theta": 10000.0,
        **{key: values[key] for key in outer if key in values},
        **_present(section),
    }


def _windows(architecture: str, config: Mapping[str, Any]) -> tuple[int | None, ...]:
    layers = range(config["num_hidden_layers"])
    if architecture == "GptOssForCausalLM":
        usual = ["sliding_attention" if layer % 2 == 0 else "full_attention" for layer in layers]
        return _by_kind(config.get("layer_types") or usual, config.get("sliding_window", 128))
    if architecture == "MixtralForCausalLM":
        return (config.get("sliding_window"),) * len(layers)
    if architecture == "MistralForCausalLM":
        return (config.get("sliding_window", 4096),) * len(layers)
    if not config.get("use_sliding_window"):
        return (None,) * len(layers)
    window = config.get("sliding_window", 4096)
    if kinds := config.get("layer_types"):
        return _by_kind(kinds, window)
    first = config.get("max_window_layers", 28)
    return tuple(window if layer >= first else None for layer in layers)


def _by_kind(kinds: Sequence[str], window: int | None) -> tuple[int | None, ...]:
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def plain_cos_sin(
    config: PlainConfig, positions: Tensor, *, dtype: torch.dtype = torch.float32, **changes: Any
) -> Tensor:
    """Return D/2 cosines, then D/2 sines, of each position: [T, D]; changes are to the section."""
    rope = {**config.rope, **changes}
    frequencies, magnitude = _frequencies(rope, config, dtype)
    angles = positions.to(dtype)[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1) * magnitude


def _frequencies(
    rope: Mapping[str, Any], config: PlainConfig, dtype: torch.dtype
) -> tuple[Tensor, float]:
    """Return each pair's radians per position, and the factor of cosines and sines."""
    size = config.head_dim
    base = rope["rope_theta"] ** (torch.arange(0, size, 2, dtype=dtype) / size)
    match rope.get("rope_type", rope.get("type", "default")):
        case "linear":
            return 1.0 / (rope["factor"] * base), 1.0
        case "factors":  # a GGUF file's rope_freqs.weight
            return 1.0 / (torch.tensor(rope["factors"], dtype=dtype) * base), 1.0
        case "llama3":
            return _llama3(1.0 / base, rope, config), 1.0
        case "yarn":
            return _yarn(base, rope, config)
    return 1.0 / base, 1.0


def _llama3(plain: Tensor, rope: Mapping[str, Any], config: PlainConfig) -> Tensor:
    """Stretch wavelengths over original / low, and keep those under original / high."""
    original = rope.get("original_max_position_embeddings", config.max_positions)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    wavelengths = 2 * math.pi / plain
    smooth = (original / wavelengths - low) / (high - low)
    between = (1 - smooth) * plain / factor + smooth * plain
    result = torch.where(wavelengths > original / low, plain / factor, plain)
    is_between = (wavelengths <= original / low) & (wavelengths >= original / high)
    return torch.where(is_between, between, result)


def _yarn(base: Tensor, rope: Mapping[str, Any], config: PlainConfig) -> tuple[Tensor, float]:
    size, theta = config.head_dim, rope["rope_theta"]
    original = rope.get("original_max_position_embeddings", config.max_positions)
    factor = rope.get("factor", config.max_positions / original)

    def pair_of(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_of(rope.get("beta_fast", 32)), pair_of(rope.get("beta_slow", 1))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    pairs = torch.arange(size // 2, dtype=base.dtype)
    ramp = ((pairs - low) / ((high - low) or 0.001)).clamp(0, 1)
    frequencies = (1 / (factor * base)) * ramp + (1 / base) * (1 - ramp)
    return frequencies, _magnitude(rope, factor)


def _magnitude(rope: Mapping[str, Any], factor: float) -> float:
    if "attention_factor" in rope:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return _temperature(factor, rope["mscale"]) / _temperature(factor, rope["mscale_all_dim"])
    return _temperature(factor, 1.0)


def _temperature(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
