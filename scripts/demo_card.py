"""The embedded model's card: what it is, how it was made, and what it says, unedited."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

GREEDY_PROMPTS = ("Once upon a time", "Once upon a time, there was a brave dragon")
GREEDY_QUESTIONS = (
    "Hello",
    "What is inferno?",
    "What is 2 + 3?",
    "What colour is the sky?",
    "What is the capital of Italy?",
    "Tell me a story about a cat.",
)
SAMPLED_PROMPTS = ("Once upon a time", "One day, a small owl")

_CARD = """\
# demo, the embedded model of inferno

A Llama-architecture language model with {parameters:,} parameters (bfloat16), so small that it
ships inside the package. It is there so that inferno can be tried, tested and measured with no
network. It tells short stories and chats in simple English.

## How it was made

`python scripts/train_demo.py` drew a corpus of stories, small talk, simple facts, one-digit
arithmetic and questions about inferno from the grammars in `scripts/`, trained a byte-level BPE
tokenizer on it, and then the model: {num_steps} steps of 2048 tokens, one pass, no token seen
twice. No text of others and no other model was used. The seed is fixed: the same machine and
versions make the same weights; other processors may round differently.

On combinations that were held out (a question in one wording; a plot with its hero and its item):
loss {loss:.3f} nats per token, perplexity {perplexity:.2f}.

## What to expect

It knows what the grammars know and nothing else. It makes mistakes: in arithmetic with more than
one digit, in facts that it was not taught, with words that it has never seen, and in anything
longer than a few sentences; and it mixes up the names and things of a story, more so at higher
temperatures. It has no safety training and no opinion. Context: 512 tokens.

Chat format: `<|user|>Hello<|end|><|assistant|>`, after `<|bos|>` and an optional
`<|system|>...<|end|>`; answers and stories end with `<|end|>`.

## Samples, unedited

{samples}
"""


def write_card(folder: Path, *, num_steps: int, held_out_loss: float) -> None:
    """Load the model back from its folder, let it speak, and write README.md beside it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    card = _CARD.format(
        parameters=model.num_parameters(),
        num_steps=num_steps,
        loss=held_out_loss,
        perplexity=math.exp(held_out_loss),
        samples="\n\n".join(_samples(model, tokenizer)),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _samples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    torch.manual_seed(0)
    samples = []
    for question in GREEDY_QUESTIONS:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        answer = _continue(model, tokenizer, prompt, add_special_tokens=False, do_sample=False)
        samples.append(f"**{question}** (greedy)\n\n> {answer}")
    for prompts, do_sample in ((GREEDY_PROMPTS, False), (SAMPLED_PROMPTS, True)):
        for prompt in prompts:
            text = _continue(model, tokenizer, prompt, add_special_tokens=True, do_sample=do_sample)
            how = "temperature 0.7" if do_sample else "greedy"
            samples.append(f"Story ({how}):\n\n> **{prompt}**{text}")
    return samples


def _continue(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    prompt: str,
    *,
    add_special_tokens: bool,
    do_sample: bool,
) -> str:
    ids = tokenizer(prompt, add_special_tokens=add_special_tokens, return_tensors="pt").input_ids
    options = {"temperature": 0.7, "top_p": 0.95, "top_k": 0} if do_sample else {}
    out = model.generate(ids, max_new_tokens=400, do_sample=do_sample, **options)
    text: str = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
    return text
