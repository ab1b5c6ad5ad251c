"""Mixture of experts: many feed-forward networks, of which each token uses a few.

Shape letters: T tokens of all requests in one row, E model width, I input and O output features,
X experts, A experts that a token chooses.
"""

from __future__ import annotations

from torch import Tensor, nn

from inferno import ops
from inferno.config.mixture import MixtureConfig
from inferno.layers.linear import Linear
from inferno.layers.parameters import empty
from inferno.ops import PackedExperts


class MixtureOfExperts(nn.Module):
    """A router, and the weighted sum of the experts that it chooses (arXiv:1701.06538)."""

    def __init__(self, config: MixtureConfig, size: int) -> None:
        super().__init__()
        self.router = Linear(size, config.num_experts, bias=config.has_bias)
        self.experts = Experts(config, size)
        self.num_chosen = config.num_chosen
        self.renormalize = config.renormalize

    def forward(self, x_TE: Tensor) -> Tensor:
        logits_TX = self.router(x_TE)
        experts_TA, weights_TA = ops.route(logits_TX, self.num_chosen, renormalize=self.renormalize)
        output_TE: Tensor = self.experts(x_TE, experts_TA, weights_TA)
        return output_TE


class Experts(nn.Module):
    """Gated feed-forward networks of equal size, their weights stacked."""

    def __init__(self, config: MixtureConfig, size: int) -> None:
        super().__init__()
        count, inner_size, bias = config.num_experts, config.size, config.has_bias
        self.gate_up_proj = ExpertLinear(count, size, 2 * inner_size, bias=bias)
        self.down_proj = ExpertLinear(count, inner_size, size, bias=bias)
        self.activation = config.activation

    def forward(self, x_TE: Tensor, experts_TA: Tensor, weights_TA: Tensor) -> Tensor:
        return ops.experts(
            x_TE,
            experts_TA,
            weights_TA,
            self.gate_up_proj.weight,
            self.down_proj.weight,
            activation=self.activation,
            gate_up_bias_XF=self.gate_up_proj.bias,
            down_bias_XE=self.down_proj.bias,
        )


class ExpertLinear(nn.Module):
    """The same product's weights in all experts: weight_XOI, and bias_XO where it has one."""

    def __init__(self, count: int, in_features: int, out_features: int, *, bias: bool) -> None:
        super().__init__()
        self.weight: Tensor | PackedExperts = empty(count, out_features, in_features)
        self.bias = empty(count, out_features) if bias else None
