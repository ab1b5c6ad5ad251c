"""Check that files make a whole model, which runs, before the store counts them as one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from inferno.errors import CheckpointError
from inferno.gguf.file import (
    is_gguf_name,
    is_later_shard,
    no_tensors,
    read_gguf,
    read_header,
)
from inferno.gguf.header import GgufHeader
from inferno.hub.facts import check_safetensors, weight_files
from inferno.hub.kinds import lacked_shard, refuse_gguf
from inferno.json_file import MAX_TOKENIZER_BYTES, TEMPLATE_FILES, missing_file, read_file
from inferno.untrusted_json import Malformed, parse_value

_PAGE = (b"<!doctype", b"<html")


def check_shards(folder: Path, names: Collection[str]) -> None:
    """Raise CheckpointError where a shard is missing that a folder's index names."""
    for name in sorted(weight_files(folder) or ()):
        if name not in names:
            raise missing_file(Path(name))


def check_small(paths: Iterable[Path]) -> None:
    """Raise CheckpointError where JSON can't be parsed, or a chat template is a page of the web."""
    for path in paths:
        content = read_file(path, error=CheckpointError, max_bytes=MAX_TOKENIZER_BYTES)
        try:
            if path.suffix == ".json":
                parse_value(content, may_repeat=True)
        except Malformed as problem:
            raise CheckpointError(f"{path} can't be read: {problem}") from None
        is_template = any(path.match(name) for name in TEMPLATE_FILES.values())
        if is_template and content.lstrip()[:9].lower().startswith(_PAGE):
            raise CheckpointError(f"{path} is a page of the web, not a chat template")


def check_weights(model: str, names: Collection[str], place: Callable[[str], Path] = Path) -> None:
    """Raise ModelError where weights are damaged, incomplete or of a kind that we don't run.

    place   returns the path of a file.
    """

    def read(path: Path) -> GgufHeader:
        return read_header(place(str(path)))

    if (lacked := lacked_shard(names)) is not None:
        raise missing_file(Path(lacked))
    for name in sorted(names):
        path = Path(name)
        if name.endswith(".safetensors"):
            check_safetensors(place(name))
        elif is_gguf_name(path) and not is_later_shard(path):
            found = read_gguf(path, read)
            if not found.tensors:
                raise no_tensors(place(name))
            refuse_gguf(model, found)
