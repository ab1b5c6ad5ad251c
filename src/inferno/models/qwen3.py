"""Qwen3: heads of their own size, every query and key head normalized (arXiv:2505.09388).

Shape letters: T tokens of all requests in one row, E model width, H query heads, K key/value
heads, D head size.
"""

from __future__ import annotations

from torch import Tensor, nn

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.layers.decoder import CausalLM
from inferno.layers.linear import Linear, split_heads
from inferno.layers.norm import RMSNorm
from inferno.models import common
from inferno.models.common import fused_weights
from inferno.ops import Batch, LayerKV

__all__ = ["build", "fused_weights"]


class Attention(nn.Module):
    """Grouped-query attention whose queries and keys are normalized per head, then rotated."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        heads, kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        size, self.eps = config.hidden_size, config.rms_norm_eps
        self.scale = head_dim**-0.5
        self.counts, self.head_dim = (heads, kv_heads, kv_heads), head_dim
        self.qkv_proj = Linear(size, sum(self.counts) * head_dim, bias=config.qkv_bias)
        self.q_norm = RMSNorm(head_dim, self.eps)
        self.k_norm = RMSNorm(head_dim, self.eps)
        self.o_proj = Linear(heads * head_dim, size, bias=config.output_bias)

    def forward(self, x_TE: Tensor, cos_sin_TD: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        q_THD, k_TKD, v_TKD = split_heads(self.qkv_proj(x_TE), self.counts, self.head_dim)
        norms = {"q_norm_D": self.q_norm.weight, "k_norm_D": self.k_norm.weight}
        q_THD = ops.rotate_and_store(
            q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv, **norms, eps=self.eps
        )
        mixed_THD = ops.attention(q_THD, batch, kv, scale=self.scale)
        output_TE: Tensor = self.o_proj(mixed_THD.flatten(1))
        return output_TE


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters, named as in the checkpoint."""
    return common.build(config, Attention)
