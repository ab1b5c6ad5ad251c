"""A small byte-level tokenizer made here, to be changed, and to compare with transformers."""

from __future__ import annotations

import json
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

MERGES = [("t", "h"), ("th", "e"), ("a", "n")]


def made_spec() -> dict[str, Any]:
    """tokenizer.json of 2 special tokens, 256 bytes and 3 merges: ids 0 to 260."""
    special = ["<s>", "</s>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*special, *alphabet, *map("".join, MERGES)]
    vocab = {word: token_id for token_id, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
    )
    spec: dict[str, Any] = json.loads(tokenizer.to_str())
    return spec
