"""Who computes on which kind of device."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from torch import Tensor

from inferno.ops import reference
from inferno.ops.kernels import why_not


def _find_cpu_backend() -> ModuleType:
    if why_not():
        return reference
    return import_module("inferno.ops.cpu")


BACKENDS: dict[str, ModuleType] = {
    "cpu": _find_cpu_backend(),
    "cuda": reference,
    "mps": reference,
}


def backend(x: Tensor) -> ModuleType:
    """Who computes with such a tensor."""
    return BACKENDS[x.device.type]
