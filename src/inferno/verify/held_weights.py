"""The weights that a quantized model holds, by the checkpoint's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from inferno.layers.parameters import prepared_weights
from inferno.ops import Prepared, PreparedExperts
from inferno.verify.plain_experts import ROUTERS
from inferno.verify.plain_weights import PlainWeights
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.pieces import FusedSpec, Piece, find_pieces

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


class HeldWeights(PlainWeights):
    """A checkpoint's tensors; of those that were quantized, what a model holds, in float32."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        *,
        model: nn.Module,
        fused: FusedSpec,
        quantize: str,
    ) -> None:
        super().__init__(checkpoint, dtype)
        self.described = f", over the weights as {quantize} holds them"
        self._held = dict(prepared_weights(model))
        self._places = {
            piece.name: (parameter, piece)
            for parameter in self._held
            for piece in sources(parameter, fused, self)
            if piece.name in self and becomes(piece.name, quantize)
        }

    def __getitem__(self, name: str) -> Tensor:
        return self.read([name])[name]

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read several tensors by name; what a model holds as one is unpacked once."""
        unpacked: dict[str, Tensor] = {}
        result = {}
        for name in names:
            if name not in self._places:
                result[name] = super().__getitem__(name)
                continue
            parameter, piece = self._places[name]
            if parameter not in unpacked:
                unpacked[parameter] = values_of(self._held[parameter], torch.float32)
            stored_shape = self._checkpoint.tensors[name].shape
            result[name] = piece.part(unpacked[parameter]).reshape(stored_shape)
        return result


def becomes(source: str, quantize: str | None) -> str | None:
    """Return the type that a matrix of the checkpoint should be quantized to; None for a router.

    The embedding and the head are int8 always: no later layer mends a logit.
    """
    if quantize is not None and source in (_EMBEDDING, _HEAD):
        return "int8"
    return None if source.removesuffix(".weight").endswith(ROUTERS) else quantize


def sources(parameter: str, fused: FusedSpec, weights: PlainWeights) -> Iterator[Piece]:
    """Yield the tensors of the checkpoint that a parameter is made of."""
    for piece in find_pieces(parameter, fused):
        is_elsewhere = piece.name == _EMBEDDING and _EMBEDDING not in weights
        yield replace(piece, name=_HEAD) if is_elsewhere else piece  # as tied ones may be


def dtype_of(weight: Prepared | PreparedExperts) -> torch.dtype:
    """Return the dtype that values were rounded to before they were laid out for kernels."""
    is_one = len(weight.shape) == 2
    return (cast(Prepared, weight) if is_one else cast(PreparedExperts, weight)[0]).dtype


def values_of(weight: Prepared | PreparedExperts, dtype: torch.dtype) -> Tensor:
    """Return the values of a weight that was laid out for kernels, unpacked to a dtype."""
    if len(weight.shape) == 2:
        return cast(Prepared, weight).unpack(dtype)
    experts = cast(PreparedExperts, weight)
    return torch.stack([values_of(experts[index], dtype) for index in range(experts.shape[0])])


def steps_of(weight: Prepared | PreparedExperts) -> Tensor | None:
    """Return how far apart the values lie that each could take; None if none was quantized."""
    if len(weight.shape) == 2:
        return cast(Prepared, weight).steps()
    experts = cast(PreparedExperts, weight)
    steps = [steps_of(experts[index]) for index in range(experts.shape[0])]
    return torch.stack([one for one in steps if one is not None]) if None not in steps else None
