"""What rounding alone does to each tensor, measured on the plain forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from inferno.layers.parameters import prepared_weights
from inferno.verify.case import Case
from inferno.verify.checkpoints import turned_by_oracle
from inferno.verify.compare import Noise, Tolerances, noise_between
from inferno.verify.oracle import Choices, Oracle
from inferno.verify.oracle_device import DeviceOracle
from inferno.verify.oracle_reference import ReferenceOracle
from inferno.verify.saved import SavedOracle
from inferno.verify.subject import Observed
from inferno.verify.taps import Taps

_FEW_BYTES = 1.5  # of a weight: fewer are a packed one's
_NUDGES, _SHARE = 3, 2 / 3


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain forward pass over the engine's text, at any precision.

    rounds_to_int8  what meets packed weights, as the engine or the oracle does.
    """

    case: Case
    observed: Observed
    layers: Sequence[int]
    choices: Choices
    rounds_to_int8: bool

    def run(self, dtype: torch.dtype, *, is_exact: bool, nudge: int | None = None) -> Taps:
        case = self.case
        oracle = ReferenceOracle(
            case.options.model,
            case.hf_config,
            case.checkpoint,
            case.tell,
            dtype=dtype,
            rounds_to_int8=self.rounds_to_int8 and not is_exact,
            nudge=nudge,
        )
        return oracle.taps(self.observed.token_ids, self.layers, self.choices)

    def noise(self, dtype: torch.dtype, exact: Taps, nudge: int | None = None) -> dict[str, Noise]:
        """What is lost at a precision, by tensor."""
        rounded = self.run(dtype, is_exact=False, nudge=nudge)
        turned = [turned_by_oracle(rounded, exact, layer) for layer in self.layers]
        exact = {**exact, **{name: x for taps in turned for name, x in taps.items()}}
        return {
            name: noise_between(rounded[name], exact[name]) for name in exact if name in rounded
        }


def plain_of(
    case: Case, oracle: Oracle, observed: Observed, layers: Sequence[int], choices: Choices
) -> Plain:
    """What else is run on the engine's kernels may round to int8 as well."""
    is_engine = isinstance(oracle, SavedOracle | DeviceOracle)
    return Plain(case, observed, layers, choices, is_engine or _has_packed_weights(observed.model))


def tolerances_of(plain: Plain, oracle: Oracle, expected: Taps) -> Tolerances:
    """By the coarser of both dtypes; anything coarser than float32 is measured."""
    dtype = plain.observed.dtype
    theirs = getattr(torch, oracle.facts.dtype) if isinstance(oracle, SavedOracle) else dtype
    coarser = max(dtype, theirs, key=lambda one: torch.finfo(one).eps)
    tolerances = Tolerances(dtype=coarser, relative=plain.case.options.tolerance, noise={})
    is_coarse = coarser.itemsize == 2 or plain.rounds_to_int8
    if not is_coarse or tolerances.relative is not None:
        return tolerances
    if isinstance(oracle, SavedOracle | DeviceOracle):  # its own rounding is in it
        expected = plain.run(torch.float32, is_exact=True)
    return replace(tolerances, noise=plain.noise(coarser, expected))


def second_look(tolerances: Tolerances, plain: Plain) -> Tolerances:
    """Rounding measured once more: only a failure is worth the time.

    Of float32 against float64. In 16 bits from other beginnings, for one run may by chance err
    little where another errs much; they err more for being nudged, so a share of it counts.
    """
    if tolerances.relative is not None:
        return tolerances
    dtype = tolerances.dtype
    if dtype.itemsize > 2:
        exact = plain.run(torch.float64, is_exact=True)
        return replace(tolerances, noise=plain.noise(dtype, exact))
    exact = plain.run(torch.float32, is_exact=True)
    runs = [plain.noise(dtype, exact, nudge) for nudge in range(_NUDGES)]
    noise = {
        name: _most(known, [run[name] for run in runs]) for name, known in tolerances.noise.items()
    }
    return replace(tolerances, noise=noise)


def _most(known: Noise, others: Sequence[Noise]) -> Noise:
    """The largest, of the others by a share."""
    return Noise(
        max(known.largest, *(_SHARE * other.largest for other in others)),
        max(known.relative, *(_SHARE * other.relative for other in others)),
    )


def _has_packed_weights(model: nn.Module) -> bool:
    """Whether kernels hold weights in so few bits that they round to int8 what meets them."""
    return any(
        weight.num_bytes < _FEW_BYTES * weight.shape.numel()
        for _, weight in prepared_weights(model)
    )
