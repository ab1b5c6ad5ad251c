"""Train a model on batches, by the corpus alone or with a teacher beside it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from demo_batches import IGNORED, Batch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM

_CHECKPOINT_EVERY = 500
_REPORT_EVERY = 25


@dataclass(frozen=True)
class Recipe:
    """How long and how fast a model learns.

    Matrices learn with Muon (Jordan et al. 2024), the embedding and the norms with AdamW.
    """

    num_steps: int
    matrix_rate: float
    other_rate: float
    teacher_share: float = 0.0  # of the loss: divergence from the teacher


@dataclass(frozen=True)
class CurvePoint:
    """The mean loss in nats per token over the steps since the point before."""

    step: int
    loss: float


def train(
    model: LlamaForCausalLM,
    batches: Iterator[Batch],
    recipe: Recipe,
    checkpoint: Path,
    teacher: LlamaForCausalLM | None = None,
) -> list[CurvePoint]:
    """One pass over the batches: a short warm-up, then the rate falls in a line to zero."""
    optimizers = _optimizers(model, recipe)
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    curve: list[CurvePoint] = []
    recent: list[float] = []
    began = time.monotonic()
    for step, batch in enumerate(itertools.islice(batches, recipe.num_steps), start=1):
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * _rate(step, recipe.num_steps)
        loss, cross_entropy = _loss(model, batch, teacher, recipe.teacher_share)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        recent.append(cross_entropy)
        if step % _REPORT_EVERY == 0 or step == recipe.num_steps:
            curve.append(CurvePoint(step, sum(recent) / len(recent)))
            recent = []
            minutes = (time.monotonic() - began) / 60
            print(
                f"step {step}/{recipe.num_steps}  loss {curve[-1].loss:.4f}  {minutes:.1f} min",
                flush=True,
            )
        if step % _CHECKPOINT_EVERY == 0:
            save_file(as_stored(model), checkpoint, metadata={"format": "pt"})
    return curve


def as_stored(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """The weights that the file holds: bfloat16, the tied head left out."""
    return {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, batches: Sequence[Batch]) -> float:
    """Mean loss in nats per token that the model itself would say."""
    total, count = 0.0, 0
    for batch in batches:
        logits, labels = _learned(model, batch)
        total += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        count += labels.numel()
    return total / count


@torch.no_grad()
def acceptance(model: LlamaForCausalLM, draft: LlamaForCausalLM, batches: Sequence[Batch]) -> float:
    """The share of the draft's tokens that speculative sampling keeps, at temperature 1.

    That is the sum over the vocabulary of min(p, q), averaged over the positions at which the
    model would speak (Leviathan et al. 2023, corollary 3.6).
    """
    total, count = 0.0, 0
    for batch in batches:
        p = _learned(model, batch)[0].softmax(-1)
        q = _learned(draft, batch)[0].softmax(-1)
        total += torch.minimum(p, q).sum().item()
        count += p.shape[0]
    return total / count


def _optimizers(model: LlamaForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in named if p.dim() != 2 or "embed" in name]
    return [
        torch.optim.Muon(
            matrices, lr=recipe.matrix_rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(
            others, lr=recipe.other_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        ),
    ]


def _rate(step: int, num_steps: int) -> float:
    """The rate of a step as a share of its peak."""
    warm_up = max(1, num_steps // 50)
    return min(step / warm_up, (num_steps - step + 1) / (num_steps - warm_up + 1))


def _loss(
    model: LlamaForCausalLM, batch: Batch, teacher: LlamaForCausalLM | None, teacher_share: float
) -> tuple[Tensor, float]:
    """What is minimised, and the cross-entropy in it."""
    with torch.autocast("cpu", torch.bfloat16):
        logits, labels = _learned(model, batch)
    logits = logits.float()
    loss = nn.functional.cross_entropy(logits, labels)
    cross_entropy = loss.item()
    if teacher is not None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            taught = _learned(teacher, batch)[0]
        divergence = nn.functional.kl_div(
            logits.log_softmax(-1), taught.float().softmax(-1), reduction="batchmean"
        )
        loss = (1 - teacher_share) * loss + teacher_share * divergence
    return loss, cross_entropy


def _learned(model: LlamaForCausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits [N,V] and labels [N] at the positions whose next token is learned."""
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
    is_learned = batch.labels != IGNORED
    return model.lm_head(hidden[is_learned]), batch.labels[is_learned]
