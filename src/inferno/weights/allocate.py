"""Give parameters on a device, in a type, to a model that was built without memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.errors import NotEnoughMemory
from inferno.ops import PackedExperts, PackedWeight
from inferno.quantization import BLOCK_FORMATS, FLOAT32, RowRange, WeightFormat, keep
from inferno.weights.memory import available_bytes
from inferno.weights.pieces import FusedSpec, find_pieces

# The format in which a matrix is kept, by its name, itself and the format of the files.
FormatOf = Callable[[str, Tensor, WeightFormat], WeightFormat]


def stays_packed(
    stored: WeightFormat, device: torch.device, dtype: torch.dtype, quantize: str | None
) -> bool:
    """Return whether weights of files in a format stay in it, by what the kernels can read.

    Weights in a format that may not be unpacked stay in any case.
    """
    if stored.block is not None:
        return keeps_blocks(device, dtype, quantize)
    return not stored.may_be_unpacked or ops.has_kernels(device, stored)


def keeps_blocks(device: torch.device, dtype: torch.dtype, quantize: str | None) -> bool:
    """Return whether a model's GGUF blocks stay packed: kernels must read all of the formats."""
    if quantize is not None or dtype == torch.float16:
        return False
    return all(ops.has_kernels(device, format) for format in BLOCK_FORMATS.values())


def check_fits(needed: float, device: torch.device, dtype: torch.dtype) -> None:
    """Raise NotEnoughMemory where weights of so many bytes don't fit in what `device` has left."""
    available = available_bytes(device)
    if available is not None and needed > available:
        raise _not_enough(needed, f"{_gib(available)} are available", device, dtype)


def weight_bytes(
    model: nn.Module,
    dtype: torch.dtype,
    quantize: str | None = None,
    fused: FusedSpec | None = None,
    stored: Mapping[str, WeightFormat] | None = None,
) -> dict[str, float]:
    """Return the bytes that each parameter takes, quantized, packed, or as floats in `dtype`.

    quantize    the format that weights are quantized to, a name of QUANTIZATIONS; None: none.
    fused       the tensors that are joined or packed in checkpoints.
    stored      the formats of a checkpoint's blocks that stay packed, by tensors' names.
    """
    sizes = {}
    for name, parameter in model.named_parameters():
        pieces = find_pieces(name, fused or {})
        formats = [(stored or {}).get(piece.name, piece.format or FLOAT32) for piece in pieces]
        kept = (
            kept_format(name, parameter, one, dtype, quantize)
            for one in of_one_kind(parameter, formats)
        )
        sizes[name] = sum(
            piece.part(parameter).numel() * format.bits / 8
            for piece, format in zip(pieces, kept, strict=True)
        )
    return sizes


def num_bytes(
    model: nn.Module,
    dtype: torch.dtype,
    quantize: str | None = None,
    fused: FusedSpec | None = None,
) -> float:
    """Return the bytes of all parameters together."""
    return sum(weight_bytes(model, dtype, quantize, fused).values())


def kept_format(
    name: str,
    parameter: Tensor,
    stored: WeightFormat | None,
    dtype: torch.dtype,
    quantize: str | None,
) -> WeightFormat:
    """Return the format in which a parameter, or some of its rows, are kept.

    stored      the format in the checkpoint. Packed rows stay packed; only GGUF's blocks change
                where another format is asked for. None: floats.
    """
    return keep(name, parameter.ndim, stored, ops.float_format(dtype), quantize)


def of_one_kind(parameter: Tensor, formats: Sequence[WeightFormat]) -> Sequence[WeightFormat]:
    """Return the formats of a parameter's sources, or floats for all if they must agree but don't.

    Kernels take the weights of a mixture's experts in one format.
    """
    must_agree = parameter.ndim > 2
    return [FLOAT32] * len(formats) if must_agree and len(set(formats)) > 1 else formats


def replace(model: nn.Module, name: str, weight: object) -> None:
    """Replace parameter `name` by an object that is no parameter."""
    owner, _, leaf = name.rpartition(".")
    module = model.get_submodule(owner)
    delattr(module, leaf)
    vars(module)[leaf] = weight


def allocate(model: nn.Module, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Replace parameter `name` by one of the same shape in new memory, not yet filled."""
    shape = model.get_parameter(name).shape
    try:
        memory = torch.empty(shape, device=device, dtype=dtype)
    except RuntimeError:  # what torch raises when an allocator fails, on any device
        needed = shape.numel() * dtype.itemsize
        raise _not_enough(needed, "the allocator has none left", device, dtype) from None
    owner, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(owner), leaf, nn.Parameter(memory, requires_grad=False))
    return memory


def allocate_packed(
    model: nn.Module,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    ranges: Sequence[RowRange],
    *,
    is_invariant: bool = False,
) -> PackedWeight | PackedExperts | None:
    """Replace weight `name` by a packed one, not yet filled; return None if kernels want it plain.

    ranges  the formats of its rows; dtype: of the activations that it meets; is_invariant: see
            `ops.allocate`.
    """
    shape = model.get_parameter(name).shape
    try:
        packed = ops.allocate(shape, dtype, device, ranges, is_invariant=is_invariant)
    except RuntimeError:
        bits = sum(one.num_rows * shape[-1] * one.format.bits for one in ranges)
        needed = math.ceil(bits / 8) * math.prod(shape[:-2])
        raise _not_enough(needed, "the allocator has none left", device, dtype) from None
    if packed is not None:
        replace(model, name, packed)
    return packed


def _not_enough(
    needed: float, available: str, device: torch.device, dtype: torch.dtype
) -> NotEnoughMemory:
    cure = "use --dtype bfloat16, which takes less" if dtype.itemsize > 2 else "use a smaller model"
    return NotEnoughMemory(
        f"the weights need {_gib(needed)} on {device} as {dtype}, and {available}; {cure}"
    )


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"
