"""Train the embedded models: `python scripts/train_demo.py [demo] [demo-draft]`.

The corpus is drawn from the grammars beside this file, so nothing is downloaded. The number of
steps, not the clock, ends the training: the same seed on the same machine with the same versions
gives the same weights, and another processor may round differently and give slightly others.
`--exam` trains nothing: it examines the weights that are there and writes their cards again.

`--from FOLDER` is a further stage: with the tokenizer of the models in that folder it goes on from
their weights, at lower rates and on documents that are drawn anew, and leaves the folder as it is:
`python scripts/train_demo.py demo --from src/inferno/demo/files --out OTHER_FOLDER`. `--no-teacher`
lets demo-draft begin on the corpus alone, beside demo, from which a further stage then learns.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from demo_attention import NAME as GROUPED_ATTENTION
from demo_batches import Batch, draw_batches
from demo_card import Results, write_card
from demo_corpus import documents
from demo_curve import joined, read_curve, steps_of_stages, write_curve
from demo_exam import examine
from demo_folder import SHAPES, Shape, load, save
from demo_tokenizer import load_tokenizer, train_tokenizer
from demo_training import Recipe, acceptance, held_out_loss, train
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

FILES = Path(__file__).resolve().parents[1] / "src" / "inferno" / "demo" / "files"
NUM_THREADS = 1  # fixed, as sums that are split differently round differently
NUM_HELD_OUT_BATCHES = 24
RECIPES = {
    "demo": Recipe(num_steps=8000, matrix_rate=0.0025, other_rate=0.003),
    "demo-draft": Recipe(num_steps=2200, matrix_rate=0.006, other_rate=0.005, teacher_share=0.8),
}

FURTHER_RECIPES = {
    "demo": Recipe(num_steps=1600, matrix_rate=0.001, other_rate=0.0012),
    "demo-draft": Recipe(num_steps=450, matrix_rate=0.003, other_rate=0.0025, teacher_share=0.8),
}


def main(given: Sequence[str] | None = None) -> None:
    """Train what is asked for, demo first, as demo-draft learns from it; then examine it."""
    arguments = _parse_arguments(given)
    torch.set_num_threads(NUM_THREADS)
    for name in (name for name in RECIPES if name in arguments.models):
        if not arguments.exam:
            _train(name, arguments)
        _examine(name, arguments)


def _train(name: str, arguments: argparse.Namespace) -> None:
    folder = arguments.out / name
    folder.mkdir(parents=True, exist_ok=True)
    first: Path | None = arguments.first / name if arguments.first else None
    recipe = (FURTHER_RECIPES if first else RECIPES)[name]
    if arguments.steps is not None:
        recipe = dataclasses.replace(recipe, num_steps=arguments.steps)
    teacher = None
    if name == "demo":
        tokenizer = load_tokenizer(first) if first else train_tokenizer(arguments.seed)
    else:
        tokenizer = load_tokenizer(arguments.out / "demo")
        if arguments.has_teacher:
            teacher = load(arguments.out / "demo")
        else:
            recipe = dataclasses.replace(recipe, teacher_share=0.0)
    torch.manual_seed(arguments.seed)
    model = _build(SHAPES[name])
    if first:
        model.load_state_dict(load(first).state_dict())
    print(f"{name}: {model.num_parameters():,} parameters, {recipe}", flush=True)
    stage = 1 + len(steps_of_stages(read_curve(first))) if first else 1
    rng = random.Random(f"stage {stage} of {name} {arguments.seed}")
    batches = draw_batches(documents(rng), tokenizer, rng)
    checkpoint = folder / "unfinished.safetensors"
    curve = train(model, batches, recipe, checkpoint, teacher)
    checkpoint.unlink(missing_ok=True)
    save(folder, name, model, tokenizer)
    write_curve(folder, joined(read_curve(first), curve) if first else curve)


def _examine(name: str, arguments: argparse.Namespace) -> None:
    """Load the model back from its folder, as its file holds it, and write its card."""
    folder = arguments.out / name
    model, tokenizer = load(folder), load_tokenizer(folder)
    batches = _held_out_batches(tokenizer, arguments.seed)
    accepted = None
    if name == "demo-draft":
        accepted = acceptance(load(arguments.out / "demo"), model, batches)
        print(f"acceptance {accepted:.3f}", flush=True)
    loss = held_out_loss(model, batches)
    print(f"held-out loss {loss:.4f}", flush=True)
    marks, wrong = examine(model, tokenizer, seed=arguments.seed, size=arguments.exam_size)
    print("\n".join([*map(str, marks), *wrong]), flush=True)
    results = Results(steps_of_stages(read_curve(folder)), loss, marks, accepted)
    write_card(folder, name, model, tokenizer, results)


def _held_out_batches(tokenizer: Tokenizer, seed: int) -> list[Batch]:
    rng = random.Random(f"held out {seed}")
    drawn = draw_batches(documents(rng, held_out=True), tokenizer, rng)
    return list(itertools.islice(drawn, NUM_HELD_OUT_BATCHES))


def _build(shape: Shape) -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**shape.config(), attn_implementation=GROUPED_ATTENTION))


def _parse_arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train inferno's embedded models.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: both")
    parser.add_argument("--exam", action="store_true", help="examine the weights that are there")
    parser.add_argument("--exam-size", type=int, default=100, help="questions of each kind")
    parser.add_argument("--steps", type=int, help="fewer steps, to try it out")
    parser.add_argument("--out", type=Path, default=FILES, help="where the models' folders are")
    parser.add_argument(
        "--from", dest="first", type=Path, metavar="FOLDER", help="go on from the models in FOLDER"
    )
    parser.add_argument(
        "--no-teacher",
        dest="has_teacher",
        action="store_false",
        help="let demo-draft learn from the corpus alone, while demo is not ready",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(given)
    if arguments.first and arguments.first.resolve() == arguments.out.resolve():
        parser.error(f"--from and --out are both {arguments.out}; give --out another folder")
    arguments.models = arguments.models or list(RECIPES)
    if strangers := set(arguments.models) - set(RECIPES):
        parser.error(f"no model {', '.join(sorted(strangers))}; there are {', '.join(RECIPES)}")
    return arguments


if __name__ == "__main__":
    main()
