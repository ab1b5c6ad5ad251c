"""The embedded models' folders in Hugging Face's layout: shapes, configurations, weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from demo_batches import LONGEST_ROW
from demo_corpus import BOS, CHAT_TEMPLATE, END, SPECIAL_TOKENS
from demo_tokenizer import VOCABULARY
from demo_training import as_stored
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

TEMPERATURE, TOP_P = 0.5, 0.9
_BOS_ID, _END_ID = SPECIAL_TOKENS.index(BOS), SPECIAL_TOKENS.index(END)


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama; heads have 32 dimensions, and the head is tied to the embedding."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": 32,
            "hidden_act": "silu",
            "max_position_embeddings": LONGEST_ROW,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": _BOS_ID,
            "eos_token_id": _END_ID,
            "torch_dtype": "bfloat16",
        }


SHAPES = {
    "demo": Shape(256, 896, num_layers=4, num_heads=8, num_kv_heads=2),
    "demo-draft": Shape(192, 576, num_layers=2, num_heads=6, num_kv_heads=1),
}
_GENERATION_CONFIG = {
    "bos_token_id": _BOS_ID,
    "eos_token_id": _END_ID,
    "do_sample": True,
    "temperature": TEMPERATURE,
    "top_p": TOP_P,
}
_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": BOS,
    "eos_token": END,
    "model_max_length": LONGEST_ROW,
    "clean_up_tokenization_spaces": False,
    "chat_template": CHAT_TEMPLATE,
}


def save(folder: Path, name: str, model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Write weights, configurations and tokenizer."""
    weights = folder / "model.safetensors"
    save_file(as_stored(model), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors writes it for the owner alone
    tokenizer.save(str(folder / "tokenizer.json"))
    for file, content in (
        ("config.json", SHAPES[name].config()),
        ("generation_config.json", _GENERATION_CONFIG),
        ("tokenizer_config.json", _TOKENIZER_CONFIG),
    ):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> LlamaForCausalLM:
    """The model of a folder in float32, ready to speak."""
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()
