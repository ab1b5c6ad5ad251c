"""Train a model on batches, by the corpus alone or with a teacher beside it."""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from demo_batches import IGNORED, Batch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM

_CHECKPOINT_EVERY = 50  # seconds of writing for minutes of training
_REPORT_EVERY = 25
_WARM_UP = 50
_SHARE_OF_FALLING = 0.6
# Without fast products of bfloat16 a step takes more than ten times as long.
_HAS_FAST_BFLOAT16 = torch.backends.cpu.get_cpu_capability() != "AVX2"


@dataclass(frozen=True)
class Recipe:
    """How long and how fast a model learns.

    Matrices learn with Muon (Jordan et al. 2024), the embedding and the norms with AdamW. Without
    Muon, whose products are slow where bfloat16 is, matrices learn with AdamW as well.
    """

    num_steps: int
    matrix_rate: float
    other_rate: float
    teacher_share: float = 0.0  # of the loss: divergence from the teacher
    uses_muon: bool = True


@dataclass(frozen=True)
class CurvePoint:
    """The mean loss in nats per token over the steps since the point before."""

    step: int
    loss: float
    stage: int = 1


@dataclass
class _Progress:
    """How far a training has come: steps, the curve, the losses since its last point.

    `seen` is the checksum of the batch that was learned last.
    """

    num_steps: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)
    seen: int = 0


def train(
    model: LlamaForCausalLM,
    batches: Iterator[Batch],
    recipe: Recipe,
    checkpoint: Path,
    teacher: LlamaForCausalLM | None = None,
) -> list[CurvePoint]:
    """One pass over the batches: a short warm-up, a level half, then the rate falls to zero.

    A training that was interrupted goes on from its checkpoint, with the same result, if shapes,
    batches and the rates so far are those that it would have had; else it begins anew.
    """
    optimizers = _optimizers(model, recipe)
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    batches, progress = _resumed(model, optimizers, batches, recipe, checkpoint)
    began = time.monotonic()
    remaining = itertools.islice(batches, recipe.num_steps - progress.num_steps)
    for step, batch in enumerate(remaining, start=progress.num_steps + 1):
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * _rate(step, recipe.num_steps)
        loss, cross_entropy = _loss(model, batch, teacher, recipe.teacher_share)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        progress.num_steps = step
        progress.recent.append(cross_entropy)
        if step % _REPORT_EVERY == 0 or step == recipe.num_steps:
            mean = sum(progress.recent) / len(progress.recent)
            progress.curve.append(CurvePoint(step, mean))
            progress.recent = []
            minutes = (time.monotonic() - began) / 60
            print(f"step {step}/{recipe.num_steps}  loss {mean:.4f}  {minutes:.1f} min", flush=True)
        if step % _CHECKPOINT_EVERY == 0:
            progress.seen = _checksum(batch)
            _save_checkpoint(model, optimizers, recipe, progress, checkpoint)
    return progress.curve


def _save_checkpoint(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    recipe: Recipe,
    progress: _Progress,
    checkpoint: Path,
) -> None:
    """Write all that a training needs to go on, in float32, then replace what was there."""
    tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    for i, optimizer in enumerate(optimizers):
        for j, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{j}.{name}": value for name, value in state.items()}
    facts = {"recipe": json.dumps(asdict(recipe)), "progress": json.dumps(asdict(progress))}
    beside = checkpoint.with_suffix(".part")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, facts)
    beside.replace(checkpoint)


def _resumed(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    batches: Iterator[Batch],
    recipe: Recipe,
    checkpoint: Path,
) -> tuple[Iterator[Batch], _Progress]:
    """Load what a checkpoint holds, and the batches after those that were learned already."""
    if not checkpoint.exists():
        return batches, _Progress()
    with safe_open(checkpoint, "pt") as file:
        facts = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    progress = _Progress(**json.loads(facts["progress"]))
    progress.curve = [CurvePoint(**point) for point in progress.curve]  # type: ignore[arg-type]
    learned = list(itertools.islice(batches, progress.num_steps))
    parameters = dict(model.named_parameters())
    has_same_shapes = all(
        f"model.{name}" in tensors and tensors[f"model.{name}"].shape == p.shape
        for name, p in parameters.items()
    )
    is_same = has_same_shapes and _is_the_same(
        Recipe(**json.loads(facts["recipe"])), recipe, progress.num_steps
    )
    if not is_same or len(learned) < progress.num_steps or _checksum(learned[-1]) != progress.seen:
        print(f"{checkpoint} is of another training, so this one begins anew", flush=True)
        return itertools.chain(learned, batches), _Progress()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"model.{name}"])
    for i, optimizer in enumerate(optimizers):
        kept = optimizer.state_dict()
        kept["state"] = _states(tensors, f"optimizer.{i}.")
        optimizer.load_state_dict(kept)
    print(f"goes on after step {progress.num_steps}", flush=True)
    return batches, progress


def _is_the_same(kept: Recipe, recipe: Recipe, num_steps: int) -> bool:
    """Whether both recipes do the same up to a step, even if they end at different ones."""
    steps = range(1, num_steps + 1)
    return replace(kept, num_steps=recipe.num_steps) == recipe and all(
        _rate(step, kept.num_steps) == _rate(step, recipe.num_steps) for step in steps
    )


def _states(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    """An optimizer's state: for each parameter's number its tensors by name."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            number, _, what = name.removeprefix(prefix).partition(".")
            states.setdefault(int(number), {})[what] = tensor
    return states


def _checksum(batch: Batch) -> int:
    return zlib.crc32(batch.ids.numpy().tobytes())


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
    of_others = torch.optim.AdamW(
        others, lr=recipe.other_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    of_matrices: torch.optim.Optimizer
    if recipe.uses_muon:
        of_matrices = torch.optim.Muon(
            matrices, lr=recipe.matrix_rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
        )
    else:
        of_matrices = torch.optim.AdamW(
            matrices, lr=recipe.matrix_rate, betas=(0.9, 0.98), weight_decay=0.05, fused=True
        )
    return [of_matrices, of_others]


def _rate(step: int, num_steps: int) -> float:
    """The rate of a step as a share of its peak: up for a moment, level, then down to zero."""
    warm_up = min(_WARM_UP, max(1, num_steps // 10))
    num_falling = max(1, int(num_steps * _SHARE_OF_FALLING))
    return min(step / warm_up, 1.0, (num_steps - step + 1) / num_falling)


def _loss(
    model: LlamaForCausalLM, batch: Batch, teacher: LlamaForCausalLM | None, teacher_share: float
) -> tuple[Tensor, float]:
    """What is minimised, and the cross-entropy in it."""
    with torch.autocast("cpu", torch.bfloat16, enabled=_HAS_FAST_BFLOAT16):
        logits, labels = _learned(model, batch)
    logits = logits.float()
    loss = nn.functional.cross_entropy(logits, labels)
    cross_entropy = loss.item()
    if teacher is not None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=_HAS_FAST_BFLOAT16):
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
