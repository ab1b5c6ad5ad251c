"""Fill a model's parameters from a checkpoint, once all names, shapes and types agree."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from inferno.errors import WeightsMismatch
from inferno.gguf.file import OTHER_FILE, is_gguf_file
from inferno.gguf.tensor_types import unread_types
from inferno.machine import return_free_memory
from inferno.ops import FILL_ROWS, PackedExperts, PackedWeight, RowRanges, StoredRows, matrices
from inferno.quantization import RowRange, WeightFormat, is_matrix
from inferno.untrusted_json import quoted
from inferno.weights.allocate import (
    FormatOf,
    allocate,
    allocate_packed,
    check_fits,
    of_one_kind,
)
from inferno.weights.checkpoint import FLOATS, Checkpoint
from inferno.weights.pieces import FusedSpec, find_pieces
from inferno.weights.staging import CHUNK_BYTES, Staging
from inferno.weights.tensor_info import TensorInfo

# Buffers that old versions of transformers saved and that are computed, not loaded.
HARMLESS = re.compile(r".*\.(rotary_emb\.(inv_freq|cos_cached|sin_cached)|attn\.masked_bias)")

PACKED = frozenset({torch.uint8})
_MAX_LISTED = 10
_HOLES_BYTES = 32 << 20  # bytes of weights after which the heap's holes go back to the system


def load_weights(
    model: nn.Module,
    checkpoint: Checkpoint,
    *,
    fused: FusedSpec,
    device: torch.device,
    dtype: torch.dtype,
    tied: Mapping[str, str] | None = None,
    format_of: FormatOf | None = None,
    kept_bytes: float | None = None,
    is_invariant: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Replace the parameters of `model`, built on the meta device, by the checkpoint's tensors.

    fused     the parameters that differ from the checkpoint's tensors: several tensors in one, or
              one laid out differently, or packed.
    tied      name that the model doesn't have -> the parameter used in its place; the checkpoint
              may hold either, or both if they are equal.
    format_of  says in which format matrices are kept, for the device's kernels; None: all are
              plain tensors.
    kept_bytes  bytes of the weights once packed; None: as many as before.
    is_invariant  whether a row's products must have the same bits beside any number of others.
    progress  is called with the bytes read so far and in all, as files have them, after every
              piece of a few megabytes.

    Raises WeightsMismatch with all differences, and NotEnoughMemory, before anything is
    allocated; CheckpointError where reading fails.
    """
    plan = _plan(model, checkpoint, fused, tied or {})
    kept = _kept_formats(model, checkpoint, plan, format_of) if format_of else {}
    plan = {
        name: _as_kept(model.get_parameter(name), sources, kept.get(name), checkpoint)
        for name, sources in plan.items()
    }
    total = sum(source.num_bytes(dtype) for sources in plan.values() for source in sources)
    found = {
        name: checkpoint.tensors[name]
        for sources in plan.values()
        for source in sources
        for name in _names_in_file(checkpoint, source)
    }
    count = _Count(progress, found)
    reader = _Reader(checkpoint, Staging(), count, dtype)
    check_fits(kept_bytes or total, device, dtype)
    since = 0
    for name, unfilled in list(model.named_parameters()):
        sources = plan[name]
        since += sum(source.num_bytes(dtype) for source in sources)
        if since > _HOLES_BYTES:  # what is decoded leaves holes between what lasts
            return_free_memory()
            since = 0
        packed = None
        if name in kept:
            ranges = _ranges(unfilled, sources, kept[name])
            packed = allocate_packed(model, name, device, dtype, ranges, is_invariant=is_invariant)
        if packed is None:
            parameter = allocate(model, name, device, dtype)
            for source in sources:
                reader.fill(source.part(parameter), source)
        elif any(_is_rows(unfilled, source) for source in sources):
            _fill_by_rows(reader, packed, unfilled, sources)
        else:
            _fill_by_expert(reader, packed, sources)


def check_weights(
    model: nn.Module, checkpoint: Checkpoint, fused: FusedSpec, tied: Mapping[str, str]
) -> None:
    """Raise WeightsMismatch where `load_weights` would, by names, shapes and types alone."""
    _plan(model, checkpoint, fused, tied)


