"""Every product of every layer, compared from the engine's own inputs to it.

What one product errs does not reach the next comparison, so what is allowed is what rounding may do
within that product alone; `error_bounds` says how much that is. The two products of a mixture's
experts are compared apart, though one op computes both.

Shape letters: P pairs of a token and an expert, A experts that a token chose, X experts, E model
width, F inner width, I and O input and output features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inferno import ops
from inferno.layers.decoder import CausalLM
from inferno.ops import Activation, ClampedSwiGLU, RowRanges, StoredRows
from inferno.quantization import FORMATS, MXFP4, InputRounding
from inferno.verify.checks.error_bounds import (
    Bounded,
    Kernel,
    Rounds,
    clamped_gate,
    rounded,
    silu_gate,
)
from inferno.verify.checks.measures import largest
from inferno.verify.checks.measures import measure as measured
from inferno.verify.checks.quantized import (
    checkpoint_pieces,
    formats_of,
    holds_blocks,
    quantized_type,
    rounding_beside,
    values_of,
)
from inferno.verify.options import Tell
from inferno.verify.oracles.plain_maths import unpack_mxfp4
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.outcome import Measure
from inferno.verify.runs.observer import HEAD, ProductCalls
from inferno.weights.pieces import FusedSpec, Piece

_ROUNDS = {
    InputRounding.NOTHING: Rounds.NOTHING,
    InputRounding.TO_INT8: Rounds.TO_INT8,
    InputRounding.BY_POWERS: Rounds.BY_POWERS,
    InputRounding.TO_FP8: Rounds.TO_FP8,
}

EMBEDDING = "model.embed_tokens"
_IDS_AT_A_TIME = 4096
_LEAST_ROWS = 8  # of each expert: what few tokens chose is tried on others' inputs as well
_MOST_NAMED = 4

Finish = Callable[[Bounded], Bounded]
Products = Mapping[str, tuple[Measure, ...]]  # by the module that makes them


@torch.inference_mode()
def product_measures(
    check: ProductCheck, calls: Mapping[str, ProductCalls], tell: Tell
) -> Products:
    """Measure each module's products, in the order in which modules were called first."""
    found = {}
    for index, (where, one) in enumerate(calls.items(), start=1):
        tell(f"comparing product {index} of {len(calls)} with its own input")
        found[where] = tuple(_measures(check, where, one))
    return found


def _measures(check: ProductCheck, where: str, calls: ProductCalls) -> Iterator[Measure]:
    x, y = torch.cat(calls.inputs), torch.cat(calls.outputs)
    match calls.op:
        case "embedding":
            yield _embedding(check, where, x, y)
        case "gated_linear":
            yield from _gated(check, where, x, y)
        case "experts":
            chosen, shares = torch.cat(calls.experts), torch.cat(calls.shares)
            yield from _experts(check, where, x, y, chosen, shares, calls.activation)
        case _:
            yield from _linear(check, where, x, y)


def _embedding(check: ProductCheck, where: str, ids: Tensor, y: Tensor) -> Measure:
    """Measure the rows of the text, then those of all tokens, as the op gives them."""
    weight = check.weight(where)
    table = values(weight).to(check.dtype)
    of_text = check.measure(where, y, Bounded.exactly(table[ids]))
    for some in torch.split(torch.arange(len(table)), _IDS_AT_A_TIME):
        found = ops.embedding(some.to(check.device), weight).cpu()
        measure = check.measure(where, found, Bounded.exactly(table[some]))
        if of_text.passed and not measure.passed:
            return measure
    return of_text


def _linear(check: ProductCheck, where: str, x: Tensor, y: Tensor) -> Iterator[Measure]:
    """Yield a measure for each tensor of the checkpoint that the weight is made of."""
    due, first = check.best(y, _multiplied(check, where, x, y.dtype)), 0
    for name, count in check.num_rows(where):
        columns = slice(first, first + count)
        yield check.measure(name, y[:, columns], due.columns(columns))
        first += count


