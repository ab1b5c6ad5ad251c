"""Train the embedded model: `python scripts/train_demo.py [--minutes 10] [--out DIR] [--seed 0]`.

The corpus is drawn from the grammars beside this file, so nothing is downloaded. The number of
steps, not the clock, ends the training: the same seed on the same machine with the same versions
gives the same weights, and another processor may round differently and give slightly others.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from demo_batches import Batch, make_batches
from demo_card import write_card
from demo_corpus import BOS, CHAT_TEMPLATE, END, SPECIAL_TOKENS, Document, documents
from rich.progress import Progress, TextColumn
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

MODEL_FOLDER = Path(__file__).resolve().parents[1] / "src" / "inferno" / "demo" / "files"
STEPS_PER_MINUTE = 180  # two idle cores with AVX-512 do about as many
NUM_THREADS = 2  # fixed, as sums that are split differently round differently
PEAK_LEARNING_RATE = 2e-3
NUM_HELD_OUT_BATCHES = 24
_SPECIAL_TOKEN = re.compile(r"<\|\w+\|>")

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": SPECIAL_TOKENS.index(BOS),
    "eos_token_id": SPECIAL_TOKENS.index(END),
    "torch_dtype": "bfloat16",
}
GENERATION_CONFIG = {
    "bos_token_id": CONFIG["bos_token_id"],
    "eos_token_id": CONFIG["eos_token_id"],
    "do_sample": True,
    "temperature": 0.7,
    "top_p": 0.95,
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": BOS,
    "eos_token": END,
    "model_max_length": CONFIG["max_position_embeddings"],
    "clean_up_tokenization_spaces": False,
    "chat_template": CHAT_TEMPLATE,
}


def main() -> None:
    """Train, measure on held-out documents, and write the model's folder."""
    arguments = _parse_arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(NUM_THREADS)
    tokenizer = train_tokenizer(arguments.seed)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG))
    num_steps = round(arguments.minutes * STEPS_PER_MINUTE)
    rng = random.Random(f"train {arguments.seed}")
    train(model, make_batches(documents(rng), tokenizer, num_steps, rng))

    model.to(torch.bfloat16).to(torch.float32)  # what is measured is what the file will hold
    rng = random.Random(f"held out {arguments.seed}")
    held_out = documents(rng, held_out=True)
    loss = evaluate(model, make_batches(held_out, tokenizer, NUM_HELD_OUT_BATCHES, rng))
    print(f"{num_steps} steps, held-out loss {loss:.3f}, perplexity {math.exp(loss):.2f}")
    save(arguments.out, model, tokenizer)
    write_card(arguments.out, num_steps=num_steps, held_out_loss=loss)


def train_tokenizer(seed: int) -> Tokenizer:
    """A byte-level BPE that spells every text without loss and sees each digit by itself."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=CONFIG["vocab_size"],
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    drawn = islice(documents(random.Random(f"tokenizer {seed}")), 10_000)
    tokenizer.train_from_iterator(_without_special_tokens(drawn), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, CONFIG["bos_token_id"])]
    )
    return tokenizer


def train(model: nn.Module, batches: Sequence[Batch]) -> None:
    """One pass over the batches with AdamW: a short warm-up, then a cosine down to zero."""
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.98),
        fused=True,
    )
    with Progress(*Progress.get_default_columns(), TextColumn("{task.fields[loss]}")) as progress:
        task = progress.add_task("training", total=len(batches), loss="")
        for step, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, len(batches))
            loss = next_token_loss(model, batch)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            progress.update(task, advance=1, loss=f"loss {loss.item():.3f}")


def learning_rate(step: int, num_steps: int) -> float:
    """The rate of a step: linear over the first twentieth, then half a cosine."""
    warm_up = max(1, num_steps // 20)
    if step < warm_up:
        return PEAK_LEARNING_RATE * (step + 1) / warm_up
    done = (step - warm_up) / max(1, num_steps - warm_up)
    return PEAK_LEARNING_RATE * (1 + math.cos(math.pi * done)) / 2


def next_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy in nats over the tokens that the model itself would say."""
    logits = model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())


@torch.no_grad()
def evaluate(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Mean loss over batches of held-out documents."""
    return sum(next_token_loss(model, batch).item() for batch in batches) / len(batches)


def save(folder: Path, model: nn.Module, tokenizer: Tokenizer) -> None:
    """Write weights, configurations and tokenizer in Hugging Face's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the embedding
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes it for the owner alone
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in (
        ("config.json", CONFIG),
        ("generation_config.json", GENERATION_CONFIG),
        ("tokenizer_config.json", TOKENIZER_CONFIG),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _without_special_tokens(drawn: Iterable[Document]) -> Iterator[str]:
    for document in drawn:
        for piece in document:
            yield from filter(None, _SPECIAL_TOKEN.split(piece.text))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train inferno's embedded model.")
    parser.add_argument(
        "--minutes",
        type=float,
        default=10,
        help=f"length on two idle cores: {STEPS_PER_MINUTE} steps each (default: 10)",
    )
    parser.add_argument("--out", type=Path, default=MODEL_FOLDER, help="where the model goes")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
