"""Suspected mistakes, and the evidence in which they are sought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """The engine's tensors, the oracle's, and the checkpoint in float32, as evidence of a mistake.

    layers             whose insides are known.
    num_prompt, chunk  how many tokens were computed in chunks of how many; others one by one.
    """

    found: Taps
    expected: Taps
    config: PlainConfig
    weights: PlainWeights
    token_ids: Sequence[int]
    layers: Sequence[int]
    num_prompt: int
    chunk: int

    def layer(self, index: int) -> dict[str, Tensor]:
        """Return a layer's weights."""
        return self.weights.layer(index)

    def tap(self, layer: int, name: str) -> Tensor:
        """Return a layer's tensor as the oracle has it."""
        return self.expected[at(layer, name)].float()

    def input_of(self, layer: int) -> Tensor:
        """Return the residual stream that a layer begins with."""
        name = "embed" if layer == 0 else at(layer - 1, "residual")
        return self.expected[name].float()


Suspects = Iterator[Suspect]
# By the name of a tensor: the mistakes that would show in it.
Table = Mapping[str, Callable[[str, int, Evidence], Suspects]]
EPS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)


def seen_eps(found: Tensor, x: Tensor, weight: Tensor) -> float:
    """Return the eps that a norm's output shows, by its row of least values; 0 if it shows none.

    The eps is root² - mean square of that row, and must lie between 0 and 1.
    """
    squares = x.double().square().mean(-1)
    scaled = x.double() * weight
    ratios = (found.double() * scaled).sum(-1) / scaled.square().sum(-1)
    row = int(squares.flatten().argmin())
    eps = float((ratios.flatten()[row] ** -2 - squares.flatten()[row]).nan_to_num(0.0))
    return eps if 0 < eps < 1 else 0.0
