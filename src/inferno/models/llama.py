"""Llama 2 and 3, and what shares its maths: TinyLlama; Mistral and Qwen2 build on this file.

Shape letters: T tokens of all requests in one row, E model width, H query heads, K key/value
heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from inferno import ops
from inferno.layers.decoder import CausalLM, Decoder, DecoderLayer
from inferno.layers.linear import Linear, QKVLinear
from inferno.layers.mlp import SwiGLU
from inferno.layers.rope import RotaryEmbedding
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.windows import num_layers, refuse_windows
from inferno.ops import Batch, LayerKV
from inferno.weights.pieces import FusedSpec, side_by_side


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a LlamaForCausalLM config.json: attention biases on all products or none, no windows."""
    config.must_be("rope_interleaved", False)
    refuse_windows(config)
    has_bias = config.boolean("attention_bias", False)
    return read_decoder(
        config,
        windows=(None,) * num_layers(config),
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=config.boolean("mlp_bias", False),
    )


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over a paged cache."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size, head_dim = config.hidden_size, config.head_dim
        heads, kv_heads = config.num_heads, config.num_kv_heads
        self.scale = head_dim**-0.5
        self.qkv_proj = QKVLinear(size, heads, kv_heads, head_dim, bias=config.qkv_bias)
        self.o_proj = Linear(heads * head_dim, size, bias=config.output_bias)

    def forward(self, x_TE: Tensor, cos_sin_TD: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        q_THD, k_TKD, v_TKD = self.qkv_proj(x_TE)
        q_THD = ops.rotate_and_store(q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv)
        mixed_THD = ops.attention(q_THD, batch, kv, scale=self.scale)
        output_TE: Tensor = self.o_proj(mixed_THD.flatten(1))
        return output_TE


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters, named as in the checkpoint."""
    return assemble(config, Attention)


def feed_forward(config: DecoderConfig, layer: int) -> nn.Module:
    """Build the feed-forward network, which is the same in every layer."""
    return SwiGLU(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)


def assemble(
    config: DecoderConfig,
    attention: type[nn.Module],
    mlp: Callable[[DecoderConfig, int], nn.Module] = feed_forward,
) -> CausalLM:
    """Build a decoder around a class of attention, and a feed-forward network by layer."""
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
    """Return which tensors of the checkpoint lie side by side in one of ours."""
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    ffn_rows = config.intermediate_size
    return {
        "qkv_proj": side_by_side(("q_proj", q_rows), ("k_proj", kv_rows), ("v_proj", kv_rows)),
        "mlp.gate_up_proj": side_by_side(("mlp.gate_proj", ffn_rows), ("mlp.up_proj", ffn_rows)),
    }


# The axis along which tensor parallelism splits each weight; norms are replicated.
SPLIT_AXES: Mapping[str, int] = {
    "embed_tokens": 0,
    "qkv_proj": 0,
    "o_proj": 1,
    "gate_up_proj": 0,
    "down_proj": 1,
    "lm_head": 0,
}
