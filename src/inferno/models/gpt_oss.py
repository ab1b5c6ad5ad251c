"""gpt-oss: alternating windows, attention sinks, experts in MXFP4 (arXiv:2508.10925).

Shape letters: T tokens of all requests in one row, E model width, H query heads, K key/value
heads, D head size, X experts, F inner width of an expert, G blocks of a packed row.
"""

from __future__ import annotations

from torch import Tensor, nn

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.layers.decoder import CausalLM
from inferno.layers.linear import Linear, split_heads
from inferno.layers.parameters import empty
from inferno.models import common
from inferno.models.mixture import experts_apart, feed_forward
from inferno.ops import Batch, LayerKV
from inferno.weights.pieces import FusedSpec, Piece, whole


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, where each head may look at a sink instead."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size, head_dim = config.hidden_size, config.head_dim
        heads, kv_heads = config.num_heads, config.num_kv_heads
        self.scale = head_dim**-0.5
        self.counts, self.head_dim = (heads, kv_heads, kv_heads), head_dim
        self.qkv_proj = Linear(size, sum(self.counts) * head_dim, bias=config.qkv_bias)
        self.o_proj = Linear(heads * head_dim, size, bias=config.output_bias)
        self.sinks = empty(heads)

    def forward(self, x_TE: Tensor, cos_sin_TD: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        q_THD, k_TKD, v_TKD = split_heads(self.qkv_proj(x_TE), self.counts, self.head_dim)
        q_THD = ops.rotate_and_store(q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv)
        mixed_THD = ops.attention(q_THD, batch, kv, scale=self.scale, sinks_H=self.sinks)
        output_TE: Tensor = self.o_proj(mixed_THD.flatten(1))
        return output_TE


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters."""
    return common.build(config, Attention, feed_forward)


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return which parameters differ from the checkpoint's tensors, and how.

    The checkpoint's gate_up rows alternate, gate and up; ours are all gates, then all ups. Packed
    rows are moved unchanged. Weights in floats are stored transposed: [X, E, 2F] and [X, F, E].
    GGUF files have gate and up apart, and rows as ours.
    """
    assert config.mixture is not None
    attention = {"qkv_proj": common.fused_weights(config)["qkv_proj"]}
    if config.mixture.is_apart:
        return {**attention, **experts_apart(config)}
    gate_up, down, format = "experts.gate_up_proj", "experts.down_proj", config.mixture.format
    if format is None:
        gate_up_piece = Piece(gate_up, _alternating_columns, joined=(2, 3))
        down_piece = Piece(down, _transposed)
    else:
        gate_up_piece = Piece(gate_up, _alternating_rows, joined=(1, 2), format=format)
        down_piece = Piece(down, whole, format=format)
    return {
        **attention,
        f"{gate_up}.weight": (gate_up_piece,),
        f"{gate_up}.bias": (Piece(f"{gate_up}_bias", _alternating_rows, joined=(1, 2)),),
        f"{down}.weight": (down_piece,),
        f"{down}.bias": (Piece(f"{down}_bias", whole),),
    }


def _alternating_rows(gate_up: Tensor) -> Tensor:
    """View all gates, then all ups, as pairs: [X, 2F, ...] -> [X, F, 2, ...]."""
    return gate_up.view(len(gate_up), 2, -1, *gate_up.shape[2:]).transpose(1, 2)


def _alternating_columns(gate_up_XFE: Tensor) -> Tensor:
    """View gates and ups as pairs in columns: [X, 2F, E] -> [X, E, F, 2]."""
    return _alternating_rows(gate_up_XFE).permute(0, 3, 1, 2)


def _transposed(down_XEF: Tensor) -> Tensor:
    """View weights as the checkpoint has them, transposed: [X, E, F] -> [X, F, E]."""
    return down_XEF.transpose(1, 2)
