"""The noise of each tensor: the error of rounding alone, measured on the plain forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from inferno.engine.execution.device import choose_kv_dtype
from inferno.layers.parameters import packed_weights
from inferno.quantization import FORMATS, InputRounding
from inferno.verify.case import Case
from inferno.verify.checks.layers import turned_by_oracle
from inferno.verify.checks.measures import Noise, Tolerances, noise_between
from inferno.verify.checks.quantized import DequantizedWeights, rounding_beside
from inferno.verify.oracles import Choices, Oracle
from inferno.verify.oracles.choose import DeviceOracle
from inferno.verify.oracles.llamacpp import LlamaCppOracle
from inferno.verify.oracles.plain_maths import EXACT, Rounding
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.oracles.reference import ReferenceOracle
from inferno.verify.oracles.saved import SavedOracle
from inferno.verify.runs.engine_run import Observed
from inferno.verify.runs.taps import Taps

_FEW_BYTES = 1.5  # of a weight: fewer are a packed one's
_NUDGES, _SHARE = 3, 2 / 3


@dataclass(frozen=True, slots=True)
class PlainForward:
    """The plain forward pass over the engine's text, at any precision.

    rounding          what the engine or the oracle rounds besides its dtype.
    theirs            what an oracle of others rounds; None: nothing besides.
    shares_quantized  the sides that are compared have the quantized weights in common, so these are
                      no error.
    """

    case: Case
    observed: Observed
    layers: Sequence[int]
    choices: Choices
    rounding: Rounding
    theirs: Rounding | None
    shares_quantized: bool

    def weights(self, dtype: torch.dtype, *, is_dequantized: bool) -> PlainWeights:
        """Return the weights of the files, or what quantizing left of them."""
        case = self.case
        if not is_dequantized or case.quantize is None:
            return PlainWeights(case.checkpoint, dtype, as_kept=case.keeps_blocks)
        model, quantize = self.observed.model, case.quantize
        return DequantizedWeights(
            case.checkpoint, dtype, model=model, fused=case.fused, quantize=quantize
        )

    def exact(self, dtype: torch.dtype) -> ReferenceOracle:
        """Return the plain forward pass that rounds nothing but what its dtype does."""
        weights = self.weights(dtype, is_dequantized=self.shares_quantized)
        if self.theirs is not None:
            weights = PlainWeights(self.case.checkpoint, dtype)  # as others read the file
        return self._oracle(weights, EXACT)

    def rounded(self, dtype: torch.dtype, nudge: int | None = None) -> ReferenceOracle:
        """Return the plain forward pass that rounds as the engine's kernels do."""
        return self._oracle(self.weights(dtype, is_dequantized=True), self.rounding, nudge)

    def taps(self, oracle: ReferenceOracle) -> Taps:
        return oracle.taps(self.observed.token_ids, self.layers, self.choices)

    def noise(self, rounded: Taps, exact: Taps, nudge: int | None = None) -> dict[str, Noise]:
        """Measure each tensor's rounding error, between a rounded forward pass and an exact one.

        That of an oracle that rounds by itself comes on top, though it may follow the same rule: a
        sum in another order turns a few codes, and a few layers later no two errors are alike.
        """
        found = self._noise(rounded, exact)
        if self.theirs is None:
            return found
        weights = PlainWeights(self.case.checkpoint, torch.float32)
        others = self._noise(self.taps(self._oracle(weights, self.theirs, nudge)), exact)
        return {name: one.plus(others[name]) for name, one in found.items()}

    def _noise(self, rounded: Taps, exact: Taps) -> dict[str, Noise]:
        turned = [turned_by_oracle(rounded, exact, layer) for layer in self.layers]
        exact = {**exact, **{name: x for taps in turned for name, x in taps.items()}}
        return {
            name: noise_between(rounded[name], exact[name]) for name in exact if name in rounded
        }

    def _oracle(
        self, weights: PlainWeights, rounding: Rounding, nudge: int | None = None
    ) -> ReferenceOracle:
        case = self.case
        return ReferenceOracle(
            case.options.model,
            case.hf_config,
            weights,
            case.tell,
            rounding=rounding,
            nudge=nudge,
        )


