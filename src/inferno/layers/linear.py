"""Matrix products with a weight, plain or several fused side by side.

Shape letters: T tokens, E model width, I input and O output features, H query heads, K key/value
heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.layers.parameters import empty, prepare_weight
from inferno.ops import Prepared


class Linear(nn.Module):
    """A product x_TI @ weight_OI.T (+ bias_O) -> [T, O]."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight: Tensor | Prepared = empty(out_features, in_features)
        self.bias = empty(out_features) if bias else None

    def prepare(self, quantize: str | None) -> None:
        prepare_weight(self, quantize)

    def forward(self, x_TI: Tensor) -> Tensor:
        return ops.linear(x_TI, self.weight, self.bias)


class GatedLinear(Linear):
    """A fused product [T, O], halved into gate and up: silu(gate) * up -> [T, O / 2]."""

    def forward(self, x_TI: Tensor) -> Tensor:
        return ops.gated_linear(x_TI, self.weight, self.bias)


class QKVLinear(nn.Module):
    """The queries, keys and values in one product: [T, E] -> [T, H, D], [T, K, D], [T, K, D]."""

    def __init__(
        self, size: int, num_heads: int, num_kv_heads: int, head_dim: int, *, bias: bool
    ) -> None:
        super().__init__()
        self.counts = [num_heads, num_kv_heads, num_kv_heads]
        self.head_dim = head_dim
        out_features = sum(self.counts) * head_dim
        self.weight: Tensor | Prepared = empty(out_features, size)
        self.bias = empty(out_features) if bias else None

    def prepare(self, quantize: str | None) -> None:
        prepare_weight(self, quantize)

    def forward(self, x_TE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        product_TO = ops.linear(x_TE, self.weight, self.bias)
        heads_THD = product_TO.view(len(x_TE), sum(self.counts), self.head_dim)
        q_THD, k_TKD, v_TKD = torch.split(heads_THD, self.counts, dim=1)
        return q_THD, k_TKD, v_TKD
