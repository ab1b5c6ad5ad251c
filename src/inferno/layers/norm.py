"""Define RMSNorm, alone or with the sum of the residual stream."""

from __future__ import annotations

from torch import Tensor, nn

from inferno import ops
from inferno.layers.parameters import empty


class RMSNorm(nn.Module):
    """A norm of rows to unit root mean square, times a learned weight (arXiv:1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = empty(size)
        self.eps = eps

    def forward(self, x_TE: Tensor) -> Tensor:
        return ops.rms_norm(x_TE, self.weight, self.eps)

    def add(self, x_TE: Tensor, residual_TE: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the normalized x + residual, and the sum, which is the new residual stream."""
        return ops.add_rms_norm(x_TE, residual_TE, self.weight, self.eps)
