"""Every product of every layer, compared from the engine's own inputs to it.

What one product errs does not reach the next comparison, so what is allowed is what rounding may do
within that product alone; `near` bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from inferno import ops
from inferno.ops import Activation, PlainSwiGLU
from inferno.verify.expert_products import expert_measures
from inferno.verify.near import Near, silu_gate
from inferno.verify.options import Tell
from inferno.verify.outcome import Measure
from inferno.verify.product_judge import HEAD, Judge, values
from inferno.verify.recorder import Call

PRODUCTS = ("embedding", "linear", "gated_linear", "experts")
_MOST_ROWS = 64  # kept of a step: so a long prompt does not fill the memory
_IDS_AT_A_TIME = 4096

Products = Mapping[str, tuple[Measure, ...]]  # by the module that makes them


@dataclass(slots=True)
class Seen:
    """A module's inputs and outputs, a row per token; of experts, who chose whom by what share."""

    op: str
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    experts: list[Tensor] = field(default_factory=list)
    shares: list[Tensor] = field(default_factory=list)
    activation: Activation = field(default_factory=PlainSwiGLU)

    def add(self, call: Call) -> None:
        """Keep some rows of a call, evenly spread."""
        given = call.arguments
        first, *_ = given.values()
        rows = _some_rows(len(first))
        self.inputs.append(_plain(first, rows))
        self.outputs.append(_plain(call.result, rows))
        if self.op == "experts":
            self.experts.append(_plain(given["experts_TA"], rows))
            self.shares.append(_plain(given["weights_TA"], rows))
            self.activation = given["activation"]


def see_product(seen: dict[str, Seen], call: Call) -> None:
    """Keep a call of one of PRODUCTS; the head is called from outside all modules."""
    seen.setdefault(call.where or HEAD, Seen(call.op)).add(call)


def see_head(seen: dict[str, Seen], hidden: Tensor, logits: Tensor) -> None:
    """Keep the logits of all positions, beside those that tokens were chosen by."""
    head = seen.setdefault(HEAD, Seen("linear"))
    head.inputs.append(hidden)
    head.outputs.append(logits)


def _some_rows(count: int) -> Tensor:
    every = torch.arange(count)
    return every if count <= _MOST_ROWS else every[torch.linspace(0, count - 1, _MOST_ROWS).long()]


def _plain(x: Tensor, rows: Tensor) -> Tensor:
    return x.detach()[rows.to(x.device)].cpu()


@torch.inference_mode()
def product_measures(judge: Judge, seen: Mapping[str, Seen], tell: Tell) -> Products:
    """Measure each module's products, in the order in which modules were called first."""
    found = {}
    for index, (where, one) in enumerate(seen.items(), start=1):
        tell(f"comparing product {index} of {len(seen)} with its own input")
        found[where] = tuple(_measures(judge, where, one))
    return found


def _measures(judge: Judge, where: str, seen: Seen) -> Iterator[Measure]:
    x, y = torch.cat(seen.inputs), torch.cat(seen.outputs)
    match seen.op:
        case "embedding":
            yield _embedding(judge, where, x, y)
        case "gated_linear":
            yield from _gated(judge, where, x, y)
        case "experts":
            chosen, shares = torch.cat(seen.experts), torch.cat(seen.shares)
            yield from expert_measures(judge, where, x, y, chosen, shares, seen.activation)
        case _:
            yield from _linear(judge, where, x, y)


def _embedding(judge: Judge, where: str, ids: Tensor, y: Tensor) -> Measure:
    """Measure the rows of the text, then those of all tokens, as the op gives them."""
    weight = judge.weight(where)
    table = values(weight).to(judge.dtype)
    of_text = judge.measure(where, y, Near.exactly(table[ids]))
    for some in torch.split(torch.arange(len(table)), _IDS_AT_A_TIME):
        found = ops.embedding(some.to(judge.device), weight).cpu()
        measure = judge.measure(where, found, Near.exactly(table[some]))
        if of_text.passed and not measure.passed:
            return measure
    return of_text


def _linear(judge: Judge, where: str, x: Tensor, y: Tensor) -> Iterator[Measure]:
    """Yield a measure for each tensor of the checkpoint that the weight is made of."""
    due, first = judge.best(y, _multiplied(judge, where, x, y.dtype)), 0
    for name, count in judge.num_rows(where):
        columns = slice(first, first + count)
        yield judge.measure(name, y[:, columns], due.columns(columns))
        first += count


def _gated(judge: Judge, where: str, x: Tensor, y: Tensor) -> Iterator[Measure]:
    """Yield the measure of gate and up, joined; first those of wrong ones, if that is wrong."""
    names = " and ".join(name for name, _ in judge.num_rows(where))
    dues = (silu_gate(both, y.dtype) for both in _multiplied(judge, where, x, y.dtype))
    joined = judge.measure(names, y, judge.best(y, dues))
    if not joined.passed:
        module: Any = judge.model.get_submodule(where)
        apart = ops.linear(x.to(judge.device), module.weight, module.bias).cpu()
        yield from (one for one in _linear(judge, where, x, apart) if not one.passed)
    yield joined


def _multiplied(judge: Judge, where: str, x: Tensor, out: torch.dtype) -> Iterator[Near]:
    """Yield the result that is due, once for each kernel that may have computed the product."""
    weight = judge.weight(where)
    held, bias = values(weight), judge.bias(where, weight)
    for kernel in judge.kernels(where, weight, out):
        yield kernel.multiply(Near.exactly(x), held, bias)