def _gated(check: ProductCheck, where: str, x: Tensor, y: Tensor) -> Iterator[Measure]:
    """Yield the measure of gate and up, joined; first those of wrong ones, if that is wrong."""
    names = " and ".join(name for name, _ in check.num_rows(where))
    dues = (silu_gate(both, y.dtype) for both in _multiplied(check, where, x, y.dtype))
    joined = check.measure(names, y, check.best(y, dues))
    if not joined.passed:
        module: Any = check.model.get_submodule(where)
        apart = ops.linear(x.to(check.device), module.weight, module.bias).cpu()
        yield from (one for one in _linear(check, where, x, apart) if not one.passed)
    yield joined


def _multiplied(check: ProductCheck, where: str, x: Tensor, out: torch.dtype) -> Iterator[Bounded]:
    """Yield the result that is due, once for each kernel that may have computed the product.

    Ranges of rows in formats of their own may have kernels of their own.
    """
    weight = check.weight(where)
    held, bias = values(weight), check.bias(where, weight)
    is_whole = not isinstance(weight, RowRanges)
    parts, rows = ([weight], [slice(None)]) if is_whole else (weight.parts, weight.rows())
    kernels = [check.kernels(where, part, out) for part in parts]
    for nth in range(max(map(len, kernels))):
        dues = [
            its_kernels[min(nth, len(its_kernels) - 1)].multiply(
                Bounded.exactly(x), held[its_rows], None if bias is None else bias[its_rows]
            )
            for its_kernels, its_rows in zip(kernels, rows, strict=True)
        ]
        yield Bounded.beside(dues)


def _experts(
    check: ProductCheck,
    where: str,
    x_TE: Tensor,
    y_TE: Tensor,
    experts_TA: Tensor,
    shares_TA: Tensor,
    activation: Activation,
) -> Iterator[Measure]:
    """Yield the measures of the input of experts' second product, then of its output.

    The op does not tell the former, so it is run again with a second weight that changes nothing:
    PyTorch's is not, for its products may round otherwise when they are run again. The output is
    measured by pairs first, for what an expert of a small share does wrong is lost in 16 bits of
    the sum. Experts that few tokens chose are tried on more of the same inputs.
    """
    module: Any = check.model.get_submodule(where)
    up, down = f"{where}.gate_up_proj", f"{where}.down_proj"
    probe = _Probe(module, activation, check.device)
    pairs = _Pairs.of(experts_TA)
    every = pairs.and_(_Pairs.missing(experts_TA, module.gate_up_proj.weight.shape[0]))
    entering = Bounded.exactly(x_TE[every.tokens])

    def gated(both: Bounded) -> Bounded:
        if isinstance(activation, ClampedSwiGLU):
            return clamped_gate(both, activation.alpha, activation.limit, check.dtype)
        return silu_gate(both, check.dtype)

    first = _Product(check, up, every)
    if first.is_ours:
        hidden = probe.hidden(x_TE[every.tokens], every.experts)
        yield first.measure(entering, hidden, gated)
        due = Bounded.exactly(hidden)
    else:
        due = gated(first.outputs(entering))
    outputs = probe.outputs(x_TE[every.tokens], every.experts)
    alone = _Product(check, down, every, after=first).measure(due, outputs, lambda x: x)
    if not alone.passed:
        yield alone
    yield _Product(check, down, pairs, after=first).measure(
        due.rows(slice(len(pairs.tokens))),
        y_TE,
        lambda x: rounded(x.summed(shares_TA), check.dtype),
    )


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
    def missing(cls, experts_TA: Tensor, num_experts: int) -> _Pairs:
        """Pair each expert that few tokens chose with others, so that it has rows enough."""
        found = []
        for expert in range(num_experts):
            is_chosen = (experts_TA == expert).any(1)
            others = (~is_chosen).nonzero().flatten()
            tokens = others[: max(0, _LEAST_ROWS - int(is_chosen.sum()))]
            found.append(cls(tokens, torch.full_like(tokens, expert)))
        return cls(
            torch.cat([one.tokens for one in found]), torch.cat([one.experts for one in found])
        )

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
            passing = ops.pack(ones.to(self.device), ops.float_format(ones.dtype))
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
    """The first product of experts, or the second after it, for some pairs."""

    def __init__(
        self, check: ProductCheck, where: str, pairs: _Pairs, *, after: _Product | None = None
    ) -> None:
        self._check = check
        self._where = where
        self._pairs = pairs
        self._weight = check.weight(where)
        self._bias_XO = check.bias(where, self._weight)
        self._kernels = check.kernels(where, self._weight, check.dtype)
        if after is not None and not after.is_ours:  # codes are made where both weights are packed
            floating = replace(self._kernels[-1], rounds=Rounds.NOTHING, is_ours=False)
            self._kernels = [replace(floating, out=check.dtype)]

    @property
    def is_ours(self) -> bool:
        return self._kernels[0].is_ours

    def outputs(self, x: Bounded, kernel: Kernel | None = None) -> Bounded:
        """Return the outputs [P, O] that are due for inputs x [P, I]."""
        kernel = kernel or self._kernels[0]
        value = torch.zeros(len(x.value), self._weight.shape[1], dtype=torch.float64)
        radius = torch.zeros_like(value)
        for expert in torch.unique(self._pairs.experts).tolist():
            rows = self._pairs.experts == expert
            bias = None if self._bias_XO is None else self._bias_XO[expert]
            due = kernel.multiply(x.rows(rows), values(self._weight[expert]), bias)
            value[rows], radius[rows] = due.value, due.radius
        return Bounded(value, radius)

    def measure(self, x: Bounded, found: Tensor, finish: Finish) -> Measure:
        """Measure by the kernel that fits best; name wrong experts where rows are pairs."""
        dues = (finish(self.outputs(x, kernel)) for kernel in self._kernels)
        due = self._check.best(found, dues)
        measure = self._check.measure(self._where, found, due)
        if measure.passed or len(found) != len(self._pairs.experts):
            return measure
        experts = self._check.wrong_rows(found, due, self._pairs.experts)
        return self._check.measure(f"{self._where} of {_named(experts)}", found, due)


