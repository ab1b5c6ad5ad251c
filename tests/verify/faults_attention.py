"""Mistakes of positions, rotation and attention kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.execution.batcher import Batcher
from inferno.layers.linear import split_heads
from inferno.models import common
from inferno.ops import Batch, LayerKV, reference
from inferno.verify.oracles.plain_maths import attention_scores, can_see, mix
from tests.verify.faults import Plant

Patch = pytest.MonkeyPatch
Kernel = Callable[..., Any]


def in_batch(change: Callable[[Batch], Batch]) -> Plant:
    """Steps whose batch is changed after it was built."""

    def plant(patch: Patch) -> None:
        right = Batcher.build
        patch.setattr(Batcher, "build", lambda self, *given: change(right(self, *given)))

    return plant


def shifted_while_decoding(batch: Batch) -> Batch:
    is_decode = batch.query_lens == (1,)
    return replace(batch, positions_T=batch.positions_T + 1) if is_decode else batch


def restarted_in_each_chunk(batch: Batch) -> Batch:
    return replace(batch, positions_T=batch.positions_T - batch.positions_T[0])


def beside_its_op(patch: Patch) -> None:
    """Attention that rotates and stores without the op."""

    def forward(self: Any, x: Tensor, cos_sin: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        q, k, v = split_heads(self.qkv_proj(x), self.counts, self.head_dim)
        reference.store(reference.rotate(k, cos_sin), v, batch, kv)
        mixed = ops.attention(reference.rotate(q, cos_sin), batch, kv, scale=self.scale)
        out: Tensor = self.o_proj(mixed.flatten(1))
        return out

    patch.setattr(common.Attention, "forward", forward)


def beside_its_op_while_decoding(patch: Patch) -> None:
    """Likewise, where tokens are computed one by one."""
    right = common.Attention.forward
    with pytest.MonkeyPatch.context() as own:
        beside_its_op(own)
        beside = common.Attention.forward

    def forward(self: Any, x: Tensor, cos_sin: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        chosen = beside if batch.query_lens == (1,) else right
        return chosen(self, x, cos_sin, batch, kv)

    patch.setattr(common.Attention, "forward", forward)


def kernel(change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]) -> Any:
    """Plain attention over the cache with q, k and v changed, of one request without windows."""

    def make(_: Kernel) -> Kernel:
        def attention(q: Tensor, batch: Batch, kv: LayerKV, *, scale: float, **_: Any) -> Tensor:
            tables, length = batch.groups[kv.group].block_tables_RB[0], batch.context_lens[0]
            blocks = tables[: -(-length // kv.keys_NSKD.shape[1])]
            k, v = (x[blocks].flatten(0, 1)[:length] for x in (kv.keys_NSKD, kv.values_NSKD))
            q, k, v = change(q, k, v)
            seen = can_see(length, None)[length - len(q) :]
            scores = attention_scores(q, k, scale=scale, is_visible=seen)
            return mix(scores, v).view(q.shape)

        return attention

    return make


def tiled(x: Tensor, like: Tensor) -> Tensor:
    """Heads h % K for h, instead of h // (H/K)."""
    return x.repeat(1, like.shape[1] // x.shape[1], 1)


def rolled_sinks(right: Kernel) -> Kernel:
    def attention(*args: Any, sinks_H: Tensor, **how: Any) -> Any:
        return right(*args, sinks_H=sinks_H.roll(1), **how)

    return attention


def blind_to_earlier_steps(right: Kernel) -> Kernel:
    """A kernel that sees the keys of its own step alone."""

    def attention(q: Tensor, batch: Batch, kv: LayerKV, *, scale: float, **_: Any) -> Tensor:
        length, count = batch.context_lens[0], len(q)
        tables = batch.groups[kv.group].block_tables_RB[0]
        blocks = tables[: -(-length // kv.keys_NSKD.shape[1])]
        own = slice(length - count, length)
        k, v = (x[blocks].flatten(0, 1)[own] for x in (kv.keys_NSKD, kv.values_NSKD))
        scores = attention_scores(q, k, scale=scale, is_visible=can_see(count, None))
        return mix(scores, v).view(q.shape)

    return attention


def rounded_cache(right: Kernel) -> Kernel:
    """Keys and values that lose precision on their way to the cache."""

    def rotate_and_store(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **how: Any) -> Any:
        return right(q, k, v.bfloat16().float(), *rest, **how)

    return rotate_and_store


def wrong_yarn_factor(model: Any) -> None:
    model.model.rotary.attention_factor = 1.0


def only_in_head(head: int, factor: float) -> Callable[[Kernel], Kernel]:
    """A kernel that gets one head's scale wrong."""

    def make(right: Kernel) -> Kernel:
        def attention(q: Tensor, *rest: Any, **how: Any) -> Any:
            factors = torch.ones(q.shape[1], 1)
            factors[head] = factor
            return right(q * factors, *rest, **how)

        return attention

    return make
