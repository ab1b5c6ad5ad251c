"""Build the common parts of models: attention, feed-forward network, decoder, and names of weights.

Shape letters: T tokens of all requests in one row, E model width, H query heads, K key/value
heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.layers.decoder import CausalLM, Decoder, DecoderLayer
from inferno.layers.linear import Linear, split_heads
from inferno.layers.rope import RotaryEmbedding
from inferno.ops import Batch, LayerKV
from inferno.weights.pieces import FusedSpec, side_by_side


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over a paged cache."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size, head_dim = config.hidden_size, config.head_dim
        heads, kv_heads = config.num_heads, config.num_kv_heads
        self.scale = head_dim**-0.5
        self.counts, self.head_dim = (heads, kv_heads, kv_heads), head_dim
        self.qkv_proj = Linear(size, sum(self.counts) * head_dim, bias=config.qkv_bias)
        self.o_proj = Linear(heads * head_dim, size, bias=config.output_bias)

    def forward(self, x_TE: Tensor, cos_sin_TD: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        q_THD, k_TKD, v_TKD = split_heads(self.qkv_proj(x_TE), self.counts, self.head_dim)
        q_THD = ops.rotate_and_store(q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv)
        mixed_THD = ops.attention(q_THD, batch, kv, scale=self.scale)
        output_TE: Tensor = self.o_proj(mixed_THD.flatten(1))
        return output_TE


class SwiGLU(nn.Module):
    """A feed-forward network (arXiv:2002.05202): down(silu(gate(x)) * up(x)), gate and up fused."""

    def __init__(self, size: int, hidden_size: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_up_proj = Linear(size, 2 * hidden_size, bias=bias, is_gated=True)
        self.down_proj = Linear(hidden_size, size, bias=bias)

    def forward(self, x_TE: Tensor) -> Tensor:
        output_TE: Tensor = self.down_proj(self.gate_up_proj(x_TE))
        return output_TE


def feed_forward(config: DecoderConfig, layer: int) -> nn.Module:
    """Build the feed-forward network, which is the same in every layer."""
    return SwiGLU(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)


def build(
    config: DecoderConfig,
    attention: type[nn.Module] = Attention,
    mlp: Callable[[DecoderConfig, int], nn.Module] = feed_forward,
) -> CausalLM:
    """Build a model with unfilled parameters, named as in the checkpoint.

    attention, mlp  a class of attention; a function that makes a layer's feed-forward network.
    """
    size, eps = config.hidden_size, config.rms_norm_eps
    layers = [
        DecoderLayer(attention(config), mlp(config, layer), size=size, eps=eps)
        for layer in range(config.num_layers)
    ]
    rotary = RotaryEmbedding(config.rope, config.head_dim)
    decoder = Decoder(layers, rotary, vocab_size=config.vocab_size, size=size, eps=eps)
    return CausalLM(
        decoder, vocab_size=config.vocab_size, size=size, tied=config.tie_word_embeddings
    )


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return which tensors of the checkpoint lie side by side in one parameter."""
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    ffn_rows = config.intermediate_size
    return {
        "qkv_proj": side_by_side(("q_proj", q_rows), ("k_proj", kv_rows), ("v_proj", kv_rows)),
        "mlp.gate_up_proj": side_by_side(("mlp.gate_proj", ffn_rows), ("mlp.up_proj", ffn_rows)),
    }
