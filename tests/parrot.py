"""A model that says what it was told to, calls of tools among it; with its template and tools."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from tests.tiny import save_tiny

# What is said after a token that ends a prompt: pieces of up to 100 letters, each a token. None of
# them begins with < and ends with >, as only special tokens do to llguidance.
SAYINGS: Mapping[str, Sequence[str]] = {
    "<|one|>": (
        "Let me *see*.\n",
        '<tool_call>\n{"name": "get_weather", "arguments": {"place": "Rome", ',
        '"days": 3',
        "}}\n</tool_call>",
    ),
    "<|two|>": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"place": "Oslo',
        '"}}\n</tool_call>',
        '\n<tool_call>\n{"name": "get_time", "arguments": {',
        "}}\n</tool_call>",
    ),
    "<|again|>": (
        '<tool_call>\n{"name": "get_time", "arguments": ',
        "{}}\n</tool_call>",
    ),
    "<|document|>": ('{"name": "Rome", ', '"size": 3}'),
    "<|told|>": ("It **rains**, ", "so take an umbrella."),
    "<|plain|>": ("Hello! ", "What can I do?"),
}
# The last message decides what is said, and first of all whether it is a result.
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}<|end|>\n{% endfor %}{% set last = messages[-1] %}"
    "{% if not add_generation_prompt %}"
    "{% elif 'document' in last.content %}<|document|>{% elif 'again' in last.content %}<|again|>"
    "{% elif last.role == 'tool' %}<|told|>{% elif 'both' in last.content %}<|two|>"
    "{% elif 'rain' in last.content %}<|one|>{% else %}<|plain|>{% endif %}"
    "{# <tool_call> arguments #}"
)
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["place"],
    },
}
TOOLS = [
    {"type": "function", "function": WEATHER},
    {"type": "function", "function": {"name": "get_time"}},
]
END = "<|end|>"
_HEAD = 64  # the size of an attention head


def save_parrot(folder: Path) -> None:
    """Write the model: after the token of a key it says the key's pieces, and then ends.

    Each token alone decides the next one, so that a piece goes on in one way. Where a grammar
    leaves one way to go on, its tokens are other ones, and the model is at a loss after them: any
    token that the grammar allows may come.
    """
    folder.mkdir(exist_ok=True)
    special = ["<|pad|>", "<|bos|>", END, *SAYINGS]
    said = list(dict.fromkeys(piece for pieces in SAYINGS.values() for piece in pieces))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: token_id for token_id, token in enumerate([*special, *alphabet])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(said)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": END, "chat_template": TEMPLATE})
    )
    size = tokenizer.get_vocab_size()
    heads = -(-size // _HEAD)
    model = save_tiny(
        folder,
        "llama",
        vocab_size=size,
        hidden_size=heads * _HEAD,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        num_hidden_layers=1,
        max_position_embeddings=4096,
        eos_token_id=vocab[END],
    )
    follows: dict[int, int] = {}
    for key, pieces in SAYINGS.items():
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