def _named(experts: list[int]) -> str:
    shown = ", ".join(map(str, experts[:_MOST_NAMED]))
    return f"expert{'s' if len(experts) > 1 else ''} {shown}" + ", ..." * (
        len(experts) > _MOST_NAMED
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductCheck:
    """The model, files and limits by which products are judged.

    weights   the checkpoint's files.
    quantize  what the engine made of them; dtype: what it computes with.
    relative  asked for: the largest error, as a share of the largest value; None: what rounding
              explains.
    """

    model: CausalLM
    weights: PlainWeights
    fused: FusedSpec
    quantize: str | None
    dtype: torch.dtype
    device: torch.device
    relative: float | None = None

    def owner(self, where: str) -> str:
        """Return the module that has a product's weight: a tied head's is the embedding."""
        return EMBEDDING if where == HEAD and self.model.lm_head is None else where

    def weight(self, where: str) -> Any:
        """Return a module's weight as the engine holds it: a tensor, or as kernels laid it out."""
        return self.model.get_submodule(self.owner(where)).weight

    def kernels(self, where: str, weight: Any, out: torch.dtype) -> list[Kernel]:
        """List the kernels by which a product may be computed, the likeliest first.

        Beside MXFP4 kernels are free to make codes or not; and whoever lays a weight out may leave
        the product to PyTorch, which writes it in 16 bits first.
        """
        is_plain = isinstance(weight, Tensor | StoredRows)
        ours = Kernel(
            rounds=Rounds.NOTHING,
            is_ours=True,
            on_cpu=self.device.type == "cpu",
            dtype=self.dtype,
            out=out,
        )
        floating = replace(ours, is_ours=False, out=self.dtype)
        if is_plain:
            return [floating]
        source = self.pieces(f"{self.owner(where)}.weight")[0].name
        if MXFP4 in formats_of(weight):
            return [replace(ours, rounds=Rounds.TO_INT8), ours, floating]
        if holds_blocks(weight):
            return [replace(ours, rounds=_ROUNDS[formats_of(weight)[0].inputs])]
        if (format := quantized_type(source, self.quantize)) is None:
            return [ours, floating]
        rounds = _ROUNDS[rounding_beside(FORMATS[format], self.device)]
        if rounds is Rounds.TO_FP8 and len(weight.shape) == 3:  # experts take inputs as they are
            rounds = Rounds.NOTHING
        return [replace(ours, rounds=rounds)]

    def best(self, found: Tensor, dues: Iterable[Bounded]) -> Bounded:
        """Return the first result that explains what was found, or the one that explains most."""
        tried: list[tuple[int, Bounded]] = []
        for due in dues:
            tried.append((self.num_wrong(found, due), due))
            if tried[-1][0] == 0:
                break
        return min(tried, key=lambda one: one[0])[1]

    def pieces(self, parameter: str) -> list[Piece]:
        """List the tensors of the checkpoint that a parameter is made of."""
        return list(checkpoint_pieces(parameter, self.fused, self.weights))

    def num_rows(self, where: str) -> list[tuple[str, int]]:
        """Count the outputs that each tensor of the checkpoint makes, by names that people know."""
        weight = self.weight(where)
        pieces = self.pieces(f"{self.owner(where)}.weight")
        if len(pieces) == 1:
            return [(where, weight.shape[0])]
        whole = torch.empty(weight.shape, device="meta")
        return [(piece.name.removesuffix(".weight"), len(piece.part(whole))) for piece in pieces]

    def bias(self, where: str, weight: Any) -> Tensor | None:
        """Return the bias in the files, whether the model has it or not; None if they have none."""
        whole = torch.zeros(weight.shape[:-1])
        for piece in self.pieces(f"{where}.bias"):
            if piece.name not in self.weights:
                return None
            part = piece.part(whole)
            part.copy_(self.weights[piece.name].view(part.shape))
        return whole.to(self.dtype).float()

    def measure(self, name: str, found: Tensor, due: Bounded) -> Measure:
        """Measure a product by the value that is off by most of what is allowed."""
        errors, allowed = self._errors(found, due)
        wrong = errors > allowed
        shares = torch.where(errors > 0, errors / allowed, 0.0)
        worst = int(shares.argmax()) if shares.numel() else 0
        numbers = measured(_tap(name), name, found, due.value.to(found.dtype), torch.inf)
        error, most = (float(x.flatten()[worst]) for x in (errors, allowed))
        told = replace(numbers, max_error=error, tolerance=most, problem="")
        if not wrong.any():
            return told
        output = worst % found.shape[-1]
        return replace(
            told,
            problem=f"{name} does not give what its own input makes due: {int(wrong.sum())} of "
            f"{wrong.numel()} values are off, that of output {output} by {error:.2g}, where "
            f"{most:.2g} is allowed",
        )

    def num_wrong(self, found: Tensor, due: Bounded) -> int:
        """Count the values that are off by more than is allowed."""
        errors, allowed = self._errors(found, due)
        return int((errors > allowed).sum())

    def wrong_rows(self, found: Tensor, due: Bounded, owners: Tensor) -> list[int]:
        """Return the owners whose rows hold values that are off, given the owner of each row."""
        errors, allowed = self._errors(found, due)
        owned: list[int] = torch.unique(owners[(errors > allowed).any(1)]).tolist()
        return owned

    def _errors(self, found: Tensor, due: Bounded) -> tuple[Tensor, Tensor]:
        """Return how far off values are, and may be; what follows no number is never wrong."""
        allowed = due.radius
        if self.relative is not None:
            allowed = torch.full_like(allowed, self.relative * largest(due.value))
        errors = (found.double() - due.value).abs().nan_to_num(nan=torch.inf)
        return torch.where(due.value.isfinite(), errors, 0.0), allowed


def values(weight: Any) -> Tensor:
    """Return the values of a weight, unpacked if need be, in float32 on the CPU."""
    if isinstance(weight, Tensor):
        return weight.detach().float().cpu()
    if isinstance(weight, StoredRows):
        return unpack_mxfp4(*(part.cpu() for part in weight.parts))
    return values_of(weight, torch.float32)


def _tap(name: str) -> str:
    """Shorten a module's name to the form of `taps`, which begins with the layer's number."""
    return name.removeprefix("model.layers.")
