"""Watch ops from outside; while nobody watches, calls cost nothing more."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from inferno.ops import reference
from inferno.ops.backend import FORWARD_OPS, Backend
from inferno.ops.dispatch import BACKENDS


class Observer(Protocol):
    """An object that is told of the calls of forward ops."""

    def wants(self, op: str) -> bool:
        """Return whether to be told of a call of an op; asked before each call."""

    def see(self, op: str, arguments: dict[str, Any], result: Any) -> None:
        """Take note of a call.

        arguments   by parameter names, as before the call; arguments that were left out are absent.
                    Activations are copies, weights and caches are not.
        result      a copy of the op's result.
        """


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Tell an observer of each forward op that is called until the block ends, on any device.

    The observer sees every engine of the process. A replayed step calls no ops
    (`EngineOptions.graphs`).
    """
    usual = dict(BACKENDS)
    for kind, backend in usual.items():
        # A proxy, which keeps the contract by passing everything on; types can't follow that.
        BACKENDS[kind] = cast(Backend, _Observed(backend, observer))
    try:
        yield
    finally:
        BACKENDS.update(usual)


class _Observed:
    """A backend that tells of the calls it passes on."""

    def __init__(self, backend: Backend, observer: Observer) -> None:
        self._backend = backend
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name not in FORWARD_OPS:
            return found

        def observed(*args: Any, **kwargs: Any) -> Any:
            if not self._observer.wants(name):
                return found(*args, **kwargs)
            bound = inspect.signature(getattr(reference, name)).bind(*args, **kwargs)
            before = {key: _copied(value) for key, value in bound.arguments.items()}
            result = found(*args, **kwargs)
            self._observer.see(name, before, _copied(result))
            return result

        return observed


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
        return value
    return value.detach().clone(memory_format=torch.contiguous_format)
