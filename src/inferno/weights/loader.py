"""Fill a model's parameters from a checkpoint, once every name and shape is known to agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from inferno.errors import WeightsMismatch
from inferno.untrusted_json import quoted
from inferno.weights.allocate import allocate, check_fits, num_bytes
from inferno.weights.checkpoint import FLOATS, Checkpoint

# A segment of a parameter's path, and the checkpoint's segments with their rows that are
# concatenated to make it: {"qkv_proj": (("q_proj", 2048), ("k_proj", 256), ("v_proj", 256))}.
FusedSpec = Mapping[str, tuple[tuple[str, int], ...]]

# Buffers that old versions of transformers saved and that are computed, not loaded.
HARMLESS = (
    r".*\.rotary_emb\.inv_freq",
    r".*\.rotary_emb\.(cos|sin)_cached",
    r".*\.attn\.masked_bias",
)

_MAX_LISTED = 10


def load_weights(
    model: nn.Module,
    checkpoint: Checkpoint,
    *,
    fused: FusedSpec,
    device: torch.device,
    dtype: torch.dtype,
    tied: Mapping[str, str] | None = None,
    ignored: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Replace the parameters of `model`, built on the meta device, by the checkpoint's tensors.

    fused     what the model holds in one parameter and the checkpoint in several.
    tied      name that the model doesn't have -> the parameter whose memory stands for it; the
              checkpoint may hold either, or both if they are equal.
    ignored   regular expressions of whole names that may be left over, besides HARMLESS.
    progress  is told the bytes filled so far and in all.

    Raises WeightsMismatch with all differences, and NotEnoughMemory, before anything is
    allocated; CheckpointError where reading fails.
    """
    plan = _plan(model, checkpoint, fused, tied or {}, ignored)
    check_fits(model, device, dtype)
    done, total = 0, num_bytes(model, dtype)
    for name, sources in plan.items():
        parameter = allocate(model, name, device, dtype)
        first_row = 0
        for source in sources:
            part = parameter.narrow(0, first_row, source.shape[0])
            _fill(part, checkpoint, source.name)
            first_row += source.shape[0]
            done += part.numel() * dtype.itemsize
            if progress:
                progress(done, total)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor of the checkpoint that fills a parameter or some rows of it."""

    name: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class _Differences:
    """What keeps the checkpoint from filling the model, one line each."""

    missing: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


def _plan(
    model: nn.Module,
    checkpoint: Checkpoint,
    fused: FusedSpec,
    tied: Mapping[str, str],
    ignored: Iterable[str],
) -> dict[str, list[_Source]]:
    """For each parameter the tensors that fill it, or WeightsMismatch."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    plan = {name: _sources(name, shape, fused) for name, shape in shapes.items()}
    _use_tied_names(plan, checkpoint, tied)
    expected = {source.name: source.shape for sources in plan.values() for source in sources}
    may_stay = {name: shapes[target] for name, target in tied.items() if name not in expected}
    differences = _compare(checkpoint, expected, may_stay, ignored)
    if message := _report(differences):
        raise WeightsMismatch(
            f"{checkpoint.folder}: the checkpoint's tensors are not the ones that the model of "
            f"its config.json needs:\n{message}\nuse the config.json that came with the weights"
        )
    _check_ties(checkpoint, tied)
    return plan


def _check_ties(checkpoint: Checkpoint, tied: Mapping[str, str]) -> None:
    """Tensors that the config says are one must be one: training may have moved them apart."""
    for name, target in tied.items():
        both = name in checkpoint.tensors and target in checkpoint.tensors
        if both and not checkpoint.holds_twice(name, target):
            raise WeightsMismatch(
                f"{checkpoint.folder}: config.json says that {name} and {target} are one tensor "
                f"(tie_word_embeddings), but the checkpoint holds two that differ; set it to false "
                f"to use both"
            )


def _sources(name: str, shape: tuple[int, ...], fused: FusedSpec) -> list[_Source]:
    path = name.split(".")
    for at, segment in enumerate(path):
        if parts := fused.get(segment):
            assert sum(rows for _, rows in parts) == shape[0], f"rows of {name}"
            return [
                _Source(".".join([*path[:at], part, *path[at + 1 :]]), (rows, *shape[1:]))
                for part, rows in parts
            ]
    return [_Source(name, shape)]


def _use_tied_names(
    plan: dict[str, list[_Source]], checkpoint: Checkpoint, tied: Mapping[str, str]
) -> None:
    """Read a shared parameter under its other name where the checkpoint only has that one."""
    for name, target in tied.items():
        if target not in checkpoint.tensors and name in checkpoint.tensors:
            (source,) = plan[target]
            plan[target] = [_Source(name, source.shape)]


def _compare(
    checkpoint: Checkpoint,
    expected: Mapping[str, tuple[int, ...]],
    may_stay: Mapping[str, tuple[int, ...]],
    ignored: Iterable[str],
) -> _Differences:
    differences = _Differences()
    harmless = re.compile("|".join(f"(?:{pattern})" for pattern in (*HARMLESS, *ignored)))
    for name, shape in expected.items():
        if name not in checkpoint.tensors:
            differences.missing.append(f"{quoted(name)}: expected {list(shape)}")
    known = {**may_stay, **expected}
    for name, info in checkpoint.tensors.items():
        if name not in known:
            if not harmless.fullmatch(name):
                differences.unused.append(f"{quoted(name)}: found {list(info.shape)}")
        elif (shape := known[name]) != info.shape:
            differences.misshapen.append(
                f"{quoted(name)}: expected {list(shape)}, found {list(info.shape)}"
            )
        elif info.dtype not in FLOATS:
            differences.unreadable.append(
                f"{quoted(name)}: expected float32, float16 or bfloat16, found {info.dtype}"
            )
    return differences


def _report(differences: _Differences) -> str:
    kinds = {
        "missing": differences.missing,
        "misshapen": differences.misshapen,
        "of a type that isn't read": differences.unreadable,
        "unused": differences.unused,
    }
    lines = []
    for kind, found in kinds.items():
        if found:
            lines.append(f"{len(found)} {kind}:")
            lines += [f"  {line}" for line in found[:_MAX_LISTED]]
        if len(found) > _MAX_LISTED:
            lines.append(f"  and {len(found) - _MAX_LISTED} more")
    return "\n".join(lines)


def _fill(part: Tensor, checkpoint: Checkpoint, name: str) -> None:
    if part.device.type == "cpu":
        checkpoint.read_into(name, part)
        return
    staging = torch.empty(part.shape, dtype=part.dtype)
    checkpoint.read_into(name, staging)
    part.copy_(staging)
