"""The oracle that is always there: a plain forward pass over config.json and the checkpoint.

One layer's weights are in memory at a time, so a large model needs no large machine. No cache, no
chunks, no fused weights, naive attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from inferno.verify.options import Tell
from inferno.verify.oracles import Choices
from inferno.verify.oracles.plain_config import PlainConfig, plain_cos_sin, read_plain_config
from inferno.verify.oracles.plain_maths import (
    EXACT,
    Rounding,
    activation,
    attention_scores,
    can_see,
    choose,
    combine,
    has_experts,
    is_mxfp4,
    mix,
    rms_norm,
    rotate,
    router_logits,
    swiglu,
    unpack_mxfp4,
    wide,
)
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.runs.taps import Taps, at

_OF_ALL = ("router", "experts", "residual")  # what is kept of every layer


class ReferenceOracle:
    """An oracle that recomputes a text in float32, or more coarsely to see what rounding does.

    weights   their dtype is that of everything but sums.
    rounding  what else is rounded, as kernels may.
    nudge     embeddings are moved by a rounding, up or down as this seed says.
    """

    def __init__(
        self,
        folder: Path,
        hf_config: dict[str, Any],
        weights: PlainWeights,
        tell: Tell,
        *,
        rounding: Rounding = EXACT,
        nudge: int | None = None,
    ) -> None:
        dtype = str(weights.dtype).removeprefix("torch.")
        self.name = f"inferno's plain {dtype} reference{weights.described}"
        self.config: PlainConfig = read_plain_config(hf_config)
        self.weights = weights
        self._folder = folder
        self._tell = tell
        self._rounding = rounding
        self._nudge = nudge

    @torch.inference_mode()
    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        taps: dict[str, Tensor] = {}
        [x] = self._embed([token_ids])
        taps["embed"] = x
        taps["cos_sin"] = _angles(self.config, x)
        for index in range(self.config.num_layers):
            self._tell(f"{self.name}: layer {index + 1} of {self.config.num_layers}")
            inside = self._layer(index).forward(x, choices.get(index))
            x = inside["residual"]
            kept = inside if index in layers else {n: inside[n] for n in _OF_ALL if n in inside}
            taps.update({at(index, name): tensor for name, tensor in kept.items()})
        taps["hidden"] = self._final_norm(x)
        taps["logits"] = self._logits(taps["hidden"])
        return taps

    @torch.inference_mode()
    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        xs = self._embed(texts)
        for index in range(self.config.num_layers):
            self._tell(f"{self.name}: layer {index + 1} of {self.config.num_layers}")
            layer = self._layer(index)
            xs = [layer.forward(x)["residual"] for x in xs]
        for x in xs:
            yield self._logits(self._final_norm(x))

    def encode(self, text: str) -> list[int] | None:
        path = self._folder / "tokenizer.json"
        return tokenizers.Tokenizer.from_file(str(path)).encode(text).ids if path.exists() else None

    def decode(self, token_ids: Sequence[int]) -> str | None:
        return None

    def _embed(self, texts: Sequence[Sequence[int]]) -> list[Tensor]:
        table = self.weights.embedding()
        xs = [table[torch.tensor(ids)] for ids in texts]
        xs = [x.to(self.weights.dtype) for x in xs]
        if self._nudge is None:
            return xs
        unit = torch.finfo(self.weights.dtype).eps
        unit = max(unit, self._rounding.unit)
        return [_nudged(x, unit, self._nudge) for x in xs]

    def _layer(self, index: int) -> PlainLayer:
        return PlainLayer(self.config, self.weights, index, self._rounding)

    def _final_norm(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weights["model.norm.weight"], self.config.eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        return wide(
            self._rounding.product(is_head=True)(
                hidden, self.weights.head(tied=self.config.tied), None
            )
        )


class PlainLayer:
    """A decoder layer whose biases and norms are those that the checkpoint has tensors for."""

    def __init__(
        self, config: PlainConfig, weights: PlainWeights, index: int, rounding: Rounding
    ) -> None:
        self._config = config
        self._window = config.windows[index]
        self._weights = weights.layer(index)
        self._rounding = rounding

    def forward(self, x: Tensor, choice: Tensor | None = None) -> dict[str, Tensor]:
        """Return all of a layer's tensors, from its input [T, E] to `residual`, its output."""
        attention = self._attend(self._norm(x, "input_layernorm"))
        x = x + attention["attn_out"]
        feed_forward = self._feed_forward(self._norm(x, "post_attention_layernorm"), choice)
        return {**attention, **feed_forward, "residual": x + feed_forward["ffn_out"]}

    def _attend(self, x: Tensor) -> dict[str, Tensor]:
        config, num_tokens = self._config, len(x)
        q, k, v = (
            self._linear(x, f"self_attn.{name}_proj").view(num_tokens, -1, config.head_dim)
            for name in "qkv"
        )
        has_norms = "self_attn.q_norm.weight" in self._weights
        q_in = self._norm(q, "self_attn.q_norm") if has_norms else q
        k_in = self._norm(k, "self_attn.k_norm") if has_norms else k
        cos_sin = _angles(config, x)
        q_rot, k_rot = rotate(q_in, cos_sin), self._rounding.cached(rotate(k_in, cos_sin))
        values = self._rounding.cached(v)
        scores = attention_scores(
            q_rot, k_rot, scale=config.head_dim**-0.5, is_visible=can_see(num_tokens, self._window)
        )
        sinks = self._weights.get("self_attn.sinks")
        mixed = mix(scores, values, sinks)
        return {
            "attn_norm": x,
            "q": q,
            "k": k,
            "v": v,
            "q_in": q_in,
            "k_in": k_in,
            "q_rot": q_rot,
            "k_rot": k_rot,
            "keys": k_rot,
            "values": values,
            "scores": scores,
            **({} if sinks is None else {"sinks": sinks}),
            "mixed": mixed,
            "attn_out": self._linear(mixed, "self_attn.o_proj"),
        }

    def _feed_forward(self, x: Tensor, choice: Tensor | None) -> dict[str, Tensor]:
        if has_experts(self._weights):
            return self._mixture(x, choice)
        hidden = swiglu(self._linear(x, "mlp.gate_proj"), self._linear(x, "mlp.up_proj"))
        ffn_out = self._linear(hidden, "mlp.down_proj")
        return {"ffn_norm": x, "ffn_hidden": hidden, "ffn_out": ffn_out}

    def _mixture(self, x: Tensor, choice: Tensor | None) -> dict[str, Tensor]:
        config, logits = self._config, router_logits(x, self._weights)
        count, renormalize = config.experts_per_token, config.renormalize
        chosen = choose(logits, count, renormalize=renormalize, among=choice)
        product = self._rounding.product(is_mxfp4=is_mxfp4(self._weights), is_expert=True)
        ffn_out = combine(x, chosen, self._weights, activation(config), unpack_mxfp4, product)
        return {"ffn_norm": x, "router": logits, "experts": chosen, "ffn_out": ffn_out}

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self._weights[f"{name}.weight"], self._config.eps)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights.get(f"{name}.bias")
        return self._rounding.product()(x, weight, bias)


def _angles(config: PlainConfig, x_TE: Tensor) -> Tensor:
    """Return cosines and sines of positions from 0 on, in float32 at least."""
    return plain_cos_sin(config, torch.arange(len(x_TE)), dtype=wide(x_TE).dtype)


def _nudged(x_TE: Tensor, unit: float, seed: int) -> Tensor:
    """Move each value by so large a part of it, up or down."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, x_TE.shape, generator=generator) * 2 - 1
    return x_TE * (1 + unit * signs).to(x_TE.dtype)
