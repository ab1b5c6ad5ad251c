"""Logits of tiny random checkpoints equal those of `transformers`, however they are computed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import edit_config, expected_logits, save_tiny

TOLERANCE = 2e-4
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
QWEN_WINDOW: dict[str, Any] = {
    "use_sliding_window": True,
    "sliding_window": 7,
    "max_window_layers": 1,
}

QWEN_MOE: dict[str, Any] = {
    "head_dim": 16,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
}
# With weights this small, a limit of 7 would never clamp.
GPT_OSS: dict[str, Any] = {
    "head_dim": 16,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "sliding_window": 7,
    "swiglu_limit": 0.8,
    "rope_parameters": {**YARN, "truncate": False, "rope_theta": 5e4},
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, one key head": ("llama", {"num_key_value_heads": 1}),
    "llama, as many key heads": ("llama", {"num_key_value_heads": 4}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, odd head size": ("llama", {"head_dim": 22}),
    "llama, three heads per key head": (
        "llama",
        {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10},
    ),
    "llama, theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "llama, llama3": ("llama", {"rope_parameters": LLAMA3}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "llama, yarn, exact ramp": ("llama", {"rope_parameters": {**YARN, "truncate": False}}),
    "llama, yarn, mscale": (
        "llama",
        {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}},
    ),
    "llama, yarn, attention factor": (
        "llama",
        {"rope_parameters": {**YARN, "attention_factor": 1.4, "beta_fast": 16, "beta_slow": 2}},
    ),
    "mistral, window": ("mistral", {"sliding_window": 9}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2, windows": ("qwen2", QWEN_WINDOW),
    "qwen3": ("qwen3", {"head_dim": 20}),
    "qwen3, windows, biases": ("qwen3", {"head_dim": 16, "attention_bias": True, **QWEN_WINDOW}),
    "qwen3, layer types": (
        "qwen3",
        {
            "head_dim": 16,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen3_moe": ("qwen3_moe", QWEN_MOE),
    "qwen3_moe, weights sum to one": ("qwen3_moe", {**QWEN_MOE, "norm_topk_prob": True}),
    "qwen3_moe, one network in layer 0": ("qwen3_moe", {**QWEN_MOE, "mlp_only_layers": [0]}),
    "qwen3_moe, experts in layer 1": ("qwen3_moe", {**QWEN_MOE, "decoder_sparse_step": 2}),
    "qwen3_moe, biases": ("qwen3_moe", {**QWEN_MOE, "attention_bias": True}),
    "mixtral": ("mixtral", {"num_local_experts": 5}),
    "mixtral, window": ("mixtral", {"sliding_window": 9, "num_experts_per_tok": 1}),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "gpt_oss, the real positions": (
        "gpt_oss",
        {key: value for key, value in GPT_OSS.items() if key != "rope_parameters"},
    ),
    "gpt_oss, all experts": ("gpt_oss", {**GPT_OSS, "num_experts_per_tok": 6}),
    "gpt_oss, no biases": ("gpt_oss", {**GPT_OSS, "attention_bias": False}),
    "gpt_oss, layer types": (
        "gpt_oss",
        {
            **GPT_OSS,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "num_attention_heads": 6,
            "swiglu_alpha": 1.1,
        },
    ),
    "gpt_oss, mxfp4": ("gpt_oss mxfp4", GPT_OSS),
    "gpt_oss, mxfp4, the real activation": (
        "gpt_oss mxfp4",
        {**GPT_OSS, "swiglu_limit": 7.0, "hidden_size": 96, "intermediate_size": 32},
    ),
}


def _save(folder: Path, variant: str) -> Any:
    model_type, config = VARIANTS[variant]
    if model_type == "gpt_oss mxfp4":
        return save_tiny_mxfp4(folder, **config)
    return save_tiny(folder, model_type, **config)


def _generate(
    engine: Engine, prompts: list[list[int]], num_new: int
) -> list[tuple[list[int], list[Tensor]]]:
    """Each prompt's tokens, new ones included, and the logits of every position computed."""
    executor = engine._executor
    texts: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        request_id = str(number)
        texts[request_id] = list(prompt)
        executor.capture_logits(request_id, range(len(prompt) + num_new - 1))
        params = SamplingParams(temperature=0.0, max_tokens=num_new)
        engine.add_request(
            Request(request_id=request_id, prompt_token_ids=tuple(prompt), params=params)
        )
    while engine.has_work:
        for event in engine.step():
            texts[event.request_id] += event.token_ids
    return [(text, executor.take_logits(request_id)) for request_id, text in texts.items()]


def _prompts(vocab_size: int, lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(vocab_size) for _ in range(length)] for length in lengths]


