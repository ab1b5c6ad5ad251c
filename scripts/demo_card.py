"""The embedded models' cards: what they are, how they were made, and what they say, unedited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from demo_batches import BATCH_TOKENS
from demo_corpus import BOS
from demo_exam import BARS, Mark
from demo_folder import TEMPERATURE, TOP_P
from demo_speech import prompt_of, speak
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

_QUESTIONS = (
    "Hello!",
    "What is inferno?",
    "What's 17 + 25?",
    "HOW DO I STOP AN ANSWER",
    "What is the capital of Mongolia?",
    "Does it run on my laptop, which has no GPU?",
    "Tell me a story about a penguin.",
    "Write me a story about a dragon and sharing.",
)
_OPENINGS = ("Once upon a time", "One day, a cat")

_CARD = """\
# {name}, {role}

A Llama-architecture language model with {parameters:,} parameters in bfloat16. {purpose}

## How it was made

`python scripts/train_demo.py {name}` made it from nothing but the grammars in `scripts/`: stories
of a hero, a friend and a plot that fits the world in which the hero lives; small talk; arithmetic
with one and two digits; facts in many wordings; yes or no; chats that refer back; how inferno is
used; and questions that it should say it can't answer, or that are not in English. What it is
taught about commands, options and routes is drawn from inferno's own tables.
{sources}

- Tokenizer: byte-level BPE, {vocabulary} tokens, each digit by itself, the same for both models.
- Training: {num_steps} steps of up to {batch_tokens} tokens, one pass, documents drawn afresh; Muon
  for the matrices and AdamW for the rest, the rate level for a half, then falling in a line to
  zero; rows of up to 1024 tokens. The loss counts only what the model itself would say. One thread,
  so that sums are always split alike: about 0.4 seconds a step of demo on a core of an EPYC that is
  left alone.{further_stages}{mean}
- The seed is fixed: the same machine and versions make the same weights; other processors may round
  differently.

![Training loss](loss.svg)

## How well it does

On chats and stories that end with what was held out: {loss:.3f} nats per token, perplexity
{perplexity:.3f}.{acceptance}

A question is held out in one wording, a story with its plot, hero and item, and a name altogether:
one in twenty of each, chosen by a hash of its text, is never trained on, however it is typed. The
unseen wordings are never trained on for any fact; small talk has no wording held out. Answers must
be right to the letter. The questions by hand were written from the documentation, in wordings that
the corpus does not have, and go by key facts. A story must name the hero that was asked for, keep
name and pronouns, and bring in nobody else. One in its hero's world has words of that world, such
as ice or fire, in its beginning, its middle and its end; one on a virtue has the virtue's words in
the middle and the end as well. Whether its plot makes sense is not measured. "Sampled" is at the
default temperature of {temperature} with top-p {top_p}.

| Held-out questions | number | greedy | wanted | sampled | ends by itself |
|---|---|---|---|---|---|
{marks}

## What to expect

{limits}

It knows what the grammars know and nothing else, and speaks only English. It has no safety training
and no opinion. Context: 1024 tokens.

Chat format: `<|user|>Hello<|end|><|assistant|>`, after `<|bos|>` and an optional
`<|system|>...<|end|>`; answers and stories end with `<|end|>`.

## Samples, unedited

Greedy, where nothing else is said.

{samples}
"""
_FURTHER_STAGES = """
- Then further stages (`--from`) of {steps} steps, in this order:
  each went on from the weights before with the same tokenizer, documents drawn anew from the corpus
  as it then was, and the same optimizers at lower rates{taught}."""
_TAUGHT = ", with demo, as far as that had come, as its teacher"
_MEANS = {
    "demo": "\n- The first stage of 600 steps went on from the mean of the weights after the "
    "second, the third\n  and the fifth stage (`average_demo.py`), the stage of 1000 steps from "
    "the mean of those before and\n  after that. The last stage, at 0.4 of the rates of the one "
    "before, went on\n  from a mean of the weights before and, counted twice, after the stage "
    "of 1600 steps. These weights are the mean of "
    "those before and after the last stage: the two taught more\n  ways to ask about inferno, and "
    "such a mean forgets fewer stories and facts.",
    "demo-draft": "\n- In the last stage the teacher was nearly the mean from which demo's stage "
    "of 1600 steps went on,\n  in the one before it demo as it was then.",
}
_ACCEPTANCE = """

