"""config.json read a second time, plainly, so that a mistake in models/ does not hide here too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a config without the key means, by architecture.
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
