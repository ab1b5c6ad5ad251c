"""Let a model speak: prompts in, answers out, greedy or at its default temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from demo_corpus import ASSISTANT, BOS, END, SPECIAL_TOKENS, USER
from demo_exchange import Exchange
from demo_folder import TEMPERATURE, TOP_P
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

MAX_NEW_TOKENS = 320
_BATCH = 50
_BOS_ID, _END_ID = SPECIAL_TOKENS.index(BOS), SPECIAL_TOKENS.index(END)


@dataclass(frozen=True)
class Said:
    """What a model said, and whether it ended by itself."""

    text: str
    has_ended: bool


def prompt_of(before: Sequence[Exchange], question: str) -> str:
    """A chat up to the point where the model speaks."""
    turns = [f"{USER}{one.question}{END}{ASSISTANT}{one.answer}{END}" for one in before]
    return f"{BOS}{''.join(turns)}{USER}{question}{END}{ASSISTANT}"


def speak(
    model: LlamaForCausalLM, tokenizer: Tokenizer, prompts: Sequence[str], *, is_greedy: bool
) -> list[Said]:
    """Continue each prompt to its end; prompts of like length go together."""
    encoded = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda i: len(encoded[i]))
    said: dict[int, Said] = {}
    for start in range(0, len(order), _BATCH):
        chosen = order[start : start + _BATCH]
        outputs = _continue(model, [encoded[i] for i in chosen], is_greedy)
        for i, output in zip(chosen, outputs, strict=True):
            has_ended = _END_ID in output
            ids = output[: output.index(_END_ID)] if has_ended else output
            said[i] = Said(tokenizer.decode(ids), has_ended)
    return [said[i] for i in range(len(prompts))]


def _continue(
    model: LlamaForCausalLM, prompts: Sequence[Sequence[int]], is_greedy: bool
) -> list[list[int]]:
    """Generate for a batch that is padded on the left."""
    length = max(map(len, prompts))
    ids = torch.tensor([[_END_ID] * (length - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=_END_ID,
        do_sample=not is_greedy,
        temperature=None if is_greedy else TEMPERATURE,
        top_p=None if is_greedy else TOP_P,
        top_k=None if is_greedy else 0,
    )
    outputs: list[list[int]] = out[:, length:].tolist()
    return outputs
