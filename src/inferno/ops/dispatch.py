"""The table of backends: one for each kind of device."""

from __future__ import annotations

from torch import Tensor

from inferno.ops import reference
from inferno.ops.backend import Backend
from inferno.ops.kernels import why_not


def _find_cpu_backend() -> Backend:
    if why_not():
        return reference
    from inferno.ops import cpu  # noqa: PLC0415 - there are no kernels to import above

    return cpu


# Looked up at each call, so that `observing`, and a test, can put another in its place.
BACKENDS: dict[str, Backend] = {
    "cpu": _find_cpu_backend(),
    "cuda": reference,
    "mps": reference,
}


def backend_of(x: Tensor) -> Backend:
    """Return the backend that computes with such a tensor."""
    return BACKENDS[x.device.type]
