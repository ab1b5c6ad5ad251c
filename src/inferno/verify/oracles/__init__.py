"""Oracles: other implementations, devices or runs that compute the same text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from inferno.verify.runs.taps import Taps

# By layer, [T, X] bool: the experts that each token uses. In 16 bits a near tie may fall either
# way, and all that follows with it, so there the oracle takes the engine's choice, and whether that
# was within rounding is a question of its own. Empty: each chooses for itself.
Choices = Mapping[int, Tensor]


class Oracle(Protocol):
    """Another computation of the same text; `name` is its name in the report."""

    name: str

    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        """Return every tensor that the oracle knows, of the whole model and of these layers.

        Logits are always among them; one that sees no more than those gives them alone.
        An oracle that can follows the choices of experts that it is given.
        """

    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Yield the float32 logits [T, V] of each text."""

    def encode(self, text: str) -> list[int] | None:
        """Return the text's token ids, or None from an oracle without a tokenizer."""

    def decode(self, token_ids: Sequence[int]) -> str | None:
        """Return the text of new tokens, or None from an oracle that can't tell."""