def _assert_equal_to_transformers(folder: Path, model: Any, **options: Any) -> None:
    engine = build_engine(EngineOptions(model=folder, dtype="float32", **options))
    prompts = _prompts(engine.vocab_size, (1, 37, 5, 70))
    for text, found in _generate(engine, prompts, num_new=9):
        expected = expected_logits(model, text[:-1])
        assert (torch.stack(found) - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("attention", ["auto", "reference", "flash"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_transformers(
    tmp_path: Path, variant: str, attention: str, request: pytest.FixtureRequest
) -> None:
    if "mxfp4" in variant:
        request.getfixturevalue("reference_kernels")
    model = _save(tmp_path, variant)
    _assert_equal_to_transformers(
        tmp_path, model, attention=attention, max_num_batched_tokens=23, num_blocks=64, block_size=4
    )


def _random_mixture(family: str, rng: random.Random) -> dict[str, Any]:
    """Sizes that no other variant has; multiples of 32 where MXFP4 needs them."""
    num_experts, num_kv_heads = rng.randrange(1, 12), rng.randrange(1, 4)
    own = {"sliding_window": rng.randrange(1, 30), "swiglu_limit": rng.choice([0.5, 7.0])}
    if family == "qwen3_moe":
        own = {"moe_intermediate_size": 4 * rng.randrange(1, 13)}  # what transformers can group
    return {
        **own,
        "hidden_size": 32 * rng.randrange(1, 4),
        "intermediate_size": 32 * rng.randrange(1, 4),
        "num_hidden_layers": rng.randrange(1, 5),
        "num_key_value_heads": num_kv_heads,
        "num_attention_heads": num_kv_heads * rng.randrange(1, 4),
        "head_dim": 2 * rng.randrange(3, 12),
        "num_local_experts": num_experts,
        "num_experts_per_tok": rng.randrange(1, num_experts + 1),
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["gpt_oss", "gpt_oss mxfp4", "qwen3_moe"])
def test_mixtures_of_random_sizes_equal_transformers(
    tmp_path: Path, family: str, seed: int, request: pytest.FixtureRequest
) -> None:
    config = _random_mixture(family, random.Random(seed))
    is_packed = family == "gpt_oss mxfp4"
    if is_packed:
        request.getfixturevalue("reference_kernels")
    model = (
        save_tiny_mxfp4(tmp_path, **config) if is_packed else save_tiny(tmp_path, family, **config)
    )
    _assert_equal_to_transformers(tmp_path, model, max_num_batched_tokens=23, block_size=4)


@pytest.mark.parametrize("num_batched_tokens", [1, 7, 512])
def test_any_chunking_gives_the_same_logits(tmp_path: Path, num_batched_tokens: int) -> None:
    model = save_tiny(tmp_path, "qwen3", head_dim=16, **QWEN_WINDOW)
    _assert_equal_to_transformers(tmp_path, model, max_num_batched_tokens=num_batched_tokens)


def test_preempted_requests_end_with_the_same_logits(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "llama")
    _assert_equal_to_transformers(tmp_path, model, block_size=4, num_blocks=22)


def test_sharded_checkpoints_load(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "llama", shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    _assert_equal_to_transformers(tmp_path, model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("family", "config"), [("qwen2", {}), ("gpt_oss", GPT_OSS)])
def test_half_precision_checkpoints_are_converted(
    tmp_path: Path, family: str, config: dict[str, Any], dtype: torch.dtype
) -> None:
    model = save_tiny(tmp_path, family, dtype=dtype, **config)
    _assert_equal_to_transformers(tmp_path, model)


@pytest.mark.parametrize("scaling", [LLAMA3, YARN])
def test_older_configs_mean_the_same(tmp_path: Path, scaling: dict[str, Any]) -> None:
    model = save_tiny(tmp_path, "llama", rope_parameters={**scaling, "rope_theta": 3e4})
    older = {key: value for key, value in scaling.items() if key != "rope_type"}
    older["type"] = scaling["rope_type"]
    edit_config(
        tmp_path,
        rope_parameters=None,
        dtype=None,
        rope_theta=3e4,
        rope_scaling=older,
        torch_dtype="float32",
    )
    _assert_equal_to_transformers(tmp_path, model)


def test_logits_of_chosen_positions_come_in_their_order(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "llama")
    engine = build_engine(EngineOptions(model=tmp_path, max_num_batched_tokens=8))
    (prompt,) = _prompts(engine.vocab_size, (30,))
    expected = expected_logits(model, prompt)
    assert (engine.logits(prompt) - expected).abs().max() <= TOLERANCE
    chosen = [29, 3, 3, 0]
    assert (engine.logits(prompt, chosen) - expected[chosen]).abs().max() <= TOLERANCE


def test_bfloat16_errs_no_more_than_twice_as_much_as_transformers(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "qwen3", head_dim=16, dtype=torch.bfloat16)
    engine = build_engine(EngineOptions(model=tmp_path, dtype="bfloat16"))
    (prompt,) = _prompts(engine.vocab_size, (60,))
    exact = expected_logits(model, prompt)
    theirs = expected_logits(model.to(torch.bfloat16), prompt).float()
    bound = 2 * (theirs - exact).abs().mean()
    assert (engine.logits(prompt) - exact).abs().mean() <= bound
