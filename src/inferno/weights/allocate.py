"""Give a model that was built without memory its parameters, on a device and in a type."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inferno.errors import NotEnoughMemory
from inferno.weights.memory import available_bytes


def check_fits(needed: int, device: torch.device, dtype: torch.dtype) -> None:
    """Raise NotEnoughMemory where weights of so many bytes don't fit in what `device` has left."""
    available = available_bytes(device)
    if available is not None and needed > available:
        raise _not_enough(needed, f"{_gib(available)} are available", device, dtype)


def num_bytes(model: nn.Module, dtype: torch.dtype) -> int:
    """Return the number of bytes that the parameters take, floats in `dtype`."""
    return sum(
        parameter.numel() * kept_dtype(parameter, dtype).itemsize
        for parameter in model.parameters()
    )


def replace(model: nn.Module, name: str, weight: object) -> None:
    """Put what is no parameter in the place of parameter `name`."""
    owner, _, leaf = name.rpartition(".")
    module = model.get_submodule(owner)
    delattr(module, leaf)
    vars(module)[leaf] = weight


def owners(model: nn.Module) -> list[tuple[nn.Module, list[str]]]:
    """Return modules with parameters of their own, in order, with the parameters' full names."""
    return [
        (module, [f"{name}.{leaf}".lstrip(".") for leaf, _ in parameters])
        for name, module in model.named_modules()
        if (parameters := list(module.named_parameters(recurse=False)))
    ]


def kept_dtype(parameter: Tensor, dtype: torch.dtype) -> torch.dtype:
    """Return the type that a parameter is kept in: `dtype` for floats, packed bits as they are."""
    return dtype if parameter.is_floating_point() else parameter.dtype


def allocate(model: nn.Module, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Replace parameter `name` by one of the same shape in new memory, not yet filled.

    Floats become `dtype`; packed bits stay what they are.
    """
    parameter = model.get_parameter(name)
    shape, dtype = parameter.shape, kept_dtype(parameter, dtype)
    try:
        memory = torch.empty(shape, device=device, dtype=dtype)
    except RuntimeError:  # what torch raises when an allocator fails, on any device
        needed = shape.numel() * dtype.itemsize
        raise _not_enough(needed, "the allocator has none left", device, dtype) from None
    owner, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(owner), leaf, nn.Parameter(memory, requires_grad=False))
    return memory


def _not_enough(
    needed: int, available: str, device: torch.device, dtype: torch.dtype
) -> NotEnoughMemory:
    cure = "use --dtype bfloat16, which takes less" if dtype.itemsize > 2 else "use a smaller model"
    return NotEnoughMemory(
        f"the weights need {_gib(needed)} on {device} as {dtype}, and {available}; {cure}"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
