"""What a mistake is, and the evidence that it is sought in."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from inferno.verify.plain_config import PlainConfig
from inferno.verify.plain_weights import PlainWeights
from inferno.verify.taps import Taps, at


@dataclass(frozen=True, slots=True)
class Suspect:
    """A mistake in words, and what a tensor would be with it."""

    words: str
    expected: Tensor


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the engine computed, what the oracle did, and the checkpoint in float32."""

    found: Taps
    expected: Taps
    config: PlainConfig
    weights: PlainWeights

    def layer(self, index: int) -> dict[str, Tensor]:
        """A layer's weights."""
        return self.weights.layer(index)

    def tap(self, layer: int, name: str) -> Tensor:
        """A layer's tensor as the oracle has it."""
        return self.expected[at(layer, name)].float()

    def input_of(self, layer: int) -> Tensor:
        """The residual stream that a layer begins with."""
        name = "embed" if layer == 0 else at(layer - 1, "residual")
        return self.expected[name].float()
