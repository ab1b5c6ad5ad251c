"""Fill a model's parameters from a checkpoint, once all names, shapes and types agree."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from inferno.errors import WeightsMismatch
from inferno.ops import FILL_ROWS, Fillable
from inferno.untrusted_json import quoted
from inferno.weights.allocate import allocate, check_fits, num_bytes, owners
from inferno.weights.allocate import replace as replace_parameter
from inferno.weights.checkpoint import FLOATS, Checkpoint
from inferno.weights.pieces import FusedSpec, find_pieces
from inferno.weights.staging import CHUNK_BYTES, Staging

# Buffers that old versions of transformers saved and that are computed, not loaded.
HARMLESS = re.compile(r".*\.(rotary_emb\.(inv_freq|cos_cached|sin_cached)|attn\.masked_bias)")

PACKED = frozenset({torch.uint8})
_MAX_LISTED = 10


def load_weights(
    model: nn.Module,
    checkpoint: Checkpoint,
    *,
    fused: FusedSpec,
    device: torch.device,
    dtype: torch.dtype,
    tied: Mapping[str, str] | None = None,
    prepare: Callable[[nn.Module], None] | None = None,
    begin: Callable[[str, Tensor], Fillable | None] | None = None,
    kept_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Replace the parameters of `model`, built on the meta device, by the checkpoint's tensors.

    fused     what the model holds otherwise than the checkpoint: several tensors as one
              parameter, or one laid out differently.
    tied      name that the model doesn't have -> the parameter whose memory stands for it; the
              checkpoint may hold either, or both if they are equal.
    prepare   is told of every module when its own parameters have all been filled.
    begin     gives what a weight of that name becomes, to be filled row by row in its place.
    kept_bytes  what the weights take once they are prepared; None: what they took before.
    progress  is told the bytes filled so far and in all, after every piece of a few megabytes.

    Raises WeightsMismatch with all differences, and NotEnoughMemory, before anything is
    allocated; CheckpointError where reading fails.
    """
    plan = _plan(model, checkpoint, fused, tied or {})
    total = num_bytes(model, dtype)
    reader = _Reader(checkpoint, Staging(), _Count(progress, total))
    check_fits(kept_bytes or total, device, dtype)
    for owner, names in owners(model):
        for name in names:
            unfilled = model.get_parameter(name)
            fillable = begin(name, unfilled) if begin and _in_rows(unfilled, plan[name]) else None
            if fillable is not None:
                replace_parameter(model, name, fillable)
            else:
                parameter = allocate(model, name, device, dtype)
            for source in plan[name]:
                if fillable is not None:
                    reader.fill_rows(fillable, _first_row(unfilled, source), source, dtype)
                else:
                    reader.fill(source.part(parameter), source)
        if prepare:
            prepare(owner)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor of the checkpoint, as expected there, and the part of a parameter that it fills.

    is_packed  it is bytes that mean something else, read as they are; otherwise floats.
    """

    name: str
    shape: tuple[int, ...]
    is_packed: bool
    part: Callable[[Tensor], Tensor]


@dataclass(slots=True)
class _Differences:
    """The reasons why the checkpoint can't fill the model, one line each."""

    missing: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


def _plan(
    model: nn.Module,
    checkpoint: Checkpoint,
    fused: FusedSpec,
    tied: Mapping[str, str],
) -> dict[str, list[_Source]]:
    """Return for each parameter the tensors that fill it, or raise WeightsMismatch."""
    plan = {name: _sources(name, parameter, fused) for name, parameter in model.named_parameters()}
    _use_tied_names(plan, checkpoint, tied)
    expected = {source.name: source for sources in plan.values() for source in sources}
    may_stay = {name: plan[target][0] for name, target in tied.items() if name not in expected}
    differences = _compare(checkpoint, expected, may_stay)
    if message := _report(differences):
        raise WeightsMismatch(
            f"{checkpoint.folder}: the checkpoint's tensors are not the ones that the model of "
            f"its config.json needs:\n{message}\nuse the config.json that came with the weights"
        )
    _check_ties(checkpoint, tied)
    return plan


def _check_ties(checkpoint: Checkpoint, tied: Mapping[str, str]) -> None:
    """Refuse tensors that differ though the config says they are one: training may do that."""
    for name, target in tied.items():
        both = name in checkpoint.tensors and target in checkpoint.tensors
        if both and not checkpoint.holds_twice(name, target):
            raise WeightsMismatch(
                f"{checkpoint.folder}: config.json says that {name} and {target} are one tensor "
                f"(tie_word_embeddings), but the checkpoint holds two that differ; set it to false "
                f"to use both"
            )


