"""Mistakes planted from outside into a correct engine, one function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inferno import ops
from inferno.config.rope import RopeConfig
from inferno.engine import build
from inferno.engine.execution import loading
from inferno.engine.execution.batcher import Batcher
from inferno.engine.sampling.sampler import Sampler
from inferno.layers.decoder import DecoderLayer
from inferno.layers.linear import Linear
from inferno.layers.rope import RotaryEmbedding, frequencies
from inferno.model_files import model_config
from inferno.ops import StoredRows, reference

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def in_model(change: Callable[[Any], None]) -> Plant:
    """A change to the model after it was loaded."""

    def plant(patch: Patch) -> None:
        load = loading.load_model

        def load_and_change(*arguments: Any) -> Any:
            model = load(*arguments)
            change(model)
            return model

        patch.setattr(build, "load_model", load_and_change)

    return plant


def in_layers(change: Callable[[Any], None]) -> Plant:
    """A change to every layer of the model."""

    def change_all(model: Any) -> None:
        for layer in model.model.layers:
            change(layer)

    return in_model(change_all)


def in_op(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Another kernel in place of a right one."""

    def plant(patch: Patch) -> None:
        backend = SimpleNamespace(**{op: getattr(reference, op) for op in reference.__all__})
        setattr(backend, name, make(getattr(reference, name)))
        patch.setitem(ops.BACKENDS, "cpu", cast(ops.Backend, backend))

    return plant


def in_call(module: ModuleType, name: str, change: Callable[[dict[str, Any]], None]) -> Plant:
    """A model's file that gives an op other keyword arguments."""

    def plant(patch: Patch) -> None:
        def call(*arguments: Any, **named: Any) -> Any:
            change(named)
            return getattr(ops, name)(*arguments, **named)

        names = ("rotate_and_store", "attention")
        changed = {op: getattr(ops, op) for op in names} | {name: call}
        patch.setattr(module, "ops", SimpleNamespace(**changed))

    return plant


def set_on(path: str, value: Any) -> Callable[[Any], None]:
    """Sets an attribute that lies some attributes deep."""
    *parents, last = path.split(".")

    def change(owner: Any) -> None:
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, last, value)

    return change


def wrong_theta(model: Any) -> None:
    rotary = model.model.rotary
    rotary.frequencies = frequencies(RopeConfig(theta=1e6), 2 * len(rotary.frequencies))


def unscaled_yarn(model: Any) -> None:
    rotary = model.model.rotary
    rotary.frequencies = frequencies(RopeConfig(), 2 * len(rotary.frequencies))
    rotary.attention_factor = 1.0


def shifted_positions(patch: Patch) -> None:
    right = RotaryEmbedding.forward
    patch.setattr(RotaryEmbedding, "forward", lambda self, positions: right(self, positions + 1))


def interleaved_rope(_: Callable[..., Any]) -> Callable[..., Any]:
    def turn(x: Tensor, cos_sin: Tensor) -> Tensor:
        cos, sin = cos_sin.unsqueeze(1).chunk(2, dim=-1)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    def rotate_and_store(
        q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, batch: Any, kv: Any, **_: Any
    ) -> Tensor:
        reference.store(turn(k, cos_sin), v, batch, kv)
        return turn(q, cos_sin)

    return rotate_and_store


def backward_rope(right: Callable[..., Any]) -> Callable[..., Any]:
    def rotate_and_store(
        q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, *rest: Any, **how: Any
    ) -> Any:
        cos, sin = cos_sin.chunk(2, dim=-1)
        return right(q, k, v, torch.cat((cos, -sin), -1), *rest, **how)

    return rotate_and_store


def transposed_groups(right: Callable[..., Any]) -> Callable[..., Any]:
    """Query head h reads key head h % K."""

    def attention(q: Tensor, batch: Any, kv: Any, **how: Any) -> Tensor:
        heads = torch.arange(q.shape[1]).view(-1, kv.keys_NSKD.shape[2]).T.flatten()
        out: Tensor = right(q[:, heads].contiguous(), batch, kv, **how)
        return out[:, heads.argsort()].contiguous()

    return attention


