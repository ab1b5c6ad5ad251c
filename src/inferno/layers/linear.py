"""A matrix product, plain or gated, with a weight in any format.

Shape letters: T tokens, I input and O output features, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.layers.parameters import empty
from inferno.ops import PackedWeight


class Linear(nn.Module):
    """A product x_TI @ weight_OI.T (+ bias_O) -> [T, O], of one weight or of several side by side.

    is_gated  the first half of the result is gates, the second what they let through:
              silu(gate) * up -> [T, O / 2].
    """

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = False, is_gated: bool = False
    ) -> None:
        super().__init__()
        self.weight: Tensor | PackedWeight = empty(out_features, in_features)
        self.bias = empty(out_features) if bias else None
        self.is_gated = is_gated

    def forward(self, x_TI: Tensor) -> Tensor:
        if self.is_gated:
            return ops.gated_linear(x_TI, self.weight, self.bias)
        return ops.linear(x_TI, self.weight, self.bias)


def split_heads(
    product_TO: Tensor, counts: Sequence[int], head_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """View a product as the heads of queries, keys and values: so many of each, [T, count, D]."""
    heads_TxD = product_TO.view(len(product_TO), sum(counts), head_dim)
    q_THD, k_TKD, v_TKD = torch.split(heads_TxD, list(counts), dim=1)
    return q_THD, k_TKD, v_TKD
