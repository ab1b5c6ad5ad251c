"""Read the facts of a model from its files: architecture, parameters, dtype, context, tensors."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferno.errors import CheckpointError, ModelError, TokenizerError
from inferno.gguf.file import read_gguf
from inferno.gguf.tensor_types import read_packed_name
from inferno.json_file import (
    INDEX_FILE,
    MAX_DIMS,
    MAX_HEADER_BYTES,
    MAX_INDEX_BYTES,
    MAX_TEMPLATE_BYTES,
    SINGLE_FILE,
    open_nonblocking,
    read_file,
    read_json,
)
from inferno.untrusted_json import Malformed, parse_object

_MAX_VALUES = 2**63 - 1
_DTYPE = re.compile(r"[A-Z0-9_]{1,32}")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a safetensors file, as the file's header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model in figures; a figure is None where the files don't say it, or can't be read."""

    architecture: str | None
    num_parameters: int | None
    dtype: str | None
    context: int | None


def read_facts(path: Path) -> ModelFacts:
    """Return the facts of a model in a folder or a GGUF file, for a table of models."""
    if path.is_file():
        return _gguf_facts(path)
    folder = path
    try:
        config = read_json(folder / "config.json", error=ModelError)
    except ModelError:
        config = {}
    try:
        elements: Counter[str] = Counter()
        for tensor in read_tensors(folder):
            elements[tensor.dtype] += math.prod(tensor.shape)
    except ModelError:
        elements = Counter()
    context = config.get("max_position_embeddings")
    return ModelFacts(
        architecture=_first_text(config.get("architectures")),
        num_parameters=elements.total() or None,
        dtype=elements.most_common(1)[0][0] if elements else None,
        context=_length(context),
    )


def read_tensors(folder: Path) -> Iterator[Tensor]:
    """Yield the tensors of a GGUF file, or of the files of a folder that are loaded.

    Other files of the folder may have the same weights in another format. Raises CheckpointError
    where a file is missing or damaged.
    """
    if folder.is_file():
        for file, tensor in read_gguf(folder).tensors.values():
            yield Tensor(tensor.name, tensor.type.name, tensor.shape, file.name)
        return
    names = weight_files(folder)
    if names is None:
        names = {path.name for path in folder.glob("*.safetensors")}
    for name in sorted(names):
        yield from tensors_of(_header(folder / name), name, str(folder / name))


def weight_files(folder: Path) -> set[str] | None:
    """Return the names of the files that hold a folder's weights: one, or those of an index.

    Returns None where there is neither. Raises CheckpointError where the index is damaged.
    """
    if os.path.lexists(folder / SINGLE_FILE):
        return {SINGLE_FILE}
    if not os.path.lexists(folder / INDEX_FILE):
        return None
    index = read_json(folder / INDEX_FILE, error=CheckpointError, max_bytes=MAX_INDEX_BYTES)
    shards = index.get("weight_map")
    names = shards.values() if isinstance(shards, dict) else ()  # loading refuses all else
    return {
        name
        for name in names
        if isinstance(name, str) and name.isprintable() and Path(name).name == name
    }


def tensors_of(header: Mapping[str, Any], file: str, place: str) -> Iterator[Tensor]:
    """Yield the tensors of a safetensors header; `place` names the file in messages.

    Raises CheckpointError where a tensor's description is impossible.
    """
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        match entry:
            case {"dtype": str(dtype), "shape": list(shape)} if (
                name.isprintable() and _DTYPE.fullmatch(dtype) and _is_shape(shape)
            ):
                yield _named(name, dtype, tuple(shape), file, place)
            case _:
                raise CheckpointError(f"{place}: its header can't be read")


def check_safetensors(path: Path) -> None:
    """Raise CheckpointError where a safetensors file isn't as its header says."""
    header = _header(path)
    for _ in tensors_of(header, path.name, str(path)):
        pass
    stops = [_stop(entry) for name, entry in header.items() if name != "__metadata__"]
    with open(path, "rb", opener=open_nonblocking) as file:
        stop = 8 + int.from_bytes(file.read(8), "little") + max(stops, default=0)
        size = os.fstat(file.fileno()).st_size
    if not stops or stop != size:
        raise CheckpointError(
            f"{path}: its tensors end at byte {stop}, and the file has {size}: it is damaged, or "
            "its download was cut short"
        )


def _stop(entry: Mapping[str, Any]) -> int:
    match entry.get("data_offsets"):
        case [int(), int(stop)]:
            return stop
    return -1  # no file ends there


def read_template(folder: Path) -> str | None:
    """Return the chat template of a model, the default one of several; None without a template."""
    if folder.is_file():
        found = read_gguf(folder).metadata.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None
    if (folder / "chat_template.jinja").exists():
        content = read_file(
            folder / "chat_template.jinja", error=ModelError, max_bytes=MAX_TEMPLATE_BYTES
        )
        return content.decode("utf-8", errors="replace")
    if not (folder / "tokenizer_config.json").exists():
        return None
    template = read_json(folder / "tokenizer_config.json", error=TokenizerError).get(
        "chat_template"
    )
    named = {
        str(each["name"]): each["template"]
        for each in (template if isinstance(template, list) else ())
        if isinstance(each, dict) and {"name", "template"} <= each.keys()
    }
    if named:
        template = named.get("default", next(iter(named.values())))
    return template if isinstance(template, str) else None


def _gguf_facts(path: Path) -> ModelFacts:
    try:
        model = read_gguf(path)
    except CheckpointError:
        return ModelFacts(None, None, None, None)
    elements: Counter[str] = Counter()
    for _, tensor in model.tensors.values():
        elements[tensor.type.name] += math.prod(tensor.shape)
    architecture = model.metadata.get("general.architecture")
    context = model.metadata.get(f"{architecture}.context_length")
    return ModelFacts(
        architecture=_first_text([architecture]),
        num_parameters=elements.total() or None,
        dtype=elements.most_common(1)[0][0] if elements else None,
        context=_length(context),
    )


def _header(path: Path) -> Mapping[str, Any]:
    try:
        with open(path, "rb", opener=open_nonblocking) as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if 0 < length <= MAX_HEADER_BYTES else b""
        return parse_object(header)
    except OSError as problem:
        raise CheckpointError(f"{path}: can't be opened: {problem.strerror}") from None
    except Malformed:
        raise CheckpointError(f"{path}: its header can't be read") from None


def _named(name: str, dtype: str, shape: tuple[int, ...], file: str, place: str) -> Tensor:
    """Return the tensor of a header's entry; of GGUF's blocks, the weight that they hold."""
    named = read_packed_name(name)
    if named is None:
        return Tensor(name, dtype, shape, file)
    if len(shape) < 2:
        raise CheckpointError(f"{place}: its header can't be read")
    weight, type = named
    *leading, num_blocks, _ = shape
    return Tensor(weight, type.name, (*leading, num_blocks * type.block_values), file)


def _is_shape(sizes: list[object]) -> bool:
    """Return whether these are the sizes of a tensor, as the loader takes them."""
    num_values = 1
    for size in sizes[: MAX_DIMS + 1]:
        if type(size) is not int or not 0 <= size <= _MAX_VALUES:
            return False
        num_values *= size or 1
    return len(sizes) <= MAX_DIMS and num_values <= _MAX_VALUES


def _length(value: object) -> int | None:
    """Return a context's length, if it may be one: a config.json can have thousands of digits."""
    return value if type(value) is int and 0 <= value <= _MAX_VALUES else None


def _first_text(value: object) -> str | None:
    match value:
        case [str(text), *_] if text.isprintable():
            return text[:64]
    return None