@dataclass(frozen=True, slots=True)
class _Source:
    """A weight of the checkpoint, as expected there, and the part of a parameter that it fills.

    shape   of its values.
    format  in which it is packed; None: it is floats of any type.
    """

    name: str
    shape: tuple[int, ...]
    format: WeightFormat | None
    part: Callable[[Tensor], Tensor]

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors that hold it, by their names."""
        if self.format is None or self.format.block is not None:
            return {self.name: self.shape}
        return self.parts()

    def parts(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes in which the tensors are read, by their names."""
        if self.format is None:
            return {self.name: self.shape}
        suffixes = [part.suffix for part in self.format.parts] or [""]
        shapes = self.format.stored_shapes(self.shape)
        return {f"{self.name}{one}": shape for one, shape in zip(suffixes, shapes, strict=True)}

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Return the bytes that it is read as: packed ones as they are, floats in `dtype`."""
        itemsize = dtype.itemsize if self.format is None else 1
        return sum(math.prod(shape) for shape in self.parts().values()) * itemsize


def _kept_formats(
    model: nn.Module,
    checkpoint: Checkpoint,
    plan: Mapping[str, Sequence[_Source]],
    format_of: FormatOf,
) -> dict[str, list[WeightFormat]]:
    """Return the format in which each source of each matrix is kept."""
    kept = {}
    for name, parameter in model.named_parameters():
        if is_matrix(name, parameter.ndim):
            stored = [checkpoint.stored[source.name].format for source in plan[name]]
            kept[name] = [format_of(name, parameter, one) for one in of_one_kind(parameter, stored)]
    return kept


def _as_kept(
    parameter: Tensor,
    sources: list[_Source],
    kept: Sequence[WeightFormat] | None,
    checkpoint: Checkpoint,
) -> list[_Source]:
    """Return the sources, those in GGUF's blocks or FP8 as packed where they are kept so."""
    return (
        [
            replace(source, format=stored)
            if source.format is None
            and (stored := checkpoint.stored[source.name].format).is_packed_in_files
            and format.takes_exactly(stored)
            and _is_rows(parameter, source)
            else source
            for source, format in zip(sources, kept, strict=True)
        ]
        if kept
        else sources
    )


def _ranges(
    parameter: Tensor, sources: Sequence[_Source], kept: Sequence[WeightFormat]
) -> list[RowRange]:
    """Return the rows of a weight by format, one after the other."""
    num_rows = parameter.shape[-2]
    pairs = [(source.format, format) for source, format in zip(sources, kept, strict=True)]
    if len(set(pairs)) == 1:
        return [RowRange(num_rows, kept[0])]
    assert parameter.ndim == 2, "all experts have one format"
    counts = zip(pairs, (source.shape[0] for source in sources), strict=True)
    return [
        RowRange(sum(count for _, count in group), kept_format)
        for (_, kept_format), group in groupby(counts, key=itemgetter(0))
    ]


def _names_in_file(checkpoint: Checkpoint, source: _Source) -> Iterable[str]:
    """Return the tensors that hold a source: several parts, or one of what is packed as read."""
    names = source.tensors()
    return names if names.keys() <= checkpoint.tensors.keys() else (source.name,)


def _is_rows(parameter: Tensor, source: _Source) -> bool:
    """Say whether a source is rows, one after the other, of a matrix or of one expert's."""
    part = source.part(parameter)
    return part.ndim == 2 and part.shape[1:] == parameter.shape[-1:] and part.is_contiguous()


