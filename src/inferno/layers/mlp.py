"""The SwiGLU feed-forward network (arXiv:2002.05202)."""

from __future__ import annotations

from torch import Tensor, nn

from inferno.layers.linear import GatedLinear, Linear


class SwiGLU(nn.Module):
    """A feed-forward network down(silu(gate(x)) * up(x)), gate and up as one fused product."""

    def __init__(self, size: int, hidden_size: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_up_proj = GatedLinear(size, 2 * hidden_size, bias=bias)
        self.down_proj = Linear(hidden_size, size, bias=bias)

    def forward(self, x_TE: Tensor) -> Tensor:
        output_TE: Tensor = self.down_proj(self.gate_up_proj(x_TE))
        return output_TE