def plain_forward(
    case: Case, oracle: Oracle, observed: Observed, layers: Sequence[int], choices: Choices
) -> PlainForward:
    """Build the plain forward pass, with the rounding that the engine or oracle may use."""
    is_engine = isinstance(oracle, SavedOracle | DeviceOracle)
    is_packed = _has_packed_weights(observed.model)
    # Any weight of a GGUF file may be packed; of other checkpoints, experts alone.
    blocks = case.checkpoint.blocks().values() if is_packed else ()
    has_codes = case.quantize is not None or bool(blocks)
    formats = {*blocks, *([FORMATS[case.quantize]] if case.quantize is not None else [])}
    device = torch.device("cpu" if is_engine else observed.device)  # a saved run may be a CPU's
    rounds = {rounding_beside(one, device) for one in formats} - {InputRounding.NOTHING}
    is_fp8 = InputRounding.TO_FP8 in rounds
    rounding = Rounding(
        mxfp4=is_engine or is_packed,
        matrices=bool(rounds) and not is_fp8,
        powers=InputRounding.BY_POWERS in rounds,
        fp8=is_fp8,
        kv=_kv_dtype(case, observed) if has_codes else None,
    )
    theirs = oracle.rounding if isinstance(oracle, LlamaCppOracle) else None
    has_same = _has_same_weights(case, oracle)
    return PlainForward(case, observed, layers, choices, rounding, theirs, has_same)


def _kv_dtype(case: Case, observed: Observed) -> torch.dtype:
    return choose_kv_dtype(
        case.engine, case.hf_config, observed.dtype, torch.device(observed.device)
    )


def _has_same_weights(case: Case, oracle: Oracle) -> bool:
    """Return whether the oracle computes with the same quantized weights."""
    if case.quantize is None:
        return False
    if isinstance(oracle, SavedOracle):
        return oracle.facts.quantize == case.quantize
    return isinstance(oracle, ReferenceOracle)


def tolerances_of(plain: PlainForward, oracle: Oracle, expected: Taps) -> tuple[Tolerances, Taps]:
    """Return tolerances by the coarser dtype, with measured noise where more than float32 rounds.

    The second result is the rounded run that was measured, empty where none was.
    """
    dtype = plain.observed.dtype
    theirs = getattr(torch, oracle.facts.dtype) if isinstance(oracle, SavedOracle) else dtype
    coarser = max(dtype, theirs, key=lambda one: torch.finfo(one).eps)
    tolerances = Tolerances(
        dtype=coarser,
        relative=plain.case.options.tolerance,
        noise={},
        is_quantized=plain.rounding.is_of_matrices or plain.theirs is not None,
    )
    is_measured = tolerances.is_coarse or plain.rounding.mxfp4
    if not is_measured or tolerances.relative is not None:
        return tolerances, {}
    # What they expect has their own rounding in it, or is logits alone.
    if isinstance(oracle, SavedOracle | DeviceOracle | LlamaCppOracle):
        expected = plain.taps(plain.exact(torch.float32))
    rounded = plain.taps(plain.rounded(coarser))
    return replace(tolerances, noise=plain.noise(rounded, expected)), rounded


def remeasured(tolerances: Tolerances, plain: PlainForward) -> Tolerances:
    """Measure rounding once more: only a failure is worth the time.

    In float32 it is measured against float64. Where the dtype is coarser, it is measured from
    other beginnings, for one run may by chance err little where another errs much; they err more
    for being nudged, so a share counts.
    """
    if tolerances.relative is not None:
        return tolerances
    dtype = tolerances.dtype
    if not tolerances.is_coarse:
        exact = plain.taps(plain.exact(torch.float64))
        return replace(tolerances, noise=plain.noise(plain.taps(plain.rounded(dtype)), exact))
    exact = plain.taps(plain.exact(torch.float32))
    runs = [
        plain.noise(plain.taps(plain.rounded(dtype, nudge)), exact, nudge)
        for nudge in range(_NUDGES)
    ]
    noise = {
        name: _largest_noise(known, [run[name] for run in runs])
        for name, known in tolerances.noise.items()
    }
    return replace(tolerances, noise=noise)


def _largest_noise(known: Noise, others: Sequence[Noise]) -> Noise:
    """Return the largest noise, of others by a share; what no rounding reaches stays exact."""
    if not known.largest:
        return known
    return Noise(
        max(known.largest, *(_SHARE * other.largest for other in others)),
        max(known.relative, *(_SHARE * other.relative for other in others)),
    )


def _has_packed_weights(model: nn.Module) -> bool:
    """Return whether weights have so few bits that kernels round their inputs to int8."""
    return any(
        weight.num_bytes < _FEW_BYTES * weight.shape.numel() for _, weight in packed_weights(model)
    )
