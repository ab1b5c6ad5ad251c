"""Watch a model from outside while it runs: which module computes, and what each op is given.

For the time of the recording each backend of `ops` is replaced by one that passes every call on and
tells of it, and torch's hooks on all modules tell where in the model the call comes from. The code
that is watched has no branch for it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from inferno import ops
from inferno.layers.decoder import CausalLM

Wanted = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op.

    where      the innermost module around it, by its name in the model.
    weight     the name of the parameter that it was given as weight, or "".
    arguments  by the contract's names: tensors as they were before the call, others as they are.
    result     what came back, as it was then.
    """

    op: str
    where: str
    weight: str
    arguments: dict[str, Any]
    result: Any


@dataclass(slots=True)
class Recording:
    """What is known while it lasts; `model` is found when it runs first."""

    model: CausalLM | None = None
    module_names: dict[int, str] = field(default_factory=dict)
    weight_names: dict[int, str] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return self.inside[-1] if self.inside else ""


@contextlib.contextmanager
def recording(
    wanted: Wanted, on_call: Callable[[Call], None], on_module: Callable[[str, Any, Any], None]
) -> Iterator[Recording]:
    """Tell of every op call for which `wanted(op, where)`, and of every module's inputs, output."""
    found = Recording()

    def enter(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, CausalLM) and found.model is None:
            _learn_names(found, module)
        found.inside.append(found.module_names.get(id(module), ""))

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        name = found.inside.pop()
        on_module(name, inputs, output)

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave),
    ]
    backends = dict(ops.BACKENDS)
    for kind, backend in backends.items():
        ops.BACKENDS[kind] = cast(ModuleType, _Watched(backend, found, wanted, on_call))
    try:
        yield found
    finally:
        ops.BACKENDS.update(backends)
        for handle in handles:
            handle.remove()


def _learn_names(found: Recording, model: CausalLM) -> None:
    found.model = model
    found.module_names = {id(module): name for name, module in model.named_modules()}
    found.weight_names = {id(weight): name for name, weight in model.named_parameters()}


class _Watched:
    """A backend that tells of the calls it passes on."""

    def __init__(
        self,
        backend: ModuleType,
        found: Recording,
        wanted: Wanted,
        on_call: Callable[[Call], None],
    ) -> None:
        self._backend = backend
        self._found = found
        self._wanted = wanted
        self._on_call = on_call

    def __getattr__(self, op: str) -> Any:
        compute = getattr(self._backend, op)

        def watched(*args: Any, **kwargs: Any) -> Any:
            where = self._found.where
            if not self._wanted(op, where):
                return compute(*args, **kwargs)
            bound = inspect.signature(getattr(ops, op)).bind(*args, **kwargs).arguments
            weights = [self._found.weight_names.get(id(value), "") for value in bound.values()]
            before = {name: _copied(value) for name, value in bound.items()}
            result = compute(*args, **kwargs)
            weight = next(filter(None, weights), "")
            self._on_call(Call(op, where, weight, before, _copied(result)))
            return result

        return watched


def _copied(value: Any) -> Any:
    """Activations are copied, for kernels may write into them; weights are not."""
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
        return value
    return value.detach().clone(memory_format=torch.contiguous_format)
