"""Random right models of every family, of odd shapes; the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import save_tiny

FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "mixtral",
    "gpt_oss",
    "gpt_oss mxfp4",
)
_YARN = {"rope_type": "yarn", "original_max_position_embeddings": 64}


@dataclass(frozen=True, slots=True)
class RandomModel:
    """family, its config, what it is stored in, what it is computed in."""

    family: str
    config: dict[str, Any]
    stored: torch.dtype
    dtype: str
    seed: int

    def save(self, folder: Path) -> Path:
        if self.family == "gpt_oss mxfp4":
            save_tiny_mxfp4(folder, seed=self.seed, **self.config)
        else:
            save_tiny(folder, self.family, seed=self.seed, dtype=self.stored, **self.config)
        return folder


def draw_model(seed: int) -> RandomModel:
    rng = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    layers = rng.choice((1, 2, 3, 5, 8))
    config = {**_shape(rng, family, layers), **_family(rng, family, layers)}
    return RandomModel(
        family=family,
        config=config,
        stored=rng.choice((torch.float32, torch.bfloat16)),
        dtype=rng.choice(("float32", "float32", "bfloat16", "float16")),
        seed=seed,
    )


def _shape(rng: random.Random, family: str, layers: int) -> dict[str, Any]:
    kv_heads, is_packed = rng.choice((1, 2, 3, 4)), family == "gpt_oss mxfp4"
    heads, head_dim = kv_heads * rng.choice((1, 2, 3)), rng.choice((2, 4, 6, 12, 32, 64))
    # Qwen2 and Mixtral derive the size of heads from the width, or check that it is a multiple.
    width = (
        heads * head_dim if family in ("qwen2", "mixtral", "llama") else rng.choice((48, 66, 96))
    )
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": rng.choice((32, 64, 96)) if is_packed else width,
        "intermediate_size": rng.choice((32, 96)) if is_packed else rng.choice((16, 40, 80)),
        "rms_norm_eps": rng.choice((1e-6, 1e-5, 1e-3)),
        "vocab_size": rng.choice((32, 96, 1000)),
        "max_position_embeddings": rng.choice((30, 80, 1024)),
        "tie_word_embeddings": rng.random() < 0.4,
        "rope_parameters": _rope(rng, family),
        **({} if family == "qwen2" else {"head_dim": head_dim}),
    }


def _rope(rng: random.Random, family: str) -> dict[str, Any]:
    theta, yarn = rng.choice((100.0, 1e4, 1e6)), {**_YARN, "factor": rng.choice((2.0, 32.0))}
    llama3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0}
    kinds: tuple[dict[str, Any], ...] = (
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3.7},
        {**_YARN, **llama3, "rope_type": "llama3"},
        yarn,
    )
    return {**(yarn if family.startswith("gpt_oss") else rng.choice(kinds)), "rope_theta": theta}


def _family(rng: random.Random, family: str, layers: int) -> dict[str, Any]:
    experts = rng.choice((1, 2, 5, 8))
    chosen = rng.randint(1, min(4, experts))
    window = rng.choice((1, 2, 9, 40, 600))
    has_biases = rng.random() < 0.4
    match family:
        case "llama":
            return {"attention_bias": has_biases, "mlp_bias": rng.random() < 0.4}
        case "mistral":
            return {"sliding_window": window}
        case "qwen2" | "qwen3":
            last = {"max_window_layers": rng.randrange(layers + 1), "sliding_window": window}
            return {"use_sliding_window": True, **last}
        case "qwen3_moe":
            return {
                "attention_bias": has_biases,
                "num_experts": experts,
                "num_experts_per_tok": chosen,
                "moe_intermediate_size": rng.choice((8, 24)),
                "norm_topk_prob": rng.random() < 0.5,
                "mlp_only_layers": [layer for layer in range(layers) if rng.random() < 0.25],
            }
        case "mixtral":
            sizes = {"num_local_experts": experts, "num_experts_per_tok": chosen}
            return {**sizes, "sliding_window": rng.choice((None, window))}
    return {
        "num_local_experts": experts,
        "num_experts_per_tok": chosen,
        "sliding_window": window,
        "swiglu_limit": rng.choice((0.1, 0.8, 7.0)),
    }
