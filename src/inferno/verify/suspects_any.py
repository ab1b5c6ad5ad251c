"""Mistakes that any tensor may suffer: rows or heads mixed up, a coarser type, a factor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from inferno.verify.compare import largest, max_error
from inferno.verify.suspects import Evidence, Suspect, Suspects

_MUCH_NEARER = 50
_MOST_LISTED = 8
_FEW_UNITS = 2
_HEADS = ("q", "k", "v", "q_in", "k_in", "q_rot", "k_rot", "keys", "values", "mixed")
_COARSER = (torch.float8_e4m3fn, torch.bfloat16, torch.float16)


def any_suspects(name: str, found: Tensor, expected: Tensor, evidence: Evidence) -> Suspects:
    """Yield mistakes that need no knowledge of what the tensor is for, the likelier first."""
    yield Suspect("all values are zero", torch.zeros_like(expected))
    for what, axis in _axes(name):
        ours, theirs = (_with_heads(x, name, evidence) for x in (found, expected))
        if owners := _owners(_items(ours, axis), _items(theirs, axis)):
            moved = theirs.index_select(axis, torch.tensor(owners)).reshape(expected.shape)
            yield Suspect(_ownership(what, owners), moved)
    for dtype in _COARSER:
        if dtype.itemsize < found.dtype.itemsize and _is_rounded(found, expected, dtype):
            yield Suspect(f"values are rounded to {str(dtype).removeprefix('torch.')}", found)
    yield from _scaled(found, expected)


def _axes(name: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the index of each axis along which a tensor's values may be mixed up."""
    if name in ("sinks", "scores"):
        yield "head", 0
        return
    yield "position", 0
    if name in _HEADS:
        yield "head", 1
    if name == "experts":
        yield "expert", 1


def _with_heads(x: Tensor, name: str, evidence: Evidence) -> Tensor:
    """Cut weighted values, which are one row per position, into heads."""
    return x.view(len(x), evidence.config.num_heads, -1) if name == "mixed" else x


def _items(x: Tensor, axis: int) -> Tensor:
    """Flatten a tensor to [items along the axis, values of one], all of them finite."""
    return x.float().movedim(axis, 0).reshape(x.shape[axis], -1).nan_to_num().clamp(-1e30, 1e30)


def _owners(found: Tensor, expected: Tensor) -> list[int]:
    """Return the item whose values each one holds, itself if unclear; [] if all hold their own."""
    distances = torch.cdist(found, expected)
    nearest = distances.argmin(1)
    own = torch.arange(len(found))
    is_clear = distances[own, nearest] < distances[own, own] / _MUCH_NEARER
    owners: list[int] = torch.where(is_clear, nearest, own).tolist()
    return owners if owners != own.tolist() else []


def _ownership(what: str, owners: Sequence[int]) -> str:
    wrong = [item for item, owner in enumerate(owners) if owner != item]
    holders, held = _listed(wrong), _listed([owners[item] for item in wrong])
    return f"{what}s are mixed up: {what} {holders} holds what belongs to {what} {held}"


def _listed(items: Sequence[int]) -> str:
    """Write numbers as people do: 3 to 8 where they follow each other."""
    first, last = items[0], items[-1]
    if len(items) > 1 and list(items) == list(range(first, last + 1)):
        return f"{first} to {last}"
    shown = ", ".join(map(str, items[:_MOST_LISTED]))
    return shown + (", ..." if len(items) > _MOST_LISTED else "")


def _is_rounded(found: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """Return whether all values fit a coarser type, and are near the expected ones."""
    is_coarse = torch.equal(found.to(dtype).to(found.dtype), found)
    unit = torch.finfo(dtype).eps * largest(expected)
    return is_coarse and max_error(found, expected) <= _FEW_UNITS * unit


def _scaled(found: Tensor, expected: Tensor) -> Suspects:
    """Suspect that all values are multiplied by a number, or shifted; hidden ones stay so."""
    is_number = found.isfinite() & expected.isfinite()
    a, b = found[is_number].double(), expected[is_number].double()
    if not b.any():
        return
    ratio, offset = float(a @ b / (b @ b)), float((a - b).mean())
    times, plus = (
        torch.where(expected.isfinite(), x, expected) for x in (expected * ratio, expected + offset)
    )
    yield Suspect(f"all values are {ratio:.3g} times what is expected", times)
    yield Suspect(f"{offset:.3g} is added to all values", plus)
