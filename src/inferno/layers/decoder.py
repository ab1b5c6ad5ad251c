"""The skeleton of a decoder-only model: what is the same whatever attention and feed-forward do.

Shape letters: T tokens of all requests in one row, N rows of interest, E model width, D head size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.layers.embedding import Embedding
from inferno.layers.linear import Linear
from inferno.layers.norm import RMSNorm
from inferno.layers.rope import RotaryEmbedding
from inferno.ops import Batch, LayerKV


class DecoderLayer(nn.Module):
    """A layer of attention and feed-forward, each after a norm and added to the residual stream."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, *, size: int, eps: float) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(size, eps)
        self.self_attn = attention
        self.post_attention_layernorm = RMSNorm(size, eps)
        self.mlp = mlp

    def forward(
        self,
        x_TE: Tensor,
        residual_TE: Tensor | None,
        cos_sin_TD: Tensor,
        batch: Batch,
        kv: LayerKV,
        rows_N: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the output, to be added to the residual as x still is, and the residual.

        rows_N  the tokens that go on after attention, where not all do.
        """
        x_TE, residual_TE = self.input_layernorm.add(x_TE, residual_TE)
        x_TE = self.self_attn(x_TE, cos_sin_TD, batch, kv)
        if rows_N is not None:
            x_TE, residual_TE = x_TE[rows_N], residual_TE[rows_N]
        x_TE, residual_TE = self.post_attention_layernorm.add(x_TE, residual_TE)
        return self.mlp(x_TE), residual_TE


class Decoder(nn.Module):
    """A stack of embedding, layers and final norm."""

    def __init__(
        self,
        layers: Iterable[DecoderLayer],
        rotary: RotaryEmbedding,
        *,
        vocab_size: int,
        size: int,
        eps: float,
    ) -> None:
        super().__init__()
        self.embed_tokens = Embedding(vocab_size, size)
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(size, eps)
        self.rotary = rotary

    def forward(self, batch: Batch, kv: Sequence[LayerKV]) -> Tensor:
        cos_sin_TD = self.rotary(batch.positions_T)
        x_TE = self.embed_tokens(batch.token_ids_T)
        residual_TE, last = None, len(self.layers) - 1
        for i, (layer, layer_kv) in enumerate(zip(self.layers, kv, strict=True)):
            rows_N = batch.rows_N if i == last else None
            x_TE, residual_TE = layer(x_TE, residual_TE, cos_sin_TD, batch, layer_kv, rows_N)
        normed_TE, _ = self.norm.add(x_TE, residual_TE)
        return normed_TE


class CausalLM(nn.Module):
    """A decoder and its head, which is the embedding table itself when tied."""

    def __init__(self, decoder: Decoder, *, vocab_size: int, size: int, tied: bool) -> None:
        super().__init__()
        self.model = decoder
        self.lm_head = None if tied else Linear(size, vocab_size)

    def forward(self, batch: Batch, kv: Sequence[LayerKV]) -> Tensor:
        """Return the hidden states of a step's tokens, [T, E] or [N, E] of batch.rows_N.

        Keys and values of all go to the cache.
        """
        hidden_TE: Tensor = self.model(batch, kv)
        return hidden_TE

    def logits(self, hidden_NE: Tensor) -> Tensor:
        """Return float32 logits [N, V] of chosen rows of hidden states."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        logits_NV = hidden_NE.new_empty((len(hidden_NE), head.weight.shape[0]), dtype=torch.float32)
        return ops.linear(hidden_NE, head.weight, out=logits_NV)
