"""The cost of quantizing: the engine's distance from float32, beside that of plain maths."""

from __future__ import annotations

from collections.abc import Iterator

from inferno.verify.compare import measure, noise_between
from inferno.verify.outcome import Measure, Row
from inferno.verify.taps import Taps, at

_MOST = 2  # times the error of plain maths, as FlashAttention's tests allow (arXiv:2205.14135)


def precision_row(found: Taps, rounded: Taps, original: Taps, num_layers: int) -> Row:
    """Build the row that allows the engine twice the error of plain maths that rounds alike."""
    measures = tuple(_measures(found, rounded, original, num_layers))
    ours, theirs = measures[-1].relative_error, measures[-1].relative_tolerance / _MOST
    return Row(
        number="P",
        title="precision",
        compared="what leaves layers and the model, with float32 over the weights of the files",
        measures=measures,
        findings=(f"logits are off by {ours:.2g} of their length, plain maths by {theirs:.2g}",),
    )


def _measures(found: Taps, rounded: Taps, original: Taps, num_layers: int) -> Iterator[Measure]:
    layers = {at(layer, "residual"): f"layer {layer}'s output" for layer in range(num_layers)}
    names = {**layers, "hidden": "the last norm's output", "logits": "logits"}
    for tap, name in names.items():
        if tap not in found:
            continue  # that nobody saw it is told where it is due
        noise = noise_between(rounded[tap], original[tap])
        allowed, relative = _MOST * noise.largest, _MOST * noise.relative
        yield measure(tap, name, found[tap], original[tap], allowed, relative)
