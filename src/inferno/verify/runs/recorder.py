"""Observe a model from outside while it runs: which module computes, and what each op is given.

`ops.observing` tells of every call of an op, and torch's hooks on all modules tell where in the
model the call comes from. The code that is observed has no branch for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn
from torch.nn.modules import module as hooks

from inferno import ops
from inferno.layers.decoder import CausalLM

ROOT = "."  # the name of the whole model


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an op.

    where      the innermost module of the model around it, by its name there.
    arguments  by the contract's names: tensors as they were before the call, others as they are.
    result     what came back, as it was then.
    """

    op: str
    where: str
    arguments: dict[str, Any]
    result: Any


class RunObserver(Protocol):
    """The protocol of those who are told of calls of ops and modules."""

    def wants(self, op: str, where: str) -> bool:
        """Say whether to be told of calls of this op from there."""

    def see_call(self, call: Call) -> None:
        """Take note of a call."""

    def see_enter(self, name: str, inputs: tuple[Any, ...]) -> None:
        """Take note of a module that begins to compute."""

    def see_leave(self, name: str, output: Any) -> None:
        """Take note of a module that has computed."""


@dataclass(slots=True)
class Recording:
    """The state of a recording; `model` is found when it runs first."""

    model: CausalLM | None = None
    module_names: dict[int, str] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return self.inside[-1] if self.inside else ""

    def enter(self, module: nn.Module) -> str:
        """Return its name in the model; "" outside the model, whose calls count as those around."""
        if isinstance(module, CausalLM) and self.model is None:
            self.model = module
            self.module_names = {id(m): name or ROOT for name, m in module.named_modules()}
        name = self.module_names.get(id(module), "")
        self.inside.append(name or self.where)
        return name

    def leave(self, module: nn.Module) -> str:
        """Return its name, as `enter` has it."""
        self.inside.pop()
        return self.module_names.get(id(module), "")


@contextlib.contextmanager
def recording(observer: RunObserver) -> Iterator[Recording]:
    """Report every op call that is wanted, and every module that computes."""
    found = Recording()

    def enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if name := found.enter(module):
            observer.see_enter(name, inputs)

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        if name := found.leave(module):
            observer.see_leave(name, output)

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave),
    ]
    try:
        with ops.observing(_Located(found, observer)):
            yield found
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, slots=True)
class _Located:
    """An observer of ops that adds the module from which they are called."""

    found: Recording
    observer: RunObserver

    def wants(self, op: str) -> bool:
        return self.observer.wants(op, self.found.where)

    def see(self, op: str, arguments: dict[str, Any], result: Any) -> None:
        self.observer.see_call(Call(op, self.found.where, arguments, result))
