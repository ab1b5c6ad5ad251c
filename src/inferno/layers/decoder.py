"""Define the skeleton of a decoder-only model, whatever its attention and feed-forward.

Shape letters: T tokens of all requests in one row, N rows of interest, E model width, D head size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.layers.linear import Linear
from inferno.layers.norm import RMSNorm
from inferno.layers.parameters import empty
from inferno.layers.rope import RotaryEmbedding
from inferno.ops import Batch, LayerKV, PackedWeight


class Embedding(nn.Module):
    """The embedding table: token ids [T] int64 select its rows, [T, E]."""

    def __init__(self, vocab_size: int, size: int) -> None:
        super().__init__()
        self.weight: Tensor | PackedWeight = empty(vocab_size, size)

    def forward(self, ids_T: Tensor) -> Tensor:
        return ops.embedding(ids_T, self.weight)


class Hidden(NamedTuple):
    """The state between two layers: the last one's output, and the residual that it is added to."""

    x_TE: Tensor
    residual_TE: Tensor | None


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
        """Return the layer's output, not yet added to the residual stream, and that stream.

        rows_N  the tokens that are computed after attention; None for all.
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

    def forward(
        self,
        batch: Batch,
        kv: Sequence[LayerKV],
        layers: range | None = None,
        hidden: Hidden | None = None,
    ) -> Tensor | Hidden:
        """Run some layers; see `CausalLM.forward`."""
        layers = range(len(self.layers)) if layers is None else layers
        last = len(self.layers) - 1
        assert layers.step == 1, "layers run in order"
        assert (hidden is None) == (layers.start == 0), "who begins amid the layers has been before"
        cos_sin_TD = self.rotary(batch.positions_T)
        if hidden is None:
            hidden = Hidden(self.embed_tokens(batch.token_ids_T), None)
        x_TE, residual_TE = hidden
        for i in layers:
            rows_N = batch.rows_N if i == last else None
            x_TE, residual_TE = self.layers[i](x_TE, residual_TE, cos_sin_TD, batch, kv[i], rows_N)
        if layers.stop <= last:
            return Hidden(x_TE, residual_TE)
        normed_TE, _ = self.norm.add(x_TE, residual_TE)
        return normed_TE


class CausalLM(nn.Module):
    """A decoder and its head, which is the embedding table itself when tied."""

    def __init__(self, decoder: Decoder, *, vocab_size: int, size: int, tied: bool) -> None:
        super().__init__()
        self.model = decoder
        self.lm_head = None if tied else Linear(size, vocab_size)

    def forward(
        self,
        batch: Batch,
        kv: Sequence[LayerKV],
        layers: range | None = None,
        hidden: Hidden | None = None,
    ) -> Tensor | Hidden:
        """Return the hidden states of a step's tokens, [T, E] or [N, E] of batch.rows_N.

        kv      of all layers of the model; keys and values of all tokens go there.
        layers  a run of layers; None: all. The model's first layer begins with the embedding, the
                last ends with the norm.
        hidden  the result of the layers before, if the first layer isn't in `layers`.
        """
        output: Tensor | Hidden = self.model(batch, kv, layers, hidden)
        return output

    @property
    def num_layers(self) -> int:
        """Return how many layers the model has."""
        return len(self.model.layers)

    def new_streams(self, num_rows: int) -> Tensor:
        """Return unfilled memory for residual streams, [num_rows, E]."""
        return self.model.norm.weight.new_empty((num_rows, len(self.model.norm.weight)))

    def stream(self, hidden: Hidden) -> Tensor:
        """Return the residual stream [T, E] between two layers, as the later one will add it up.

        Hidden(stream, None) gives that layer the same bits as `hidden`.
        """
        _, stream_TE = self.model.norm.add(*hidden)
        return stream_TE

    def early_logits(self, stream_NE: Tensor) -> Tensor:
        """Return float32 logits [N, V] of residual streams, as if no more layers followed."""
        return self.logits(self.model.norm(stream_NE))

    def logits(self, hidden_NE: Tensor) -> Tensor:
        """Return float32 logits [N, V] of chosen rows of hidden states."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        logits_NV = hidden_NE.new_empty((len(hidden_NE), head.weight.shape[0]), dtype=torch.float32)
        return ops.linear(hidden_NE, head.weight, out=logits_NV)
