"""config.json: both generations are read, unknown keys refused, hostile values named."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from inferno.config.families import ARCHITECTURES, read_model_config
from inferno.config.reader import ConfigReader
from inferno.config.rope import LinearScaling, Llama3Scaling, RopeConfig, YarnScaling
from inferno.errors import ConfigError, UnknownArchitecture
from inferno.models import find_model
from tests.data import data_path

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def llama(**changes: Any) -> dict[str, Any]:
    return {**LLAMA, **changes}


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "Qwen3-8B", "TinyLlama-1.1B-Chat-v1.0"])
def test_real_configs_are_read(name: str) -> None:
    hf_config = json.loads(data_path("hf", name, "config.json").read_text())
    config = read_model_config(hf_config)
    assert config.hidden_size == hf_config["hidden_size"]
    assert config.num_layers == hf_config["num_hidden_layers"]
    assert config.rope.theta == hf_config["rope_theta"]
    assert config.head_dim == hf_config.get("head_dim", 64)


def test_unknown_keys_are_refused_and_named_unless_allowed() -> None:
    strange = llama(logit_softcap=30.0)
    with pytest.raises(ConfigError, match=r"logit_softcap.*--allow-unknown-config"):
        read_model_config(strange)
    assert read_model_config(strange, allow_unknown=True) == read_model_config(LLAMA)


def test_unknown_keys_of_rope_are_refused_too() -> None:
    strange = llama(rope_scaling={"rope_type": "linear", "factor": 2.0, "wobble": 1})
    with pytest.raises(ConfigError, match=r"rope_scaling\.wobble"):
        read_model_config(strange)


def test_inert_and_null_keys_are_harmless() -> None:
    assert read_model_config(llama(id2label={"0": "a"}, logit_softcap=None)) == read_model_config(
        LLAMA
    )


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["type", "rope_type"])
def test_rope_scaling_is_read_in_both_generations(key: str, kind: str) -> None:
    config = read_model_config(llama(rope_theta=5e5, **{key: {kind: "linear", "factor": 4}}))
    assert config.rope == RopeConfig(5e5, LinearScaling(factor=4.0))


def test_the_inner_theta_wins() -> None:
    config = read_model_config(
        llama(rope_theta=1e4, rope_parameters={"rope_type": "default", "rope_theta": 7e4})
    )
    assert config.rope == RopeConfig(7e4)


@pytest.mark.parametrize(
    "parameters",
    [
        # transformers reads rope_scaling alone, and its own default in place of this rope_theta.
        {"rope_type": "default", "rope_theta": 1e6},
        {"rope_type": "linear", "factor": 4, "rope_theta": 1e6},
        {"rope_type": "linear", "factor": 2},
    ],
)
def test_two_sections_of_rope_must_say_the_same(parameters: dict[str, object]) -> None:
    scaling = {"type": "linear", "factor": 4.0}
    with pytest.raises(ConfigError, match="rope_scaling and rope_parameters, which don't say"):
        read_model_config(llama(rope_scaling=scaling, rope_parameters=parameters))
    same = {"rope_type": "linear", "factor": 4, "rope_theta": 5e5}
    config = llama(rope_theta=5e5, rope_scaling=scaling, rope_parameters=same)
    assert read_model_config(config).rope == RopeConfig(5e5, LinearScaling(factor=4.0))


def test_original_context_defaults_to_the_context() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
    }
    rope = read_model_config(llama(rope_scaling=scaling)).rope
    assert isinstance(rope.scaling, Llama3Scaling)
    assert rope.scaling.original_max_positions == 128


def test_yarn_temperature_follows_the_paper() -> None:
    scaling = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}
    rope = read_model_config(llama(rope_scaling=scaling)).rope
    assert isinstance(rope.scaling, YarnScaling)
    assert rope.scaling.attention_factor == pytest.approx(1.1386294361)  # 0.1 ln 4 + 1


def test_a_part_of_yarns_temperature_is_not_read_as_by_transformers() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    part = {**scaling, "attn_factor": 0.8782488562869419}  # DeepSeek-R1-0528-Qwen3-8B's
    ours = read_model_config(llama(rope_scaling=part)).rope.scaling
    assert isinstance(ours, YarnScaling)
    theirs = LlamaConfig(**llama(rope_scaling=part))
    _, due = ROPE_INIT_FUNCTIONS["yarn"](theirs, torch.device("cpu"))
    assert ours.attention_factor == pytest.approx(due)


def test_yarn_stretches_the_context() -> None:
    scaling = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128}
    assert read_model_config(llama(rope_scaling=scaling)).max_model_len == 512


@pytest.mark.parametrize(
    "changes",
    [
        {"is_llama_config": True},
        {"use_sliding_window": False},
        {"layer_types": ["full_attention"] * 2},
        {"max_sequence_length": 128, "neftune_noise_alpha": 5},
        {"architectures": ["Qwen2ForCausalLM"], "attention_bias": False},
        {"architectures": ["MistralForCausalLM"], "attention_bias": False},
    ],
)
def test_harmless_keys_of_published_checkpoints_are_accepted(changes: dict[str, Any]) -> None:
    assert read_model_config(llama(**changes))


QWEN3_CODER = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "qkv_bias": False,
    "shared_expert_intermediate_size": 0,
    "use_qk_norm": True,
}


def test_qwen3_coders_keys_are_accepted_at_its_values_alone() -> None:
    assert read_model_config(llama(**QWEN3_CODER)).mixture
    for key, other in (
        ("qkv_bias", True),
        ("shared_expert_intermediate_size", 64),
        ("use_qk_norm", False),
    ):
        with pytest.raises(ConfigError, match=key):
            read_model_config(llama(**{**QWEN3_CODER, key: other}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_sliding_window": True}, "use_sliding_window"),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "layer_types": ["full_attention", "sliding_attention"],
            },
            "sliding_window",
        ),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        (
            {"architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"] * 3},
            "layer_types",
        ),
        ({"rope_scaling": {"rope_type": "yarn", "mscale": -0.5}}, "mscale"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type"),
        ({"rope_scaling": {"type": "longrope"}}, "type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 2**40}, "vocab_size"),
        ({"vocab_size": 10**5000}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": "100"}, "vocab_size"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"hidden_size": None}, "hidden_size"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"rms_norm_eps": [1e-5]}, "rms_norm_eps"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"sliding_window": 64}, "sliding_window"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"load_in_4bit": True}}, "load_in_4bit"),
        ({"compression_config": {"format": "float-quantized"}}, "compression_config"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_model_config(llama(**changes))


def test_more_rows_than_torch_can_count_are_refused() -> None:
    heads = dict.fromkeys(("num_attention_heads", "num_key_value_heads", "head_dim"), 2**31 - 2)
    changed = llama(**heads)
    config = read_model_config(changed)
    with torch.device("meta"), pytest.raises(ConfigError, match="too large"):
        find_model(changed).build(config)


@pytest.mark.parametrize("architectures", [None, [], "LlamaForCausalLM", [3], {"a": 1}])
def test_a_config_without_architecture_is_refused(architectures: object) -> None:
    with pytest.raises(ConfigError, match="architectures"):
        find_model({"architectures": architectures})


def test_an_unknown_architecture_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownArchitecture) as problem:
        find_model({"architectures": ["GPT9ForCausalLM"]})
    assert "GPT9ForCausalLM" in str(problem.value)
    assert all(name in str(problem.value) for name in ARCHITECTURES)


def test_a_reader_remembers_what_was_read() -> None:
    reader = ConfigReader({"a": 1, "b": 2})
    assert reader.integer("a") == 1
    with pytest.raises(ConfigError, match="b"):
        reader.refuse_unread(inert=frozenset())
    reader.refuse_unread(inert=frozenset({"b"}))
