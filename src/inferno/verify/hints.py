"""Say why a checkpoint failed: try the usual mistakes and see which one gives what was found.

A hint is computed, never guessed: the expected tensors are recomputed with one mistake in them, and
a mistake counts if its result is what the engine computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from inferno.verify.compare import max_error
from inferno.verify.outcome import Measure, Row
from inferno.verify.suspects import Evidence, Suspect
from inferno.verify.suspects_attention import attention_suspects
from inferno.verify.suspects_layer import layer_suspects

_MUCH_NEARER = 50


def find_hint(row: Row, evidence: Evidence) -> str | None:
    """The mistake that explains the row's first failing tensor, or None."""
    failed = next((measure for measure in row.measures if not measure.passed), None)
    if failed is None or failed.tap not in evidence.found:
        return None
    layer = failed.tap.partition(".")[0]
    if failed.tap.endswith("residual") and f"{layer}.attn_out" not in evidence.expected:
        return f"see inside that layer with --layers {layer}"
    if failed.tap.endswith(("keys", "values")) and (words := misplaced(failed.tap, evidence)):
        return words
    for suspect in _suspects(failed, row.layer, evidence):
        if suspect.expected.shape != evidence.found[failed.tap].shape:
            continue
        error = max_error(evidence.found[failed.tap], suspect.expected)
        is_finite = math.isfinite(failed.max_error)
        much_nearer = failed.max_error / _MUCH_NEARER if is_finite else 0.0
        if error <= max(failed.tolerance, much_nearer):
            return suspect.words
    return None


def misplaced(tap: str, evidence: Evidence) -> str | None:
    """Whether some positions of the cache hold what belongs to others."""
    found, expected = (taps[tap].float().flatten(1) for taps in (evidence.found, evidence.expected))
    if found.shape != expected.shape:
        return None
    distances = torch.cdist(found, expected)
    owners = distances.argmin(dim=1)
    wrong = [p for p, owner in enumerate(owners.tolist()) if owner != p]
    is_sure = all(distances[p, owners[p]] < distances[p, p] / _MUCH_NEARER for p in wrong)
    if not wrong or not is_sure:
        return None
    return (
        f"a stale or wrong block: positions {wrong[0]} to {wrong[-1]} hold what belongs to "
        f"positions {int(owners[wrong[0]])} to {int(owners[wrong[-1]])}"
    )


def _suspects(failed: Measure, layer: int | None, evidence: Evidence) -> Iterator[Suspect]:
    name = failed.tap.rpartition(".")[2]
    at_layer = 0 if layer is None else layer
    yield from attention_suspects(name, at_layer, evidence)
    yield from layer_suspects(name, at_layer, evidence)
    if failed.tap in evidence.expected and failed.tap in evidence.found:
        yield from _common(evidence.found[failed.tap], evidence.expected[failed.tap])


def _common(found: Tensor, expected: Tensor) -> Iterator[Suspect]:
    """Mistakes that any tensor may suffer."""
    if found.shape != expected.shape:
        return
    yield Suspect("all values are zero", torch.zeros_like(expected))
    yield Suspect("each position has the values of the one before", expected.roll(1, 0))
    yield Suspect("each position has the values of the next", expected.roll(-1, 0))
    ratio = _ratio(found, expected)
    yield Suspect(f"all values are {ratio:.4g} times what is expected", _scaled(expected, ratio))


def _ratio(found: Tensor, expected: Tensor) -> float:
    is_number = found.isfinite() & expected.isfinite()
    a, b = found[is_number].double(), expected[is_number].double()
    return float(a @ b / (b @ b)) if b.any() else 0.0


def _scaled(x: Tensor, ratio: float) -> Tensor:
    return torch.where(x.isfinite(), x * ratio, x)
