"""Open a GGUF file, or all files of one that is split, and read their headers."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from inferno.errors import CheckpointError
from inferno.file_identity import FileIdentity
from inferno.gguf.header import GgufHeader, GgufTensor, ReadBytes, Value, parse_header
from inferno.json_file import missing_file
from inferno.untrusted_json import Malformed, quoted

# Shards are named by their number and their count, as llama.cpp's gguf-split names them.
_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_SHARDS = 999

# What to do about a file whose parts don't fit together.
OTHER_FILE = "download the file again, or take another one of the model"

# Headers that somebody holds. Parsing one with a vocabulary takes longer than all else of it.
_held: WeakValueDictionary[FileIdentity, GgufHeader] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class GgufModel:
    """The headers of a GGUF model's files.

    metadata  the metadata of the first file; in other files it only counts files.
    tensors   the tensors of all files by name, each with its file.
    """

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, tuple[Path, GgufTensor]]
    headers: Mapping[Path, GgufHeader]


def is_gguf_name(path: Path) -> bool:
    """Return whether a file's name says that it is a GGUF file."""
    return path.suffix.lower() == ".gguf"


def is_gguf_file(path: Path) -> bool:
    """Return whether a path is that of a GGUF file, by its name; a folder's never is."""
    return is_gguf_name(path) and not path.is_dir()


def no_tensors(path: Path) -> CheckpointError:
    """Return the error of a file that has no tensors."""
    return CheckpointError(f"{path}: holds a vocabulary and no weights; give a model's file")


def is_later_shard(path: Path) -> bool:
    """Return whether a file's name says that it is a later file of a split model."""
    name = _SHARD_NAME.fullmatch(path.name)
    return name is not None and int(name["number"]) > 1


def split_files(path: Path) -> list[Path]:
    """Return all files of the split model that a file is a part of by its name, else the file."""
    name = _SHARD_NAME.fullmatch(path.name)
    if name is None or not 1 <= int(name["number"]) <= int(name["count"]) <= _MAX_SHARDS:
        return [path]
    return _shards(path, name["stem"], int(name["count"]))


def _shards(path: Path, stem: str, count: int) -> list[Path]:
    numbers = range(1, count + 1)
    return [path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in numbers]


def read_header(path: Path) -> GgufHeader:
    """Read the header of one file. Raises CheckpointError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
    except FileNotFoundError:
        raise missing_file(path) from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        raise CheckpointError(f"{path}: can't be opened: {problem}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path}: is not a regular file; weights are read from files")
        identity = FileIdentity.of(status)
        return header_of(identity, lambda start, size: _read(handle, start, size))
    except Malformed as problem:
        raise CheckpointError(f"{path}: {problem}") from None
    except OSError as problem:
        raise CheckpointError(f"{path}: can't be read: {problem.strerror}") from None
    finally:
        os.close(handle)


def header_of(identity: FileIdentity, read: ReadBytes) -> GgufHeader:
    """Return the header of an open file, which is not parsed again while somebody holds it.

    Raises Malformed, and what `read` raises.
    """
    if (known := _held.get(identity)) is not None:
        return known
    opened_at = time.time_ns()
    header = parse_header(read, identity.size)
    if identity.is_settled(opened_at):
        _held[identity] = header
    return header


@contextmanager
def held_headers(path: Path) -> Iterator[None]:
    """Parse the headers of a model's GGUF files once within the block, whoever reads them.

    A model of another kind, or a damaged one, raises no error here, but when it is read.
    """
    model = None
    with suppress(CheckpointError):
        model = read_gguf(path) if is_gguf_name(path) and path.is_file() else None
    yield
    del model


def read_gguf(path: Path, read: Callable[[Path], GgufHeader] = read_header) -> GgufModel:
    """Read the headers of a model's files, of which `path` is the only one or the first.

    read  returns the header of one file.

    Raises CheckpointError where one is missing or damaged, or is not a model's first.
    """
    first = read(path)
    headers = {path: first}
    others = _other_shards(path, first.metadata)
    _check_first(path, first.metadata)
    for other in others:
        headers[other] = read(other)
    for number, (shard, header) in enumerate(headers.items()):
        _check_number(shard, header.metadata, number, len(headers))
    tensors = _tensors(headers)
    due = first.metadata.get("split.tensors.count", len(tensors))
    if others and due != len(tensors):  # what may be absent, as a head may, would be taken as such
        raise CheckpointError(
            f"{path}: says that its {len(headers)} files hold {due!r:.40} tensors, and they hold "
            f"{len(tensors)}: one of them is another model's; download them again"
        )
    return GgufModel(path, first.metadata, tensors, headers)


def _read(handle: int, start: int, size: int) -> bytes:
    content = os.pread(handle, size, start)
    if not content:
        raise Malformed("it became shorter while it was read; wait for the download to finish")
    return content


def _other_shards(path: Path, metadata: Mapping[str, Value]) -> list[Path]:
    """Return the paths of the files that follow the first one of a split model."""
    count = metadata.get("split.count", 1)
    if not isinstance(count, int) or not 0 <= count <= _MAX_SHARDS:
        raise CheckpointError(f"{path}: split.count must be a number of files, not {count!r:.80}")
    if count <= 1:
        return []
    name = _SHARD_NAME.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise CheckpointError(
            f"{path}: is one of {count} files and must be named as such: NAME-00001-of-"
            f"{count:05}.gguf; give it the name that it was downloaded under"
        )
    return _shards(path, name["stem"], count)[1:]


def _check_first(path: Path, metadata: Mapping[str, Value]) -> None:
    """Refuse a file that goes on with a model; what it lacks would be said otherwise."""
    number, count = metadata.get("split.no", 0), metadata.get("split.count", 1)
    if number != 0 and count != 1:
        name = _SHARD_NAME.fullmatch(path.name)
        first = f", {name['stem']}-00001-of-{name['count']}.gguf" if name else ""
        raise CheckpointError(
            f"{path}: is number {number!r:.40} of {count!r:.40} files, counted from 0; give the "
            f"first one{first}"
        )


def _check_number(path: Path, metadata: Mapping[str, Value], number: int, count: int) -> None:
    found = metadata.get("split.no", 0), metadata.get("split.count", count)
    if count == 1 or found == (number, count):
        return
    raise CheckpointError(
        f"{path}: says that it is number {found[0]!r:.40} of {found[1]!r:.40} files, expected "
        f"{number} of {count}; download it again"
    )


def _tensors(headers: Mapping[Path, GgufHeader]) -> dict[str, tuple[Path, GgufTensor]]:
    tensors: dict[str, tuple[Path, GgufTensor]] = {}
    for path, header in headers.items():
        for tensor in header.tensors:
            if tensor.name in tensors:
                other = tensors[tensor.name][0]
                raise CheckpointError(
                    f"{path}: has tensor {quoted(tensor.name)}, and so has {other}; download the "
                    "files again"
                )
            tensors[tensor.name] = (path, tensor)
    return tensors