def without_window(right: Callable[..., Any]) -> Callable[..., Any]:
    def attention(q: Tensor, batch: Any, kv: Any, **how: Any) -> Tensor:
        groups = tuple(
            replace(group, window=group.window and group.window - 1) for group in batch.groups
        )
        out: Tensor = right(q, replace(batch, groups=groups), kv, **how)
        return out

    return attention


def without_sinks(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **how: right(*args, **{**how, "sinks_H": None})


def gated_by(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any], Callable[..., Any]]:
    """A gated product that joins gate and up in another way."""

    def gated_linear(x: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
        gate, up = reference.linear(x, weight, bias).chunk(2, dim=-1)
        return join(gate, up)

    return lambda _: gated_linear


swapped_halves = gated_by(lambda gate, up: gate * F.silu(up))
gelu_mul = gated_by(lambda gate, up: F.gelu(gate) * up)
overflowing = gated_by(lambda gate, _: torch.full_like(gate, torch.nan))


def swapped_nibbles(right: Callable[..., Any]) -> Callable[..., Any]:
    def swapped(weight: StoredRows) -> StoredRows:
        blocks, scales = weight.parts
        return StoredRows(weight.format, ((blocks << 4) | (blocks >> 4), scales))

    def experts(x: Tensor, chosen: Tensor, weights: Tensor, up: Any, down: Any, **how: Any) -> Any:
        return right(x, chosen, weights, swapped(up), swapped(down), **how)

    return experts


def one_wider(patch: Patch) -> None:
    """A window of the whole engine, scheduler and all, that is one token too wide."""
    read = model_config

    def read_wider(*arguments: Any, **how: Any) -> Any:
        config = read(*arguments, **how)
        windows = tuple(window and window + 1 for window in config.windows)
        return replace(config, windows=windows)

    patch.setattr("inferno.engine.build.model_config", read_wider)


def stale_block(patch: Patch) -> None:
    """While decoding, the second block of the table is the first once more."""
    right = Batcher.build

    def build(self: Batcher, *arguments: Any) -> Any:
        batch = right(self, *arguments)
        if batch.query_lens == (1,):
            for group in batch.groups:
                group.block_tables_RB[0, 1] = group.block_tables_RB[0, 0]
        return batch

    patch.setattr(Batcher, "build", build)


def swapped_norms(named: dict[str, Any]) -> None:
    named["q_norm_D"], named["k_norm_D"] = named["k_norm_D"], named["q_norm_D"]


def scaled_sinks(named: dict[str, Any]) -> None:
    named["sinks_H"] = named["sinks_H"] * named["scale"]


def truncated_weight(patch: Patch) -> None:
    """A weight whose last rows were not read, and none that is laid out for kernels."""
    patch.setitem(ops.BACKENDS, "cpu", reference)

    def truncate(model: Any) -> None:
        model.model.layers[1].mlp.down_proj.weight[-3:] = 0

    in_model(truncate)(patch)


def own_head(model: Any) -> None:
    model.lm_head = Linear(48, 96)
    nn.init.normal_(model.lm_head.weight)


def lost_input(patch: Patch) -> None:
    """What enters a layer does not leave it."""
    right = DecoderLayer.forward

    def forward(self: DecoderLayer, x: Tensor, residual: Tensor | None, *rest: Any) -> Any:
        out, after = right(self, x, residual, *rest)
        return out, after - (x if residual is None else x + residual)

    patch.setattr(DecoderLayer, "forward", forward)


def odd_sampler(patch: Patch) -> None:
    """The sampler takes the token after the likeliest."""
    right = Sampler.process

    def process(self: Sampler, logits: Tensor, rows: Any) -> Any:
        return right(self, logits.roll(1, dims=-1), rows)

    patch.setattr(Sampler, "process", process)


def scaled_embedding(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ids, weight: right(ids, weight) * weight.shape[1] ** 0.5
