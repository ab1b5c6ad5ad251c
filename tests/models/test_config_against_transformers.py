"""What config.json leaves out, and windows by layer, mean what they mean to `transformers`."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from inferno.config.families import read_model_config
from inferno.errors import ConfigError
from inferno.layers.rope import RotaryEmbedding

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

# Every value differs from what its absence means, in every family.
COMMON: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 768,
    "intermediate_size": 80,
    "num_hidden_layers": 30,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 10,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
    "tie_word_embeddings": True,
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 3}
FULL: dict[str, dict[str, Any]] = {
    "llama": {**COMMON, "attention_bias": True, "mlp_bias": True},
    "mistral": {**COMMON, "sliding_window": 7},
    "qwen2": {**COMMON, **WINDOWS},
    "qwen3": {**COMMON, **WINDOWS, "attention_bias": True},
}
NEEDED = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
}


def ours(family: str, config: dict[str, Any]) -> dict[str, Any]:
    read = read_model_config({**config, "architectures": [ARCHITECTURES[family]]})
    rotary = RotaryEmbedding(read.rope, read.head_dim)
    return {
        "num_kv_heads": read.num_kv_heads,
        "head_dim": read.head_dim,
        "rms_norm_eps": read.rms_norm_eps,
        "tie_word_embeddings": read.tie_word_embeddings,
        "windows": read.windows,
        "biases": (read.qkv_bias, read.output_bias, read.mlp_bias),
        "frequencies": pytest.approx(rotary.frequencies.tolist()),
        "attention_factor": rotary.attention_factor,
    }


def theirs(family: str, config: dict[str, Any]) -> dict[str, Any]:
    """The same, of transformers' config and of the modules that its model makes of it."""
    read = AutoConfig.for_model(family, **copy.deepcopy(config))
    modeling = import_module(f"transformers.models.{family}.modeling_{family}")
    name = family.capitalize()
    with torch.device("meta"):
        attention = getattr(modeling, f"{name}Attention")(read, layer_idx=0)
        mlp = getattr(modeling, f"{name}MLP")(read)
    rotary = getattr(modeling, f"{name}RotaryEmbedding")(read)
    linears = (attention.q_proj, attention.o_proj, mlp.up_proj)
    return {
        "num_kv_heads": read.num_key_value_heads,
        "head_dim": attention.head_dim,
        "rms_norm_eps": read.rms_norm_eps,
        "tie_word_embeddings": read.tie_word_embeddings,
        "windows": windows_by_layer(family, read),
        "biases": tuple(linear.bias is not None for linear in linears),
        "frequencies": rotary.inv_freq.tolist(),
        "attention_factor": rotary.attention_scaling,
    }


def windows_by_layer(family: str, read: Any) -> tuple[int | None, ...]:
    if family == "llama":
        return (None,) * int(read.num_hidden_layers)
    if family == "mistral":
        return (read.sliding_window,) * int(read.num_hidden_layers)
    return tuple(
        read.sliding_window if kind == "sliding_attention" else None for kind in read.layer_types
    )


@pytest.mark.parametrize(
    ("family", "key"), [(family, key) for family in FULL for key in FULL[family]]
)
def test_a_missing_key_means_what_it_means_to_transformers(family: str, key: str) -> None:
    config = {**FULL[family]}
    del config[key]
    if key in NEEDED:
        with pytest.raises(ConfigError, match=key):
            ours(family, config)
    else:
        assert ours(family, config) == theirs(family, config)


@pytest.mark.parametrize("family", FULL)
def test_with_all_keys_or_none_of_the_optional_ones_the_meaning_is_the_same(family: str) -> None:
    assert ours(family, FULL[family]) == theirs(family, FULL[family])
    needed = {key: FULL[family][key] for key in NEEDED}
    assert ours(family, needed) == theirs(family, needed)


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("llama", "num_key_value_heads"),
        ("qwen2", "num_key_value_heads"),
        ("qwen3", "num_key_value_heads"),
        ("llama", "head_dim"),
        ("mistral", "head_dim"),
        ("mistral", "sliding_window"),
        ("qwen2", "sliding_window"),
        ("qwen3", "sliding_window"),
    ],
)
def test_null_means_what_it_means_to_transformers(family: str, key: str) -> None:
    config = {**FULL[family], key: None}
    assert ours(family, config) == theirs(family, config)


def test_a_null_number_of_key_heads_is_as_many_as_queries_have() -> None:
    # transformers 5 refuses null for Mistral; its older releases and its own code read it so.
    assert ours("mistral", {**FULL["mistral"], "num_key_value_heads": None})["num_kv_heads"] == 64


KINDS = st.sampled_from(["full_attention", "sliding_attention"])
QWEN_WINDOWS = st.fixed_dictionaries(
    {},
    optional={
        "use_sliding_window": st.booleans(),
        "sliding_window": st.one_of(st.none(), st.integers(1, 9)),
        "max_window_layers": st.integers(0, 6),
        "layer_types": st.one_of(st.none(), st.lists(KINDS, min_size=4, max_size=4)),
    },
)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@settings(deadline=None, max_examples=60)
@given(windows=QWEN_WINDOWS)
def test_each_layer_has_the_window_that_transformers_gives_it(
    family: str, windows: dict[str, Any]
) -> None:
    config = {**COMMON, "num_hidden_layers": 4, **windows}
    read = AutoConfig.for_model(family, **copy.deepcopy(config))
    if read.sliding_window is None and "sliding_attention" in read.layer_types:
        # transformers takes the config and fails when it makes the first mask.
        with pytest.raises(ConfigError, match="layer_types"):
            ours(family, config)
    else:
        assert ours(family, config)["windows"] == windows_by_layer(family, read)
