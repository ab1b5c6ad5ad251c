"""The table of backends: one for each kind of device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from torch import Tensor

from inferno.compiled_kernels import why_not
from inferno.ops import reference
from inferno.ops.backend import Backend


def _find_cpu_backend() -> Backend:
    if why_not():
        return reference
    from inferno.ops import cpu  # noqa: PLC0415 - there are no kernels to import above

    return cpu


class _CudaBackend:
    """CUDA's backend, imported when it is first used: Triton takes longer than all the rest.

    Without Triton it is the reference, on which no engine is built (engine/execution/device.py).
    """

    __name__ = "inferno.ops.cuda"

    def __getattr__(self, name: str) -> Any:
        backend = import_module(self.__name__) if has_triton() else reference
        found = getattr(backend, name)
        setattr(self, name, found)
        return found


def has_triton() -> bool:
    """Return whether Triton is installed, which compiles the kernels for CUDA."""
    return find_spec("triton") is not None


def telling_of_kernels(kind: str, tell: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context in which `tell` gets the name of each kernel that is made ready to run.

    kind    of device.
    Those of a CPU are compiled when inferno is installed; of GPUs each is when it is first run.
    """
    if kind != "cuda" or not has_triton():
        return nullcontext()
    telling: Callable[..., AbstractContextManager[None]] = import_module(
        "inferno.ops.cuda.compiling"
    ).telling_of_kernels
    return telling(tell)


# Looked up at each call, so that `observing`, and a test, can put another in its place.
BACKENDS: dict[str, Backend] = {
    "cpu": _find_cpu_backend(),
    "cuda": cast(Backend, _CudaBackend()),
    "mps": reference,
}


def backend_of(x: Tensor) -> Backend:
    """Return the backend of a tensor's device."""
    return BACKENDS[x.device.type]
