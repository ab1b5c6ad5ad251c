"""Quantized weights: what a model holds in their place, and how far that may be from the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inferno.layers.parameters import packed_weights
from inferno.ops import PackedExperts, PackedWeight, RowRanges
from inferno.quantization import FORMATS, InputRounding, Steps, WeightFormat, choose
from inferno.verify.oracles.plain_maths import ROUTERS
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.pieces import FusedSpec, Piece, find_pieces

_HALF_STEP = 0.5001
_NOTHING = 1e-30  # as small may become zero
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def far_off(found: Tensor, expected: Tensor, steps: Tensor, kind: str) -> Tensor:
    """Mark values farther from the file's than half a step, but for what is cut off."""
    due = _steps(kind)
    is_last = found.abs() > (due.last - 0.5) * steps
    is_beyond = (expected.abs() > found.abs()) & (expected.signbit() == found.signbit())
    allowed = torch.where(is_last & is_beyond, due.cut_off, _HALF_STEP) * steps
    return ~((found - expected).abs() <= allowed.clamp(min=_NOTHING))


def num_coarse_groups(values: Tensor, steps: Tensor, kind: str) -> int:
    """Count groups on the last axis whose scale is too large, so that codes go unused."""
    size = FORMATS[kind].group
    peaks = _groups(values.abs(), size).amax(-1)
    least = _steps(kind).least_peak * _groups(steps, size).amax(-1)
    return int((peaks < least).sum())


def _steps(kind: str) -> Steps:
    steps = FORMATS[kind].steps
    assert steps is not None, f"nothing is quantized to {kind}"
    return steps


def _groups(x: Tensor, size: int) -> Tensor:
    filled = F.pad(x, (0, -x.shape[-1] % size))
    return filled.view(*filled.shape[:-1], -1, size)


class DequantizedWeights(PlainWeights):
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
        self._packed = dict(packed_weights(model))
        self._places = {
            piece.name: (parameter, piece)
            for parameter in self._packed
            for piece in checkpoint_pieces(parameter, fused, self)
            if piece.name in self and quantized_type(piece.name, quantize)
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
                unpacked[parameter] = values_of(self._packed[parameter], torch.float32)
            stored_shape = self._checkpoint.tensors[name].shape
            result[name] = piece.part(unpacked[parameter]).reshape(stored_shape)
        return result


def quantized_type(source: str, quantize: str | None) -> str | None:
    """Return the type that a matrix of the checkpoint should be quantized to; None for a router."""
    module = source.removesuffix(".weight")
    return None if module.endswith(ROUTERS) else choose(module, quantize)


def rounding_beside(format: WeightFormat, device: torch.device) -> InputRounding:
    """Return what a device's kernels round a product's inputs to beside a format of weights.

    Beside experts they are never rounded to FP8.
    """
    is_so_everywhere = format.inputs is InputRounding.TO_FP8
    return format.inputs if is_so_everywhere or device.type == "cpu" else InputRounding.NOTHING


def checkpoint_pieces(parameter: str, fused: FusedSpec, weights: PlainWeights) -> Iterator[Piece]:
    """Yield the tensors of the checkpoint that a parameter is made of."""
    for piece in find_pieces(parameter, fused):
        is_elsewhere = piece.name == _EMBEDDING and _EMBEDDING not in weights
        yield replace(piece, name=_HEAD) if is_elsewhere else piece  # as tied ones may be


def holds_blocks(weight: PackedWeight | PackedExperts) -> bool:
    """Return whether a weight holds GGUF's blocks, beside which kernels round inputs to int8."""
    return any(one.block is not None for one in formats_of(weight))


def formats_of(weight: PackedWeight | PackedExperts) -> list[WeightFormat]:
    """Return the formats of a weight's ranges of rows."""
    if len(weight.shape) == 3:
        return formats_of(cast(PackedExperts, weight)[0])
    parts = weight.parts if isinstance(weight, RowRanges) else (weight,)
    formats = [getattr(part, "format", None) for part in parts]
    return [one for one in formats if isinstance(one, WeightFormat)]


def dtype_of(weight: PackedWeight | PackedExperts) -> torch.dtype:
    """Return the dtype that values were rounded to before they were laid out for kernels."""
    is_one = len(weight.shape) == 2
    return (cast(PackedWeight, weight) if is_one else cast(PackedExperts, weight)[0]).dtype


def values_of(weight: PackedWeight | PackedExperts, dtype: torch.dtype) -> Tensor:
    """Return the values of a weight that was laid out for kernels, unpacked on the CPU."""
    if len(weight.shape) == 2:
        return cast(PackedWeight, weight).unpack(dtype).cpu()
    experts = cast(PackedExperts, weight)
    return torch.stack([values_of(experts[index], dtype) for index in range(experts.shape[0])])


def steps_of(weight: PackedWeight | PackedExperts) -> Tensor | None:
    """Return how far apart the values lie that each could take; None if none was quantized."""
    if len(weight.shape) == 2:
        found = cast(PackedWeight, weight).steps()
        return None if found is None else found.cpu()
    experts = cast(PackedExperts, weight)
    steps = [steps_of(experts[index]) for index in range(experts.shape[0])]
    return torch.stack([one for one in steps if one is not None]) if None not in steps else None