As the draft of demo, at temperature 1, {accepted:.1%} of its tokens are accepted: the sum of
min(p, q) over the vocabulary, averaged over the held-out positions at which demo would speak."""
_ROLES = {
    "demo": "the embedded model of inferno",
    "demo-draft": "the draft model of inferno's embedded model",
}
_PURPOSES = {
    "demo": "It tells short\nstories, answers simple questions, does small sums and chats in "
    "simple English, so that inferno can\nbe tried, tested and measured with no network.",
    "demo-draft": "It guesses what\ndemo will say, so that speculative decoding can be tried with "
    "no network. It is not meant to be\ntalked to.",
}
_SOURCES = {
    "demo": "No text of others and no other model was used.",
    "demo-draft": "No text of others was used, and no model but demo: most of the loss of its "
    "further\nstages is the divergence from demo's predictions.",
}
_LIMITS = {
    "demo": "It gets plain things wrong that it was taught, also short ones, and most of all in "
    "capitals; asked\nabout inferno in words of your own, it often answers another question. "
    "Stories resemble each other,\nand a rare word or name may turn into another.",
    "demo-draft": "Alone it is wrong more often than right in most kinds above, and it can't do "
    "sums, keep a name or\ntell a story that holds together.",
}


@dataclass(frozen=True)
class Results:
    """What was measured: steps, held-out loss, exam, and a draft's acceptance."""

    num_steps: Sequence[int]  # of each stage
    loss: float
    marks: Sequence[Mark]
    acceptance: float | None


def write_card(
    folder: Path, name: str, model: LlamaForCausalLM, tokenizer: Tokenizer, results: Results
) -> None:
    """Let the model speak, and write README.md beside it."""
    accepted = results.acceptance
    card = _CARD.format(
        name=name,
        role=_ROLES[name],
        purpose=_PURPOSES[name],
        sources=_SOURCES[name],
        limits=_LIMITS[name],
        parameters=model.num_parameters(),
        vocabulary=tokenizer.get_vocab_size(),
        num_steps=results.num_steps[0],
        further_stages=_further_stages(
            results.num_steps[1:], taught="" if accepted is None else _TAUGHT
        ),
        mean=_MEANS[name],
        batch_tokens=BATCH_TOKENS,
        loss=results.loss,
        perplexity=math.exp(results.loss),
        acceptance="" if accepted is None else _ACCEPTANCE.format(accepted=accepted),
        temperature=TEMPERATURE,
        top_p=TOP_P,
        marks="\n".join(map(_row, results.marks)),
        samples="\n\n".join(_samples(model, tokenizer)),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _further_stages(num_steps: Sequence[int], taught: str) -> str:
    if not num_steps:
        return ""
    *most, last = map(str, num_steps)
    steps = f"{', '.join(most)} and {last}" if most else last
    return _FURTHER_STAGES.format(steps=steps, taught=taught)


def _row(mark: Mark) -> str:
    wanted = f"{BARS[mark.kind]:.0%}" if mark.kind in BARS else ""
    return (
        f"| {mark.kind} | {mark.num_items} | {mark.greedy:.1%} | {wanted} | {mark.sampled:.1%} "
        f"| {mark.ended:.1%} |"
    )


def _samples(model: LlamaForCausalLM, tokenizer: Tokenizer) -> list[str]:
    torch.manual_seed(0)
    prompts = [prompt_of((), question) for question in _QUESTIONS]
    answers = speak(model, tokenizer, prompts, is_greedy=True)
    samples = [
        f"**{question}**\n\n> {said.text}"
        for question, said in zip(_QUESTIONS, answers, strict=True)
    ]
    stories = speak(model, tokenizer, [BOS + text for text in _OPENINGS], is_greedy=False)
    samples += [
        f"A raw prompt, at temperature {TEMPERATURE}:\n\n> **{opening}**{said.text}"
        for opening, said in zip(_OPENINGS, stories, strict=True)
    ]
    return samples
