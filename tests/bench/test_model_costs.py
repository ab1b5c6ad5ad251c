"""What tokens cost, against published counts of parameters and against formulas done by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno.bench.roofline import ModelCosts, model_costs
from inferno.options import EngineOptions
from tests.tiny import SIZES, save_tiny

QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "quantization_config": {"quant_method": "mxfp4"},
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "attention_bias": True,
    "tie_word_embeddings": False,
}


def costs_of(
    folder: Path,
    config: dict[str, Any],
    quantize: str = "none",
    kv_dtype: torch.dtype = torch.bfloat16,
) -> ModelCosts:
    (folder / "config.json").write_text(json.dumps(config))
    options = EngineOptions(model=folder, quantize=quantize)
    return model_costs(options, torch.bfloat16, kv_dtype)


def test_gpt_oss_counts_what_its_makers_count(tmp_path: Path) -> None:
    # The model card of gpt-oss (arXiv:2508.10925), table 1: 20.91 billion, 3.61 billion active.
    costs = costs_of(tmp_path, GPT_OSS_20B)
    assert str(costs.expert_format) == "mxfp4"
    assert costs.num_parameters == pytest.approx(20.91e9, rel=3e-4)
    assert costs.operations(1, 1) == pytest.approx(2 * 3.61e9, rel=1e-3)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "mixtral"])
def test_parameters_are_those_of_the_checkpoint(model_type: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path, model_type)
    costs = model_costs(EngineOptions(model=tmp_path), torch.bfloat16, torch.bfloat16)
    assert costs.num_parameters == model.num_parameters()


def test_a_tied_table_counts_once_and_costs_only_where_a_token_is_drawn(tmp_path: Path) -> None:
    costs = costs_of(tmp_path, QWEN3_06B)
    table = 151936 * 1024
    # Of Qwen3-0.6B its makers say: 0.6 billion parameters, 0.44 billion without embeddings.
    assert costs.num_parameters - table == pytest.approx(0.44e9, rel=0.01)
    assert costs.operations(100, 1) == pytest.approx(2 * (100 * 0.44e9 + table), rel=0.01)


@pytest.mark.parametrize(
    ("quantize", "bits", "table_bits"), [("int8", 8.5, 8.5), ("int4", 4.5, 8.5)]
)
def test_packed_weights_are_read_packed(
    tmp_path: Path, quantize: str, bits: float, table_bits: float
) -> None:
    costs = costs_of(tmp_path, QWEN3_06B, quantize)
    table = 151936 * 1024
    expected = (bits * (costs.num_parameters - table) + table_bits * table) / 8
    assert costs.weight_bytes(1) == pytest.approx(expected, rel=1e-3)


def test_an_embedding_of_its_own_is_not_read(tmp_path: Path) -> None:
    tied, untied = (
        costs_of(tmp_path, {**QWEN3_06B, "tie_word_embeddings": is_tied})
        for is_tied in (True, False)
    )
    assert untied.num_parameters > tied.num_parameters
    assert untied.weight_bytes(1) == pytest.approx(tied.weight_bytes(1), rel=1e-4)


def test_more_requests_choose_more_of_the_experts(tmp_path: Path) -> None:
    costs = costs_of(tmp_path, GPT_OSS_20B)
    one, two, many = (costs.weight_bytes(count) for count in (1, 2, 1000))
    experts = 24 * 32 * 3 * 2880 * 2880 * 4.25 / 8  # MXFP4: a byte of scale for 32 values
    assert two - one == pytest.approx((1 / 8 - 1 / 64) * experts, rel=0.01)
    assert many - one == pytest.approx(7 / 8 * experts, rel=0.01)


def test_keys_and_values_are_read_up_to_the_window(tmp_path: Path) -> None:
    costs = costs_of(tmp_path, GPT_OSS_20B)
    token = 2 * 8 * 64 * 2  # keys and values, heads, their size, bytes of bfloat16
    assert costs.kv_bytes(100) == 24 * 100 * token
    assert costs.kv_bytes(1000) == 12 * (1000 + 128) * token


def test_int8_keys_and_values_have_a_scale_each(tmp_path: Path) -> None:
    costs = costs_of(tmp_path, QWEN3_06B, kv_dtype=torch.int8)
    assert costs.kv_bytes(10) == 28 * 10 * 2 * 8 * (128 + 4)


def test_a_runs_work_is_that_of_its_steps(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], **SIZES}
    costs = costs_of(tmp_path, config)
    work = costs.work(num_requests=5, at_once=2, prompt_tokens=7, max_tokens=4)
    assert work.prefill_operations == costs.operations(5 * 7, 5)
    assert work.decode_operations == costs.operations(5 * 3, 5 * 3)
    # Two, two and one at once, three steps each; the last token of an output is never computed.
    weights = 3 * 3 * costs.weight_bytes(1)
    assert work.decode_bytes == weights + 5 * sum(costs.kv_bytes(length) for length in (8, 9, 10))
