"""The judge of products: each one's weight, its kernel's rounding, and the result that is due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inferno.layers.decoder import CausalLM
from inferno.ops import MXFP4Weight
from inferno.verify.compare import largest
from inferno.verify.compare import measure as measured
from inferno.verify.held_weights import becomes, sources, values_of
from inferno.verify.near import Kernel, Near, Rounds
from inferno.verify.outcome import Measure
from inferno.verify.plain_experts import unpack_mxfp4
from inferno.verify.plain_weights import PlainWeights
from inferno.weights.pieces import FusedSpec, Piece

EMBEDDING, HEAD = "model.embed_tokens", "lm_head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
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
        is_plain = isinstance(weight, Tensor | MXFP4Weight)
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
        if f"{source}_blocks" in self.weights:
            return [replace(ours, rounds=Rounds.TO_INT8), ours, floating]
        match becomes(source, self.quantize):
            case "int8":
                return [replace(ours, rounds=Rounds.TO_INT8)]
            case "int4":
                return [replace(ours, rounds=Rounds.BY_POWERS)]
        return [ours, floating]

    def best(self, found: Tensor, dues: Iterable[Near]) -> Near:
        """Return the first result that explains what was found, or the one that explains most."""
        tried: list[tuple[int, Near]] = []
        for due in dues:
            tried.append((self.num_wrong(found, due), due))
            if tried[-1][0] == 0:
                break
        return min(tried, key=lambda one: one[0])[1]

    def pieces(self, parameter: str) -> list[Piece]:
        """List the tensors of the checkpoint that a parameter is made of."""
        return list(sources(parameter, self.fused, self.weights))

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

    def measure(self, name: str, found: Tensor, due: Near) -> Measure:
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

    def num_wrong(self, found: Tensor, due: Near) -> int:
        """Count the values that are off by more than is allowed."""
        errors, allowed = self._errors(found, due)
        return int((errors > allowed).sum())

    def wrong_rows(self, found: Tensor, due: Near, owners: Tensor) -> list[int]:
        """Return the owners whose rows hold values that are off, given the owner of each row."""
        errors, allowed = self._errors(found, due)
        owned: list[int] = torch.unique(owners[(errors > allowed).any(1)]).tolist()
        return owned

    def _errors(self, found: Tensor, due: Near) -> tuple[Tensor, Tensor]:
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
    if isinstance(weight, MXFP4Weight):
        return unpack_mxfp4(weight.blocks.cpu(), weight.scales.cpu())
    return values_of(weight, torch.float32)


def _tap(name: str) -> str:
    """Shorten a module's name to the form of `taps`, which begins with the layer's number."""
    return name.removeprefix("model.layers.")
