"""Weights as they were packed once, in a file of our own: a second start need not pack them.

A file is one line of JSON, filled up with blanks to a multiple of 64 bytes, then the tensors,
each at a multiple of 64. It is found by a key made of all that shaped it, and its checksums are
compared before anything of it is used: what is damaged is packed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.ops import Fillable, Stored
from inferno.weights.allocate import replace
from inferno.weights.checkpoint import Checkpoint

MOST_BYTES = 24 * 2**30  # of all files together; the longest unused go first
_VERSION = 1  # of this format and of the packed layouts
_ALIGNMENT = 64
_MOST_HEADER_BYTES = 1 << 24

_logger = logging.getLogger("inferno")


def folder() -> Path:
    """Where the files are: INFERNO_HOME/packed, or the user's cache folder's inferno/packed.

    Raises RuntimeError where the user has no home.
    """
    if home := os.environ.get("INFERNO_HOME"):
        return Path(home) / "packed"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "inferno" / "packed"


def key_of(checkpoint: Checkpoint, **choices: str) -> str:
    """What names the packed weights of a checkpoint as it is now, packed by these choices."""
    files = {str(path): signature for path, signature in checkpoint.signatures().items()}
    tensors = {name: repr(info) for name, info in checkpoint.tensors.items()}
    text = json.dumps([_VERSION, files, tensors, choices], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load(model: nn.Module, key: str) -> bool:
    """Fill a model, built on the meta device, from the file of that key; False if there is none.

    A file that is damaged, or that describes another model, is removed.
    """
    try:
        path = folder() / f"{key}.packed"
        entries = list(_read(path, key))
        _fill(model, entries)
    except FileNotFoundError:
        return False
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as problem:
        _logger.warning("the packed weights in the cache can't be used (%s): packing anew", problem)
        with contextlib.suppress(OSError, RuntimeError):
            (folder() / f"{key}.packed").unlink(missing_ok=True)
        return False
    with contextlib.suppress(OSError):
        os.utime(path)
    return True


def save(model: nn.Module, key: str) -> None:
    """Write the model's weights to the file of that key. What keeps it from that is only logged."""
    try:
        target = folder() / f"{key}.packed"
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, key, list(_entries(model)))
        _make_room(target)
    except (OSError, RuntimeError) as problem:
        _logger.info("packed weights were not cached: %s", problem)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A weight by its parameter's name; `meta` is None for a tensor that was left as it is."""

    name: str
    meta: dict[str, Any] | None
    parts: tuple[Tensor, ...]
    dtype: str = ""
    shape: tuple[int, ...] = ()


def _entries(model: nn.Module) -> Iterator[_Entry]:
    for name, parameter in model.named_parameters():
        flat = parameter.detach().contiguous().view(-1).view(torch.uint8)
        dtype = str(parameter.dtype).removeprefix("torch.")
        yield _Entry(name, None, (flat,), dtype, tuple(parameter.shape))
    for owner, module in model.named_modules():
        if isinstance(weight := vars(module).get("weight"), Fillable):
            stored = weight.stored()
            yield _Entry(f"{owner}.weight", stored.meta, stored.parts)


def _fill(model: nn.Module, entries: Sequence[_Entry]) -> None:
    """Put weights in the places of parameters, once each parameter has one of its shape."""
    unfilled = dict(model.named_parameters())
    found = {entry.name: _restored(entry) for entry in entries}
    shapes = {name: tuple(weight.shape) for name, weight in found.items()}
    if shapes != {name: tuple(parameter.shape) for name, parameter in unfilled.items()}:
        raise ValueError("they are another model's")
    for name, weight in found.items():
        if isinstance(weight, Tensor):
            owner, _, leaf = name.rpartition(".")
            parameter = nn.Parameter(weight, requires_grad=False)
            setattr(model.get_submodule(owner), leaf, parameter)
        else:
            replace(model, name, weight)


def _restored(entry: _Entry) -> Tensor | Fillable:
    if entry.meta is not None:
        return ops.restore(Stored(entry.meta, entry.parts))
    (flat,) = entry.parts
    dtype: torch.dtype = getattr(torch, entry.dtype)
    return flat.view(dtype).view(entry.shape).clone()


def _write(target: Path, key: str, entries: Sequence[_Entry]) -> None:
    """All or nothing: the file gets its name when it is whole."""
    places, offset = [], 0
    for entry in entries:
        place = []
        for part in entry.parts:
            place.append((offset, len(part), ops.checksum(part)))
            offset += len(part) + -len(part) % _ALIGNMENT
        places.append(
            {"name": entry.name, "meta": entry.meta, "dtype": entry.dtype, "shape": entry.shape}
            | {"parts": place}
        )
    header = json.dumps({"key": key, "size": offset, "weights": places}).encode()
    header += b" " * (-(len(header) + 1) % _ALIGNMENT) + b"\n"
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".packed-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(header)
            for part in (part for entry in entries for part in entry.parts):
                file.write(part.numpy().data)
                file.write(b"\0" * (-len(part) % _ALIGNMENT))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _read(path: Path, key: str) -> Iterator[_Entry]:
    """The file's weights, in memory of our own, each checked against its sum."""
    with path.open("rb") as file:
        line = file.readline(_MOST_HEADER_BYTES)
        header = json.loads(line)
        size = path.stat().st_size - len(line)
        if header["key"] != key or header["size"] != size:
            raise ValueError(f"{path.name} is not whole")
        body = ops.aligned_memory(size)
        if file.readinto(body.numpy().data) != size:
            raise ValueError(f"{path.name} is not whole")
    for weight in header["weights"]:
        parts = []
        for offset, length, checksum in weight["parts"]:
            part = body[offset : offset + length]
            if len(part) != length or ops.checksum(part) != checksum:
                raise ValueError(f"{weight['name']} in {path.name} is damaged")
            parts.append(part)
        shape = tuple(weight["shape"])
        yield _Entry(weight["name"], weight["meta"], tuple(parts), weight["dtype"], shape)


def _make_room(newest: Path) -> None:
    """Remove the longest unused files until all together are small enough; never the newest."""
    files: Mapping[Path, os.stat_result] = {
        path: path.stat() for path in newest.parent.glob("*.packed")
    }
    total = sum(stat.st_size for stat in files.values())
    for path in sorted(files, key=lambda path: files[path].st_mtime):
        if total <= MOST_BYTES or path == newest:
            return
        path.unlink(missing_ok=True)
        total -= files[path].st_size
