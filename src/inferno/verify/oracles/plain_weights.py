"""A checkpoint's tensors by their Hugging Face names, read when asked for."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from inferno.weights.checkpoint import FLOATS, Checkpoint

_DOWN = ("down_proj.weight", "w2.weight")  # the second product; Mixtral calls it otherwise
_EXPERTS = (*_DOWN, "gate_proj.weight", "up_proj.weight", "w1.weight", "w3.weight")


class PlainWeights:
    """An open checkpoint, read into the CPU's memory: floats as `dtype`, others as stored.

    as_kept  GGUF's blocks that are kept in a format without all of their values have that format's.
    """

    described = ""

    def __init__(
        self, checkpoint: Checkpoint, dtype: torch.dtype, *, as_kept: bool = False
    ) -> None:
        self.dtype = dtype
        self._checkpoint = checkpoint
        self._rounded = _kept_otherwise(checkpoint) if as_kept else {}

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.tensors

    @property
    def names(self) -> list[str]:
        return sorted(self._checkpoint.tensors)

    def __getitem__(self, name: str) -> Tensor:
        info = self._checkpoint.tensors[name]
        assert isinstance(info.dtype, torch.dtype), f"{name} is of a type that can't be read"
        dtype = self.dtype if info.dtype in FLOATS else info.dtype
        if name in self._rounded and len(info.shape) > 1:
            return self._checkpoint.read_as_kept(name, self._rounded[name]).to(dtype)
        tensor = torch.empty(info.shape, dtype=dtype)
        self._checkpoint.read_into(name, tensor)
        return tensor

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a tensor's name, type, shape and stored bytes."""
        info = self._checkpoint.tensors[name]
        content = hashlib.sha256(f"{name} {info.dtype} {info.shape} ".encode())
        if isinstance(info.dtype, torch.dtype):
            stored = torch.empty(info.shape, dtype=info.dtype)
            self._checkpoint.read_into(name, stored)
            content.update(stored.view(-1).view(torch.uint8).numpy().data)
        return content.hexdigest()

    def is_taken_exactly(self, name: str, kind: str) -> bool:
        """Return whether a weight of the files keeps all of its values in a format of that name."""
        return self._checkpoint.is_taken_exactly(name, kind)

    def layer(self, index: int) -> dict[str, Tensor]:
        """Return all tensors of a layer, by what follows `model.layers.N.`."""
        prefix = f"model.layers.{index}."
        names = [name for name in self._checkpoint.tensors if name.startswith(prefix)]
        return {name.removeprefix(prefix): tensor for name, tensor in self.read(names).items()}

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read several tensors by name."""
        return {name: self[name] for name in names}

    def embedding(self) -> Tensor:
        """Return the embedding table, which a tied checkpoint may store as the head."""
        name = "model.embed_tokens.weight"
        return self[name if name in self else "lm_head.weight"]

    def head(self, *, tied: bool) -> Tensor:
        """Return the matrix that makes logits."""
        return self.embedding() if tied else self["lm_head.weight"]


def _kept_otherwise(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the formats that replace blocks without holding all of their values exactly.

    Experts of a layer whose formats differ within a product become floats, so theirs stay exact.
    """
    formats = defaultdict(set)
    for name, stored in checkpoint.stored.items():
        formats[_product_of(name)].add(stored.format)
    return {
        name: format
        for name, format in checkpoint.rounded_blocks().items()
        if len(formats[_product_of(name)]) == 1
    }


def _product_of(name: str) -> str:
    """Return what is one for all weights that experts of a layer multiply by at once.

    Gates and ups go together. Of other weights it is their name.
    """
    layer, is_expert, expert = name.partition(".experts.")
    product = expert.partition(".")[2]
    return f"{layer} {product in _DOWN}" if is_expert and product in _EXPERTS else name
