"""What configs of models with experts leave out means what it means to `transformers`; refusals."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inferno.config.families import read_model_config
from inferno.engine.build import build_engine
from inferno.errors import ConfigError, WeightsMismatch
from inferno.models import find_model
from inferno.ops import ClampedSwiGLU
from inferno.options import EngineOptions
from inferno.quantization import MXFP4
from tests.mxfp4 import QUANTIZATION, save_tiny_mxfp4
from tests.tiny import edit_config, save_tiny

# What a config may leave out

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 512,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 256,
    "num_experts_per_tok": 2,
}
FULL: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        "num_experts": 6,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "attention_bias": True,
    },
    "mixtral": {"num_local_experts": 6, "sliding_window": 9},
    "gpt_oss": {
        "num_local_experts": 6,
        "sliding_window": 9,
        "attention_bias": False,
        "swiglu_alpha": 1.5,
        "swiglu_limit": 6.0,
        "layer_types": ["full_attention"] * 3 + ["sliding_attention"],
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 3e4},
    },
}
COMMON: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 10,
    "rms_norm_eps": 1e-3,
    "rope_theta": 5e5,
    "tie_word_embeddings": True,
}
NEEDED = {"num_experts", "num_local_experts", "moe_intermediate_size", "rope_scaling"}
ARCHITECTURES = {
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}


def ours(family: str, config: dict[str, Any]) -> dict[str, Any]:
    read = read_model_config({**config, "architectures": [ARCHITECTURES[family]]})
    mixture = read.mixture
    assert mixture is not None
    found = {
        "num_kv_heads": read.num_kv_heads,
        "head_dim": read.head_dim,
        "eps": read.rms_norm_eps,
        "theta": read.rope.theta,
        "tied": read.tie_word_embeddings,
        "windows": read.windows,
        "bias": (read.qkv_bias, read.output_bias),
        "layers": mixture.layers,
        "renormalize": mixture.renormalize,
    }
    if isinstance(mixture.activation, ClampedSwiGLU):
        found["activation"] = (mixture.activation.alpha, mixture.activation.limit)
    return found


def theirs(family: str, config: dict[str, Any]) -> dict[str, Any]:
    read = AutoConfig.for_model(family, **copy.deepcopy(config))
    with torch.device("meta"):
        layers = AutoModelForCausalLM.from_config(read).model.layers
    attention = layers[0].self_attn
    kinds = getattr(read, "layer_types", None) or ["sliding_attention"] * len(layers)
    found = {
        "num_kv_heads": read.num_key_value_heads,
        "head_dim": attention.head_dim,
        "eps": read.rms_norm_eps,
        "theta": read.rope_parameters["rope_theta"],
        "tied": read.tie_word_embeddings,
        "windows": tuple(
            read.sliding_window if kind == "sliding_attention" else None for kind in kinds
        ),
        "bias": (attention.q_proj.bias is not None, attention.o_proj.bias is not None),
        "layers": tuple(hasattr(layer.mlp, "experts") for layer in layers),
        "renormalize": getattr(read, "norm_topk_prob", True),
    }
    if family == "gpt_oss":
        experts = layers[0].mlp.experts
        found["activation"] = (experts.alpha, experts.limit)
    return found


@pytest.mark.parametrize(
    ("family", "key"), [(family, key) for family in FULL for key in [*COMMON, *FULL[family]]]
)
def test_a_missing_key_means_what_it_means_to_transformers(family: str, key: str) -> None:
    config = {**SIZES, **COMMON, **FULL[family]}
    assert ours(family, config) == theirs(family, config)
    del config[key]
    if key in NEEDED:
        with pytest.raises(ConfigError, match="needs"):
            ours(family, config)
    else:
        assert ours(family, config) == theirs(family, config)


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
@pytest.mark.parametrize("family", FULL)
def test_the_number_of_experts_has_two_names(family: str, key: str) -> None:
    config = {**SIZES, **FULL[family]}
    number = config.pop("num_experts", None) or config.pop("num_local_experts")
    config |= {key: number, "experts_per_token": config["num_experts_per_tok"]}
    assert ours(family, config)


# What is refused

GPT_OSS = {**SIZES, **COMMON, **FULL["gpt_oss"], "architectures": ["GptOssForCausalLM"]}
QWEN_MOE = {**SIZES, **COMMON, **FULL["qwen3_moe"], "architectures": ["Qwen3MoeForCausalLM"]}


def packed(**changes: Any) -> dict[str, Any]:
    return {"quantization_config": {**QUANTIZATION, **changes}}


@pytest.mark.parametrize(
    ("base", "changes", "named"),
    [
        (GPT_OSS, {"num_local_experts": 2**31 - 1}, "num_local_experts"),
        (GPT_OSS, {"num_local_experts": 0}, "num_local_experts"),
        (GPT_OSS, {"num_experts": 7}, "num_experts is 7 and num_local_experts is 6"),
        (GPT_OSS, {"num_experts_per_tok": 7}, "num_experts_per_tok"),
        (GPT_OSS, {"experts_per_token": 3}, "experts_per_token is 3"),
        (GPT_OSS, {"layer_types": ["full_attention"] * 3}, "layer_types"),
        (GPT_OSS, {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        (GPT_OSS, {"initial_context_length": 4096}, "initial_context_length"),
        (GPT_OSS, {"swiglu_limit": 0}, "swiglu_limit"),
        (GPT_OSS, {"hidden_act": "gelu"}, "hidden_act"),
        (GPT_OSS, {"hidden_size": 100, **packed()}, "hidden_size.*multiple of 32"),
        (GPT_OSS, {"intermediate_size": 40, **packed()}, "intermediate_size.*multiple of 32"),
        (GPT_OSS, packed(quant_method="awq"), "awq"),
        (GPT_OSS, packed(quant_method=None), "quant_method"),
        (GPT_OSS, packed(dequantize=True), "dequantize"),
        (GPT_OSS, packed(group_size=64), "group_size"),
        (GPT_OSS, packed(modules_to_not_convert="lm_head"), "modules_to_not_convert"),
        *(
            (GPT_OSS, packed(modules_to_not_convert=[name]), "modules_to_not_convert")
            for name in (
                "model.layers.*.mlp",
                "model.layers.0.mlp.experts",
                "model.layers.*.mlp.experts.down_proj",
                "model",
                "model.layers.*",
                ".*",
                "lm_head|model.*",
                "",
            )
        ),
        (GPT_OSS, {"quantization_config": "mxfp4"}, "quantization_config"),
        (GPT_OSS, {"compression_config": {"format": "x"}}, "compression_config"),
        (QWEN_MOE, packed(), "mxfp4"),
        (QWEN_MOE, {"use_sliding_window": True}, "use_sliding_window"),
        (QWEN_MOE, {"num_experts": 2**62}, "num_experts"),
        (QWEN_MOE, {"num_hidden_layers": 1024, "num_experts": 65}, "num_experts"),
        (QWEN_MOE, {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        (QWEN_MOE, {"mlp_only_layers": [True]}, "mlp_only_layers"),
        (QWEN_MOE, {"mlp_only_layers": 3}, "mlp_only_layers"),
        (QWEN_MOE, {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    base: dict[str, Any], changes: dict[str, Any], named: str
) -> None:
    assert read_model_config(base)
    with pytest.raises(ConfigError, match=named):
        read_model_config({**base, **changes})


@pytest.mark.parametrize("base", [GPT_OSS, {**GPT_OSS, **packed()}, QWEN_MOE])
def test_sizes_beyond_all_memory_are_refused(base: dict[str, Any]) -> None:
    huge = dict.fromkeys(("hidden_size", "intermediate_size", "moe_intermediate_size"), 2**31 - 32)
    changed = {**base, **{key: huge[key] for key in huge if key in base}}
    config = read_model_config(changed)
    with torch.device("meta"), pytest.raises(ConfigError, match="too large"):
        find_model(changed).build(config)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["lm_head", "model.norm", "model.embed_tokens", "embed_tokens"],
        ["model.layers.*.self_attn", "model.layers.3.self_attn.q_proj"],
        ["model.layers.*.mlp.router", "model.layers.0.input_layernorm"],
    ],
)
def test_modules_that_are_never_packed_may_be_named(names: list[str]) -> None:
    config = read_model_config({**GPT_OSS, **packed(modules_to_not_convert=names)})
    assert config.mixture is not None
    assert config.mixture.format is MXFP4


def test_a_config_that_disagrees_with_the_tensors_is_told_so(tmp_path: Path) -> None:
    save_tiny_mxfp4(tmp_path / "packed", num_local_experts=2, num_experts_per_tok=1)
    edit_config(tmp_path / "packed", quantization_config=None)
    with pytest.raises(WeightsMismatch, match=r"experts\.down_proj_blocks"):
        build_engine(EngineOptions(model=tmp_path / "packed"))
    save_tiny(tmp_path / "floats", "gpt_oss", hidden_size=64, intermediate_size=96)
    edit_config(tmp_path / "floats", quantization_config=QUANTIZATION)
    with pytest.raises(
        WeightsMismatch, match=r"experts.down_proj_blocks': expected \[128, 64, 3, 16"
    ):
        build_engine(EngineOptions(model=tmp_path / "floats"))