def _sources(name: str, parameter: Tensor, fused: FusedSpec) -> list[_Source]:
    is_packed = not parameter.is_floating_point()
    sources = [
        _Source(piece.name, piece.stored_shape(parameter), is_packed, piece.part)
        for piece in find_pieces(name, fused)
    ]
    assert sum(math.prod(source.shape) for source in sources) == parameter.numel(), name
    return sources


def _use_tied_names(
    plan: dict[str, list[_Source]], checkpoint: Checkpoint, tied: Mapping[str, str]
) -> None:
    """Read a shared parameter under its other name where the checkpoint only has that one."""
    for name, target in tied.items():
        if target not in checkpoint.tensors and name in checkpoint.tensors:
            (source,) = plan[target]
            plan[target] = [replace(source, name=name)]


def _compare(
    checkpoint: Checkpoint,
    expected: Mapping[str, _Source],
    may_stay: Mapping[str, _Source],
) -> _Differences:
    differences = _Differences()
    for name, source in expected.items():
        if name not in checkpoint.tensors:
            differences.missing.append(f"{quoted(name)}: expected {list(source.shape)}")
    known = {**may_stay, **expected}
    for name, info in checkpoint.tensors.items():
        if name not in known:
            if not HARMLESS.fullmatch(name):
                differences.unused.append(f"{quoted(name)}: found {list(info.shape)}")
        elif (shape := known[name].shape) != info.shape:
            differences.misshapen.append(
                f"{quoted(name)}: expected {list(shape)}, found {list(info.shape)}"
            )
        elif info.dtype not in (PACKED if known[name].is_packed else FLOATS):
            wanted = "uint8" if known[name].is_packed else "float32, float16 or bfloat16"
            differences.unreadable.append(f"{quoted(name)}: expected {wanted}, found {info.dtype}")
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


def _in_rows(parameter: Tensor, sources: Sequence[_Source]) -> bool:
    """Return whether each source is whole rows of the parameter, cut where it may be."""
    for source in sources:
        part = source.part(parameter)
        first = _first_row(parameter, source)
        is_cut_well = len(part) % FILL_ROWS == 0 or first + len(part) == len(parameter)
        is_rows = part.ndim == 2 and part.shape[1:] == parameter.shape[1:] and part.is_contiguous()
        if source.is_packed or first % FILL_ROWS or not (is_rows and is_cut_well):
            return False
    return True


def _first_row(parameter: Tensor, source: _Source) -> int:
    return source.part(parameter).storage_offset() // max(1, math.prod(parameter.shape[1:]))


class _Count:
    """The count of bytes that are filled; tells `progress`."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, num_bytes: int) -> None:
        self._done += num_bytes
        if self._progress is not None:
            self._progress(self._done, self._total)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader that brings what a checkpoint holds to where it is computed with."""

    checkpoint: Checkpoint
    staging: Staging
    count: _Count

    def fill_rows(self, weight: Fillable, row: int, source: _Source, dtype: torch.dtype) -> None:
        """Fill the weight's rows from `row` on, some at a time."""
        num_rows, width = source.shape
        step = max(1, CHUNK_BYTES // max(1, width * dtype.itemsize * FILL_ROWS)) * FILL_ROWS
        for first in range(0, num_rows, step):
            rows = self.staging.take((min(step, num_rows - first), width), dtype)
            self.checkpoint.read_rows_into(source.name, first, rows)
            weight.fill(row + first, rows)
            self.count.add(rows.nbytes)

    def fill(self, part: Tensor, source: _Source) -> None:
        """Fill the part, straight in place where it lies as it is stored; some rows at a time."""
        is_in_place = part.is_cpu and part.is_contiguous()
        stored = part.view(source.shape) if is_in_place else part
        if is_in_place and stored.nbytes <= CHUNK_BYTES:
            self.checkpoint.read_into(source.name, stored)
            self.count.add(stored.nbytes)
            return
        row_bytes = stored[:1].numel() * stored.element_size()
        num_rows = max(1, CHUNK_BYTES // max(1, row_bytes))
        for first in range(0, len(stored), num_rows):
            rows = stored[first : first + num_rows]
            if is_in_place:
                self.checkpoint.read_rows_into(source.name, first, rows)
            else:
                staged = self.staging.take((len(rows), *source.shape[1:]), part.dtype)
                self.checkpoint.read_rows_into(source.name, first, staged)
                rows.copy_(staged.view(rows.shape))
            self.count.add(rows.nbytes)
