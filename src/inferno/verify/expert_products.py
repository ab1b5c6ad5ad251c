"""The two products of a mixture's experts, compared apart though one op computes both.

Shape letters: P pairs of a token and an expert, A experts that a token chose, X experts, E model
width, F inner width, I input and O output features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inferno import ops
from inferno.ops import Activation, ClampedSwiGLU
from inferno.verify.near import Kernel, Near, clamped_gate, rounded, silu_gate
from inferno.verify.outcome import Measure
from inferno.verify.product_judge import Judge, values

_ROWS_FOR_IDLE = 4
_MOST_TOLD = 4

Finish = Callable[[Near], Near]


def expert_measures(
    judge: Judge,
    where: str,
    x_TE: Tensor,
    y_TE: Tensor,
    experts_TA: Tensor,
    shares_TA: Tensor,
    activation: Activation,
) -> Iterator[Measure]:
    """Yield the measures of the input of experts' second product, then of its output.

    The op does not tell the former, so it is run again with a second weight that changes nothing:
    PyTorch's is not, for its products may round otherwise when they are run again. Experts that no
    token chose are tried on some of the same inputs.
    """
    module: Any = judge.model.get_submodule(where)
    up, down = f"{where}.gate_up_proj", f"{where}.down_proj"
    probe = _Probe(module, activation, judge.device)
    pairs = _Pairs.of(experts_TA)
    idle = _Pairs.idle(experts_TA, module.gate_up_proj.weight.shape[0])
    every = pairs.and_(idle)
    entering = Near.exactly(x_TE[every.tokens])

    def gated(both: Near) -> Near:
        if isinstance(activation, ClampedSwiGLU):
            return clamped_gate(both, activation.alpha, activation.limit, judge.dtype)
        return silu_gate(both, judge.dtype)

    first = _Product(judge, up, every)
    if first.is_ours:
        hidden = probe.hidden(x_TE[every.tokens], every.experts)
        yield first.measure(entering, hidden, gated)
        due = Near.exactly(hidden)
    else:
        due = gated(first.outputs(entering))
    total = _Product(judge, down, pairs).measure(
        due.rows(slice(len(pairs.tokens))),
        y_TE,
        lambda x: rounded(x.summed(shares_TA), judge.dtype),
    )
    if not total.passed or len(idle.tokens):
        outputs = probe.outputs(x_TE[every.tokens], every.experts)
        alone = _Product(judge, down, every).measure(due, outputs, lambda x: x)
        if not alone.passed:
            yield alone
    yield total


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of a token's number and an expert."""

    tokens: Tensor
    experts: Tensor

    @classmethod
    def of(cls, experts_TA: Tensor) -> _Pairs:
        """Pair each token with its chosen experts, token by token."""
        tokens = torch.arange(len(experts_TA)).repeat_interleave(experts_TA.shape[1])
        return cls(tokens, experts_TA.flatten())

    @classmethod
    def idle(cls, experts_TA: Tensor, num_experts: int) -> _Pairs:
        """Pair each expert that nobody chose with a few tokens."""
        unchosen = sorted(set(range(num_experts)) - set(experts_TA.flatten().tolist()))
        tokens = torch.arange(min(_ROWS_FOR_IDLE, len(experts_TA)))
        experts = torch.tensor(unchosen, dtype=torch.int64).repeat_interleave(len(tokens))
        return cls(tokens.repeat(len(unchosen)), experts)

    def and_(self, other: _Pairs) -> _Pairs:
        """Return these pairs, then the others."""
        both = (self.tokens, other.tokens), (self.experts, other.experts)
        return _Pairs(*map(torch.cat, both))


@dataclass(frozen=True, slots=True)
class _Probe:
    """The op that computes experts, run for pairs that we choose."""

    module: Any
    activation: Activation
    device: torch.device

    def hidden(self, x_PE: Tensor, experts_P: Tensor) -> Tensor:
        """Return the second product's input [P, F], read by as many columns as it has outputs."""
        num_experts, size, inner = self.module.down_proj.weight.shape
        parts = []
        for first in range(0, inner, size):
            count = min(size, inner - first)
            ones = torch.zeros(num_experts, size, inner, dtype=x_PE.dtype)
            ones[:, range(count), range(first, first + count)] = 1
            passing = ops.prepare(ones.to(self.device))
            parts.append(self._run(x_PE, experts_P, passing, None)[:, :count])
        return torch.cat(parts, dim=1)

    def outputs(self, x_PE: Tensor, experts_P: Tensor) -> Tensor:
        """Return each expert's output for its token: [P, E]."""
        down = self.module.down_proj
        return self._run(x_PE, experts_P, down.weight, down.bias)

    def _run(self, x_PE: Tensor, experts_P: Tensor, down: Any, bias: Tensor | None) -> Tensor:
        up = self.module.gate_up_proj
        return ops.experts(
            x_PE.to(self.device),
            experts_P[:, None].to(self.device),
            torch.ones(len(experts_P), 1, device=self.device),
            up.weight,
            down,
            activation=self.activation,
            gate_up_bias_XF=up.bias,
            down_bias_XE=bias,
        ).cpu()


class _Product:
    """The first or the second product of experts, for some pairs."""

    def __init__(self, judge: Judge, where: str, pairs: _Pairs) -> None:
        self._judge = judge
        self._where = where
        self._pairs = pairs
        self._weight = judge.weight(where)
        self._bias_XO = judge.bias(where, self._weight)
        self._kernels = judge.kernels(where, self._weight, judge.dtype)

    @property
    def is_ours(self) -> bool:
        return self._kernels[0].is_ours

    def outputs(self, x: Near, kernel: Kernel | None = None) -> Near:
        """Return the outputs [P, O] that are due for inputs x [P, I]."""
        kernel = kernel or self._kernels[0]
        value = torch.zeros(len(x.value), self._weight.shape[1], dtype=torch.float64)
        radius = torch.zeros_like(value)
        for expert in torch.unique(self._pairs.experts).tolist():
            rows = self._pairs.experts == expert
            bias = None if self._bias_XO is None else self._bias_XO[expert]
            due = kernel.multiply(x.rows(rows), values(self._weight[expert]), bias)
            value[rows], radius[rows] = due.value, due.radius
        return Near(value, radius)

    def measure(self, x: Near, found: Tensor, finish: Finish) -> Measure:
        """Measure by the kernel that fits best; name wrong experts where rows are pairs."""
        dues = (finish(self.outputs(x, kernel)) for kernel in self._kernels)
        due = self._judge.best(found, dues)
        measure = self._judge.measure(self._where, found, due)
        if measure.passed or len(found) != len(self._pairs.experts):
            return measure
        experts = self._judge.wrong_rows(found, due, self._pairs.experts)
        return self._judge.measure(f"{self._where} of {_named(experts)}", found, due)


def _named(experts: list[int]) -> str:
    shown = ", ".join(map(str, experts[:_MOST_TOLD]))
    return f"expert{'s' if len(experts) > 1 else ''} {shown}" + ", ..." * (
        len(experts) > _MOST_TOLD
    )
