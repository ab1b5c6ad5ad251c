"""Tiny checkpoints by name, and a verification of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inferno.verify import verify
from inferno.verify.options import VerifyOptions
from inferno.verify.outcome import Report
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import save_tiny

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GPT_OSS: dict[str, Any] = {
    "head_dim": 16,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 9,
    "swiglu_limit": 0.8,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, five layers": ("llama", {"num_hidden_layers": 5}),
    "llama, one layer": ("llama", {"num_hidden_layers": 1}),
    "llama, tied, biases": (
        "llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "mistral": ("mistral", {"sliding_window": 9}),
    "mistral, window of one": ("mistral", {"sliding_window": 1}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 20}),
    "qwen3, windows": (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1, "head_dim": 16},
    ),
    "qwen3_moe": (
        "qwen3_moe",
        {
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "mlp_only_layers": [1],
        },
    ),
    "mixtral": ("mixtral", {"num_local_experts": 5}),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "gpt_oss, mxfp4": ("gpt_oss mxfp4", GPT_OSS),
}


def save_model(folder: Path, name: str) -> Path:
    """Write a checkpoint of MODELS."""
    model_type, config = MODELS[name]
    if model_type == "gpt_oss mxfp4":
        save_tiny_mxfp4(folder, **config)
    else:
        save_tiny(folder, model_type, **config)
    return folder


def verified(folder: Path, **options: Any) -> Report:
    """Against the reference in float32, unless asked otherwise."""
    chosen = {"dtype": "float32", "threads": 1, **options}
    return verify(VerifyOptions(model=folder, **chosen), lambda _: None)
