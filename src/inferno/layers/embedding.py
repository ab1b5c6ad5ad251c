"""Token ids become vectors."""

from __future__ import annotations

from torch import Tensor, nn

from inferno import ops
from inferno.layers.parameters import empty, prepare_weight
from inferno.ops import Prepared


class Embedding(nn.Module):
    """A table, of which token ids take rows: [T] int64 -> [T, E]."""

    def __init__(self, vocab_size: int, size: int) -> None:
        super().__init__()
        self.weight: Tensor | Prepared = empty(vocab_size, size)

    def prepare(self, quantize: str | None) -> None:
        prepare_weight(self, quantize)

    def forward(self, ids_T: Tensor) -> Tensor:
        return ops.embedding(ids_T, self.weight)
