"""The choice of experts: the engine's, for oracles to follow, and whether it was a good one.

A near tie between two experts may fall either way, and all that follows with it. So an oracle that
can takes the engine's choice, and whether that was within rounding is a question of its own.
"""

from __future__ import annotations

from torch import Tensor

from inferno.verify.compare import Tolerances
from inferno.verify.oracle import Choices
from inferno.verify.taps import Taps, at


def choices_of(found: Taps, num_layers: int, num_chosen: int) -> Choices:
    """Return the chosen experts by layer, where all tokens have as many as they should: [T, X]."""
    chosen = {layer: found[tap] > 0 for layer in range(num_layers) if (tap := _tap(layer)) in found}
    return {layer: mask for layer, mask in chosen.items() if (mask.sum(1) == num_chosen).all()}


def choice_problem(found: Taps, expected: Taps, layer: int, tolerances: Tolerances) -> str:
    """Describe what is wrong with a layer's choice of experts; "" if the oracle can't tell."""
    router = at(layer, "router")
    if router not in expected or _tap(layer) not in found:
        return ""
    logits = expected[router].float()
    allowed = tolerances.of(router, logits, layer + 1)
    chosen = found[_tap(layer)] > 0
    return passed_over(chosen, logits, allowed) if chosen.shape == logits.shape else ""


def passed_over(chosen: Tensor, logits: Tensor, allowed: float) -> str:
    """Describe the first token that uses an expert though it leaves out a better one; else "".

    A gap between logits that rounding explains does not count.
    """
    lowest_chosen = logits.masked_fill(~chosen, float("inf")).amin(1)
    best_left_out = logits.masked_fill(chosen, float("-inf")).amax(1)
    gaps = best_left_out - lowest_chosen
    for token in (gaps > 2 * allowed).nonzero().flatten().tolist()[:1]:
        return (
            f"position {token} leaves out an expert whose logit is {float(gaps[token]):.2g} above "
            f"one that it uses"
        )
    return ""


def _tap(layer: int) -> str:
    return at(layer, "experts")
