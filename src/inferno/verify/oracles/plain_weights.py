"""A checkpoint's tensors by their Hugging Face names, read when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from inferno.weights.checkpoint import FLOATS, Checkpoint


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
        self._rounded = checkpoint.rounded_blocks() if as_kept else {}

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
