"""Tiny random checkpoints of every model variant, made by `transformers`, also the oracle."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

SIZES: Mapping[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def save_tiny(
    folder: Path,
    model_type: str,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    shard_size: str = "1GB",
    **config: Any,
) -> Any:
    """Write a random model's config.json and safetensors; returns the `transformers` model."""
    torch.manual_seed(seed)
    # transformers writes into the dicts that it is given.
    hf_config = AutoConfig.for_model(model_type, **copy.deepcopy({**SIZES, **config}))
    model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large enough for every term to matter; norms away from one, biases away from zero.
            is_norm = "norm" in name
            parameter.normal_(1.0 if is_norm else 0.0, 0.3 if parameter.dim() == 1 else 0.15)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard_size)
    # Read back, because .to() above has rounded the rotary frequencies too.
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of a saved config.json; None removes a key."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


@torch.inference_mode()
def expected_logits(model: Any, token_ids: Sequence[int]) -> Tensor:
    """What `transformers` computes for a whole text at once: float32 [T, V]."""
    logits: Tensor = model(torch.tensor([list(token_ids)]), use_cache=False).logits[0]
    return logits


CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def save_tokenizer(folder: Path) -> int:
    """Write a byte-level tokenizer with a few special tokens, ids from 0; returns its size."""
    special = ["<|pad|>", "<|bos|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: token_id for token_id, token in enumerate([*special, *alphabet])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", vocab["<|bos|>"])]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<|bos|>", "eos_token": "<|end|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocab)


def save_tiny_model(folder: Path, **config: Any) -> Any:
    """A tiny Llama with a tokenizer and a chat template: everything that `LLM` needs."""
    folder.mkdir(exist_ok=True)
    vocab_size = save_tokenizer(folder)
    return save_tiny(folder, "llama", vocab_size=vocab_size, **config)


# What is said after a token that ends a prompt: pieces of up to 100 letters, each a token.
Sayings = Mapping[str, Sequence[str]]
END = "<|end|>"


def save_parrot(folder: Path, sayings: Sayings, template: str) -> None:
    """A model that says what it was told to: after the token of a key its pieces, then the end.

    Each token alone decides the next one, so that a piece goes on in one way.

    template    a chat template; it ends prompts with one of the keys.
    """
    folder.mkdir(exist_ok=True)
    special = ["<|pad|>", "<|bos|>", END, *sayings]
    said = list(dict.fromkeys(piece for pieces in sayings.values() for piece in pieces))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: token_id for token_id, token in enumerate([*special, *alphabet])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(said)
    folder.joinpath("tokenizer.json").write_text(tokenizer.to_str())
    folder.joinpath("tokenizer_config.json").write_text(
        json.dumps({"eos_token": END, "chat_template": template})
    )
    size = tokenizer.get_vocab_size()
    width = -(-size // 64) * 64
    model = save_tiny(
        folder,
        "llama",
        vocab_size=size,
        hidden_size=width,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        num_hidden_layers=1,
        max_position_embeddings=4096,
        eos_token_id=vocab[END],
    )
    follows: dict[int, int] = {}
    for key, pieces in sayings.items():
        ids: list[Any] = [tokenizer.token_to_id(each) for each in (key, *pieces, END)]
        for before, after in itertools.pairwise(ids):
            assert follows.setdefault(before, after) == after
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        for token_id in range(size):
            model.model.embed_tokens.weight[token_id, token_id] = 1.0
            model.lm_head.weight[follows.get(token_id, vocab[END]), token_id] = 100.0
    model.save_pretrained(folder)
