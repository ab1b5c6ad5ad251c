"""Matrix products with a weight, plain or several fused side by side."""

from __future__ import annotations

from torch import Tensor, nn

from inferno import ops
from inferno.layers.parameters import empty, prepare_weight
from inferno.ops import Prepared


class Linear(nn.Module):
    """x_TI @ weight_OI.T (+ bias_O) -> [T, O]."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight: Tensor | Prepared = empty(out_features, in_features)
        self.bias = empty(out_features) if bias else None

    def prepare(self, quantize: str | None) -> None:
        prepare_weight(self, quantize)

    def forward(self, x_TI: Tensor) -> Tensor:
        return ops.linear(x_TI, self.weight, self.bias)
