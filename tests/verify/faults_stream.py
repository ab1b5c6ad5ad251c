"""Mistakes in what flows through layers: embeddings, norms, residual stream, layers left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno.layers.decoder import CausalLM, Decoder, DecoderLayer, Embedding
from inferno.layers.norm import RMSNorm
from tests.verify.faults import Plant, in_model, set_on

Patch = pytest.MonkeyPatch
Forward = Callable[..., Any]


def patched(owner: type, name: str, make: Callable[[Forward], Forward]) -> Plant:
    """A method that is made from the right one."""

    def plant(patch: Patch) -> None:
        patch.setattr(owner, name, make(getattr(owner, name)))

    return plant


def scaled(factor: float) -> Callable[[Forward], Forward]:
    """A method whose result is so many times too large."""
    return lambda right: lambda *args, **how: right(*args, **how) * factor


def plain_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A norm that is right, in plain torch and not by the op."""
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def norm_beside_its_op(_: Forward) -> Forward:
    def add(self: RMSNorm, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        stream = x if residual is None else x + residual
        return plain_norm(stream, self.weight, self.eps), stream

    return add


def wrong_norm_beside_its_op(_: Forward) -> Forward:
    def add(self: RMSNorm, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        stream = x if residual is None else x + residual
        return plain_norm(stream, 1 + self.weight, self.eps), stream

    return add


def no_norm(_: Forward) -> Forward:
    def add(self: RMSNorm, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        stream = x if residual is None else x + residual
        return stream, stream

    return add


def of_final_norm(make: Callable[[Forward], Forward]) -> Plant:
    """A mistake of the last norm alone."""

    def change(model: CausalLM) -> None:
        norm = model.model.norm
        wrong = make(RMSNorm.add)
        set_on("add", partial(wrong, norm))(norm)

    return in_model(change)


def without_layer(number: int) -> Plant:
    """The decoder passes a layer over."""

    def plant(patch: Patch) -> None:
        right = Decoder.forward

        def forward(self: Decoder, batch: Any, kv: Any, *_: Any) -> Any:
            layers = self.layers
            kept = [i for i in range(len(layers)) if i != number]
            self.layers = torch.nn.ModuleList([layers[i] for i in kept])
            try:
                return right(self, batch, [kv[i] for i in kept])
            finally:
                self.layers = layers

        patch.setattr(Decoder, "forward", forward)

    return plant


def layer_forward(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Plant:
    """What a layer hands on, changed: its last output, and the stream without it."""
    return patched(DecoderLayer, "forward", lambda right: lambda *args: change(*right(*args)))


def scaled_embedding_module(factor: float) -> Plant:
    """Embeddings that are scaled after their op."""
    return patched(Embedding, "forward", scaled(factor))


def run_twice(number: int) -> Plant:
    """A layer that computes all twice and hands on the second result."""

    def change(model: CausalLM) -> None:
        layer = model.model.layers[number]
        once = layer.forward
        layer.forward = lambda *given: (once(*given), once(*given))[1]

    return in_model(change)


def without_sinks_of_layer(number: int) -> Plant:
    """One layer that gives its kernel no sinks."""

    def change(model: CausalLM) -> None:
        set_on("self_attn.sinks", None)(model.model.layers[number])

    return in_model(change)