def _fill_by_rows(
    reader: _Reader,
    packed: PackedWeight | PackedExperts,
    parameter: Tensor,
    sources: Sequence[_Source],
) -> None:
    """Fill each matrix, and each range of its rows, by the sources that lie in it."""
    width = max(1, parameter.shape[-1])
    places = [(source.part(parameter).storage_offset() // width, source) for source in sources]
    ordered = deque(sorted(places, key=itemgetter(0)))
    start = 0
    for matrix in matrices(packed):
        for weight in matrix.parts if isinstance(matrix, RowRanges) else (matrix,):
            stop, found = start + weight.shape[0], []
            while ordered and ordered[0][0] < stop:
                first, source = ordered.popleft()
                found.append((first - start, source))
            reader.fill_matrix(weight, found)
            start = stop


def _fill_by_expert(
    reader: _Reader, packed: PackedWeight | PackedExperts, sources: Sequence[_Source]
) -> None:
    """Fill one expert after the other, where sources hold all of them, in an order of their own."""
    weights = matrices(packed)
    scratch = reader.scratch((1, *weights[0].shape), sources[0].format)
    for expert, weight in enumerate(weights):
        for source in sources:
            reader.fill_scratch(scratch, source, source.part, expert)
        weight.fill(0, scratch[0])


class _Tensor(NamedTuple):
    """A tensor that a checkpoint should have; packed ones are bytes, others floats."""

    shape: tuple[int, ...]
    is_packed: bool


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
    expected = _tensors(source for sources in plan.values() for source in sources)
    may_stay = _tensors(replace(plan[target][0], name=name) for name, target in tied.items())
    is_gguf = is_gguf_file(checkpoint.path)
    if is_gguf:
        _refuse_unread_types(checkpoint, expected)
    differences = _compare(checkpoint, expected, may_stay)
    if message := _report(differences):
        config = "metadata" if is_gguf else "config.json"
        cure = OTHER_FILE if is_gguf else "use the config.json that came with the weights"
        raise WeightsMismatch(
            f"{checkpoint.path}: the checkpoint's tensors are not the ones that the model of "
            f"its {config} needs:\n{message}\n{cure}"
        )
    _check_ties(checkpoint, plan, tied)
    return plan


def _tensors(sources: Iterable[_Source]) -> dict[str, _Tensor]:
    """Return the tensors that hold these weights, by name."""
    return {
        name: _Tensor(shape, is_packed=source.format is not None)
        for source in sources
        for name, shape in source.tensors().items()
    }


def _refuse_unread_types(checkpoint: Checkpoint, expected: Iterable[str]) -> None:
    """Refuse a GGUF file whose weights are of types that aren't read."""
    found = {name: checkpoint.tensors.get(name) for name in expected}
    unread = {
        name: str(info.dtype) for name, info in found.items() if info and info.dtype not in FLOATS
    }
    if unread:
        raise unread_types(checkpoint.path, unread)


def _check_ties(
    checkpoint: Checkpoint, plan: Mapping[str, Sequence[_Source]], tied: Mapping[str, str]
) -> None:
    """Refuse tensors that differ though the config says they are one: training may do that."""
    for name, target in tied.items():
        both = [list(replace(plan[target][0], name=one).tensors()) for one in (name, target)]
        for one, other in zip(*both, strict=True):
            is_twice = one in checkpoint.tensors and other in checkpoint.tensors
            if is_twice and not checkpoint.holds_twice(one, other):
                raise WeightsMismatch(
                    f"{checkpoint.path}: config.json says that {name} and {target} are one "
                    f"tensor (tie_word_embeddings), but the checkpoint holds two that differ; set "
                    f"it to false to use both"
                )


def _sources(name: str, parameter: Tensor, fused: FusedSpec) -> list[_Source]:
    sources = [
        _Source(piece.name, piece.stored_shape(parameter), piece.format, piece.part)
        for piece in find_pieces(name, fused)
    ]
    assert sum(math.prod(source.shape) for source in sources) == parameter.numel(), name
    return sources


def _use_tied_names(
    plan: dict[str, list[_Source]], checkpoint: Checkpoint, tied: Mapping[str, str]
) -> None:
    """Read a shared parameter under its other name where the checkpoint only has that one."""
    for name, target in tied.items():
        (source,) = plan[target]
        other = replace(source, name=name)
        if not (source.tensors().keys() & checkpoint.tensors.keys()) and (
            other.tensors().keys() <= checkpoint.tensors.keys()
        ):
            plan[target] = [other]


def _compare(
    checkpoint: Checkpoint,
    expected: Mapping[str, _Tensor],
    may_stay: Mapping[str, _Tensor],
) -> _Differences:
    differences = _Differences()
    for name, tensor in expected.items():
        if name not in checkpoint.tensors:
            differences.missing.append(f"{quoted(name)}: expected {list(tensor.shape)}")
    known = {**may_stay, **expected}
    for name, info in checkpoint.tensors.items():
        if name not in known:
            if not HARMLESS.fullmatch(name) and name not in checkpoint.scales:
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


class _Count:
    """The count of bytes that are read of tensors, as files have them; tells `progress`."""

    def __init__(
        self, progress: Callable[[int, int], None] | None, tensors: Mapping[str, TensorInfo]
    ) -> None:
        self._progress = progress
        self._tensors = tensors
        self._num_rows = dict.fromkeys(tensors, 0)  # that are read
        self._total = sum(info.num_bytes for info in tensors.values())
        self._done = 0

    def add(self, name: str, num_rows: int) -> None:
        """Count so many more rows of a tensor."""
        info, before = self._tensors[name], self._num_rows[name]
        of, now = max(1, info.shape[0]), before + num_rows
        self._num_rows[name] = now
        self._done += info.num_bytes * now // of - info.num_bytes * before // of
        if self._progress is not None:
            self._progress(self._done, self._total)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader that brings what a checkpoint holds to where it is computed with.

    dtype  of floats, once they are read.
    """

    checkpoint: Checkpoint
    staging: Staging
    count: _Count
    dtype: torch.dtype

    def fill_matrix(self, weight: PackedWeight, placed: Sequence[tuple[int, _Source]]) -> None:
        """Fill a packed weight by the sources that begin at these rows of it.

        Some rows are read at a time, but all at once where a source ends amid what is packed at
        once.
        """
        num_rows = weight.shape[0]
        if all(_is_aligned(first, source.shape[0], num_rows) for first, source in placed):
            for first, source in placed:
                self._fill_rows(weight, first, source)
            return
        scratch = self.scratch(weight.shape, placed[0][1].format)
        for first, source in placed:
            self._read_rows(scratch[first : first + source.shape[0]], source)
        weight.fill(0, scratch)

    def scratch(self, shape: Sequence[int], format: WeightFormat | None) -> Tensor | StoredRows:
        """Return memory for values that are to be packed."""
        if format is None:
            return torch.empty(*shape, dtype=self.dtype)
        return StoredRows.empty(format, shape)

    def fill_scratch(
        self,
        scratch: Tensor | StoredRows,
        source: _Source,
        part: Callable[[Tensor], Tensor],
        first: int = 0,
    ) -> None:
        """Fill a part of such memory from the source's row `first` on."""
        for (name, shape), target in zip(source.parts().items(), _parts(scratch), strict=True):
            self._fill(part(target), name, shape[1:], first)

    def fill(self, part: Tensor, source: _Source) -> None:
        """Fill a part of a parameter that stays a plain tensor."""
        self._fill(part, source.name, source.shape[1:])

    def _fill_rows(self, weight: PackedWeight, row: int, source: _Source) -> None:
        """Fill the weight's rows from `row` on, some at a time."""
        num_rows = source.shape[0]
        row_bytes = source.num_bytes(self.dtype) // max(1, num_rows)
        step = max(1, CHUNK_BYTES // max(1, row_bytes * FILL_ROWS)) * FILL_ROWS
        for first in range(0, num_rows, step):
            rows = self._staged(source, min(step, num_rows - first))
            self._read_rows(rows, source, first)
            weight.fill(row + first, rows)

    def _read_rows(self, rows: Tensor | StoredRows, source: _Source, first: int = 0) -> None:
        """Read as many rows as there is room for, from the source's row `first` on."""
        if isinstance(rows, StoredRows):
            self.checkpoint.read_packed_into(source.name, first, rows)
        else:
            self.checkpoint.read_rows_into(source.name, first, rows)
        for name in _names_in_file(self.checkpoint, source):
            self.count.add(name, len(_parts(rows)[0]))

    def _staged(self, source: _Source, num_rows: int) -> Tensor | StoredRows:
        """Return memory for some rows, which the next call takes again."""
        if source.format is None:
            return self.staging.take((num_rows, *source.shape[1:]), self.dtype)
        shapes = [(num_rows, *shape[1:]) for shape in source.parts().values()]
        memory = self.staging.take((sum(map(math.prod, shapes)),), torch.uint8)
        parts = torch.split(memory, [math.prod(shape) for shape in shapes])
        views = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        return StoredRows(source.format, tuple(views))

    def _fill(self, part: Tensor, name: str, row_shape: Sequence[int], first: int = 0) -> None:
        """Fill `part` from a tensor's row `first` on, straight in place where it lies as stored.

        Some rows are read at a time.
        """
        is_in_place = part.is_cpu and part.is_contiguous()
        stored = part.view(-1, *row_shape) if is_in_place and row_shape else part
        row_bytes = stored[:1].numel() * stored.element_size()
        num_rows = max(1, CHUNK_BYTES // max(1, row_bytes))
        for start in range(0, len(stored), num_rows):
            rows = stored[start : start + num_rows]
            if is_in_place:
                self.checkpoint.read_rows_into(name, first + start, rows)
            else:
                staged = self.staging.take((len(rows), *row_shape), part.dtype)
                self.checkpoint.read_rows_into(name, first + start, staged)
                rows.copy_(staged.view(rows.shape))
            self.count.add(name, len(rows))


def _is_aligned(first: int, count: int, num_rows: int) -> bool:
    """Say whether rows can be packed by themselves: so many, from one on, of all."""
    return first % FILL_ROWS == 0 and (count % FILL_ROWS == 0 or first + count == num_rows)


def _parts(rows: Tensor | StoredRows) -> tuple[Tensor, ...]:
    return (rows,) if isinstance(rows, Tensor) else rows.parts
