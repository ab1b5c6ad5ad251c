"""Write safetensors files by hand, honest and dishonest ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from inferno.weights.open import open_checkpoint

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def raw_file(header: str | bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    """The bytes of a file: the header's length (or a lie about it), the header, the data."""
    header = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def entry(dtype: object, shape: object, offsets: object) -> dict[str, object]:
    """A tensor's entry in a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def tensor_file(header: Mapping[str, object], data: bytes = b"") -> bytes:
    """A file whose header is the JSON of `header`."""
    return raw_file(json.dumps(header), data)


def one_tensor(name: str = "w") -> bytes:
    """A valid file with one float32 tensor of two elements."""
    return tensor_file({name: entry("F32", [2], [0, 8])}, bytes(8))


def write_single(folder: Path, content: bytes) -> Path:
    """Put `content` into the folder as its only weights file."""
    (folder / SINGLE).write_bytes(content)
    return folder


def write_index(folder: Path, weight_map: object) -> Path:
    """Put an index with that weight map into the folder."""
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def accepts(folder: Path) -> bool:
    """Open the checkpoint in the folder and close it again; True unless that raises."""
    with open_checkpoint(folder):
        return True


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of a model by name."""
    return dict(model.named_parameters())
