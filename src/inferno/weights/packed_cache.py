"""Keep packed weights in a file of our own, so that a second start need not pack them.

A file is one line of JSON, filled up with blanks to a multiple of 64 bytes, then the tensors, each
at a multiple of 64. A file is found by the content of the weights and by all that decides how they
are packed. Its checksums are compared before it is used: damaged weights are packed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.home import UNFINISHED_PACKING, home_folder
from inferno.json_file import open_nonblocking
from inferno.ops import PackedWeight, Serializable, SerializedWeight
from inferno.ops.reference.stored import ALIGNMENT
from inferno.weights.allocate import replace
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.content import ContentHash, HashKey, sketch
from inferno.weights.known_files import KnownFiles
from inferno.weights.staging import CHUNK_BYTES
from inferno.whole_file import remove_unfinished, whole_file

MOST_BYTES = 24 * 2**30  # of all files together; the longest unused go first
_VERSION = 3  # of this format and of the packed layouts
_MOST_HEADER_BYTES = 1 << 24

# Errors that a file raises where it is read and is not as we wrote it.
_DAMAGE = (
    *(OSError, RuntimeError, ValueError, LookupError),
    *(TypeError, AttributeError, ArithmeticError, MemoryError),
)

_logger = logging.getLogger("inferno")

Progress = Callable[[int, int], None]


def folder() -> Path:
    """Return where the files are; RuntimeError where the user has no home."""
    return home_folder() / "packed"


class PackedCache:
    """The packed weights of a checkpoint, found by its content and by how it is packed.

    The content of files that have not changed since they were last read is known. Other files are
    hashed while they are read to be packed, or before, where packed weights of a copy may exist.
    """

    @classmethod
    def of(cls, checkpoint: Checkpoint, model: nn.Module, **choices: str) -> PackedCache | None:
        """Return the cache of a checkpoint and a model on the meta device; None if none is kept."""
        try:
            home = folder().parent / "known_weights"
            key = HashKey.of_user(home / "key")
        except (OSError, RuntimeError) as problem:
            _logger.info("packed weights are not cached: %s", problem)
            return None
        return cls(checkpoint, model, choices, key, KnownFiles(home / "files.json", key.name))

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: nn.Module,
        choices: Mapping[str, str],
        key: HashKey,
        known: KnownFiles,
    ) -> None:
        self._checkpoint = checkpoint
        self._choices = dict(choices)
        self._shapes = {name: list(each.shape) for name, each in model.named_parameters()}
        self._key = key
        self._known = known
        self._opened_at = time.time_ns()
        self._hashing = ContentHash(key, checkpoint)
        self._digests = self._known_digests()
        self._num_bytes = sum(info.stop - info.start for info in checkpoint.tensors.values())

    def load(self, model: nn.Module, progress: Progress | None = None) -> bool:
        """Fill the model with weights packed before; return False if there are none.

        progress    is called with the bytes read so far, and in all.

        A file that is damaged, or that describes another model, is removed.
        """
        tell = progress or _nobody
        if self._digests is None and any(folder().glob(f"{self._sketch}-*.packed")):
            self._digests = self._hashing.digests(lambda: tell(0, self._num_bytes))
            self._remember()
        if self._digests is not None:
            paths = folder().glob(f"*-{self._name()}.packed")
            return any(_load(model, path, tell) for path in paths)
        self._checkpoint.tell(self._hashing.see)
        return False

    def save(self, model: nn.Module, progress: Progress | None = None) -> None:
        """Keep the model's packed weights; if that fails, only log why.

        progress    is called between pieces; to it all bytes are loaded by now.
        """
        tell = progress or _nobody
        try:
            if self._digests is None:
                self._checkpoint.tell(None)
                self._digests = self._hashing.digests(
                    lambda: tell(self._num_bytes, self._num_bytes)
                )
                self._remember()
            if not self._checkpoint.is_as_opened():
                return  # a change behind the modification time: who knows what was read
            target = folder() / f"{self._sketch}-{self._name()}.packed"
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_unfinished(target.parent, UNFINISHED_PACKING)
            _write(target, target.stem, list(_entries(model)), tell)
            _make_room(target)
        except (OSError, RuntimeError) as problem:
            _logger.info("packed weights were not cached: %s", problem)

    def _known_digests(self) -> Mapping[Path, str] | None:
        identities = self._checkpoint.identities()
        found = {path: self._known.find(one) for path, one in identities.items()}
        digests = {path: digest for path, digest in found.items() if digest is not None}
        return digests if len(digests) == len(found) else None

    def _remember(self) -> None:
        """Note for the next start the content of files whose next change will show."""
        assert self._digests is not None
        settled = [
            (identity, self._digests[path])
            for path, identity in self._checkpoint.identities().items()
            if identity.is_settled(self._opened_at)
        ]
        if settled and self._checkpoint.is_as_opened():
            try:
                self._known.add(settled)
            except OSError as problem:
                _logger.info("the content of weights was not noted: %s", problem)

    def _name(self) -> str:
        """Return a name made of the content, and of all that shapes what is packed of it."""
        assert self._digests is not None
        shaping = [_VERSION, sorted(self._digests.values()), self._shapes, self._choices]
        return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _sketch(self) -> str:
        return sketch(self._key, self._checkpoint)


def _load(model: nn.Module, path: Path, progress: Progress) -> bool:
    try:
        entries = list(_read(path, progress))
        _fill(model, entries)
    except FileNotFoundError:
        return False
    except _DAMAGE as problem:
        _logger.warning("the packed weights in the cache can't be used (%s): packing anew", problem)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    with contextlib.suppress(OSError):
        os.utime(path)
    return True


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
        if isinstance(weight := vars(module).get("weight"), Serializable):
            serialized = weight.serialize()
            yield _Entry(f"{owner}.weight", serialized.meta, serialized.parts)


def _fill(model: nn.Module, entries: Sequence[_Entry]) -> None:
    """Put weights in the places of parameters, once each parameter has one of its shape."""
    unfilled = dict(model.named_parameters())
    found = {entry.name: _deserialized(entry) for entry in entries}
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


def _deserialized(entry: _Entry) -> Tensor | PackedWeight:
    if entry.meta is not None:
        return ops.deserialize(SerializedWeight(entry.meta, entry.parts))
    (flat,) = entry.parts
    dtype: torch.dtype = getattr(torch, entry.dtype)
    return flat.view(dtype).view(entry.shape).clone()


def _write(target: Path, key: str, entries: Sequence[_Entry], progress: Progress) -> None:
    """Write the file, all or nothing."""
    places, offset = [], 0
    for entry in entries:
        place = []
        for part in entry.parts:
            place.append((offset, len(part), ops.checksum(part)))
            offset += len(part) + -len(part) % ALIGNMENT
        places.append(
            {"name": entry.name, "meta": entry.meta, "dtype": entry.dtype, "shape": entry.shape}
            | {"parts": place}
        )
    header = json.dumps({"key": key, "size": offset, "weights": places}).encode()
    header += b" " * (-(len(header) + 1) % ALIGNMENT) + b"\n"
    with whole_file(target, prefix=UNFINISHED_PACKING) as file:
        file.write(header)
        for part in (part for entry in entries for part in entry.parts):
            for first in range(0, len(part), CHUNK_BYTES):
                file.write(part[first : first + CHUNK_BYTES].numpy().data)
                progress(offset, offset)
            file.write(b"\0" * (-len(part) % ALIGNMENT))


def _read(path: Path, progress: Progress) -> Iterator[_Entry]:
    """Yield the file's weights, in memory of our own, each checked against its sum."""
    with open(path, "rb", opener=open_nonblocking) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path.name} is no regular file")
        line = file.readline(_MOST_HEADER_BYTES)
        header = json.loads(line)
        size = status.st_size - len(line)
        if header["key"] != path.stem or header["size"] != size:
            raise ValueError(f"{path.name} is not whole")
        body = ops.aligned_memory(size)
        num_read = 0
        for first in range(0, size, CHUNK_BYTES):
            num_read += file.readinto(body[first : first + CHUNK_BYTES].numpy().data)
            progress(num_read, size)
        if num_read != size:
            raise ValueError(f"{path.name} is not whole")
    for weight in header["weights"]:
        parts = []
        for offset, length, checksum in weight["parts"]:
            part = body[offset : offset + length]
            if offset < 0 or len(part) != length or ops.checksum(part) != checksum:
                raise ValueError(f"{weight['name']} in {path.name} is damaged")
            parts.append(part)
        progress(size, size)
        shape = tuple(weight["shape"])
        yield _Entry(weight["name"], weight["meta"], tuple(parts), weight["dtype"], shape)


def _nobody(done: int, total: int) -> None:
    """Ignore how far packing is, as nobody asks."""


def _make_room(newest: Path) -> None:
    """Remove the longest unused files until all together are small enough; never the newest."""
    files: dict[Path, os.stat_result] = {}
    for path in newest.parent.glob("*.packed"):
        with contextlib.suppress(FileNotFoundError):  # another process may make room too
            files[path] = path.stat()
    total = sum(stat.st_size for stat in files.values())
    for path in sorted(files, key=lambda path: files[path].st_mtime):
        if total <= MOST_BYTES or path == newest:
            return
        path.unlink(missing_ok=True)
        total -= files[path].st_size
