"""Requests in a paged cache as the compiled kernels read it, with NaN in all unwritten slots."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.ops import cpu
from inferno.ops.batch import Batch, LayerKV
from tests.ops import oracle
from tests.ops.batches import make_batch
from tests.ops.cpu.guarded import copied, guarded


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the heads and of the cache."""

    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    block_size: int = 16
    window: int | None = None
    cache: torch.dtype = torch.float32
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Requests:
    """Queries of all positions, and the cache that holds their keys and values."""

    shape: Shape
    queries: list[Tensor]
    keys: list[Tensor]  # as the cache holds them
    values: list[Tensor]
    tables: list[list[int]]
    kv: LayerKV

    def batch(self, chunks: list[range | None]) -> Batch:
        """A step that computes these positions of each request."""
        shape = self.shape
        here = [(i, chunk) for i, chunk in enumerate(chunks) if chunk is not None]
        return make_batch(
            [len(chunk) for _, chunk in here],
            [chunk.stop for _, chunk in here],
            [self._table(i, chunk) for i, chunk in here],
            block_size=shape.block_size,
            window=shape.window,
        )

    def _table(self, request: int, chunk: range) -> list[int]:
        """A request's blocks; 0 where the window has left them."""
        window = self.shape.window or chunk.stop
        first_block = max(0, chunk.start - window + 1) // self.shape.block_size
        return [0] * first_block + self.tables[request][first_block:]

    def attend(self, chunks: list[range | None], sinks_H: Tensor | None = None) -> list[Tensor]:
        """The kernels' attention over these positions, request by request."""
        here = [(i, chunk) for i, chunk in enumerate(chunks) if chunk is not None]
        q_THD = torch.cat([self.queries[i][chunk.start : chunk.stop] for i, chunk in here])
        q_THD = copied(q_THD.flatten(1)).view(q_THD.shape)
        out_THD = guarded(q_THD.flatten(1).shape, q_THD.dtype).view(q_THD.shape)
        cpu.attention(
            q_THD, self.batch(chunks), self.kv, scale=self.scale, sinks_H=sinks_H, out=out_THD
        )
        return list(torch.split(out_THD, [len(chunk) for _, chunk in here]))

    def expected(self, request: int, chunk: range, sinks_H: Tensor | None = None) -> Tensor:
        """The definition, in float64."""
        return oracle.attend(
            self.queries[request][chunk.start : chunk.stop],
            self.keys[request][: chunk.stop],
            self.values[request][: chunk.stop],
            scale=self.scale,
            window=self.shape.window,
            sinks_H=sinks_H,
            query_start=chunk.start,
        )

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.shape.head_size)


def make_requests(shape: Shape, lens: Iterable[int], *, seed: int = 0) -> Requests:
    """Requests of that many tokens, all of them in the cache, in blocks at random places."""
    lens = list(lens)
    torch.manual_seed(seed)
    heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
    made = [[torch.randn(n, h, shape.head_size) for h in heads] for n in lens]
    tables = _shuffled_tables(lens, shape.block_size, seed)
    kv = empty_kv(shape, 1 + sum(map(len, tables)))
    stored = [
        (_store(k, t, kv, "key"), _store(v, t, kv, "value"))
        for (_, k, v), t in zip(made, tables, strict=True)
    ]
    queries = [q.to(shape.dtype) for q, _, _ in made]
    return Requests(shape, queries, [k for k, _ in stored], [v for _, v in stored], tables, kv)


def empty_kv(shape: Shape, num_blocks: int) -> LayerKV:
    """A cache with NaN everywhere; in int8, where there is none, NaN scales."""
    size = (num_blocks, shape.block_size, shape.num_kv_heads, shape.head_size)
    kv = cpu.empty_cache(size, shape.cache)
    nothing = 99 if shape.cache is torch.int8 else torch.nan
    keys_NSKD, values_NSKD = (_walled(x, nothing) for x in (kv.keys_NSKD, kv.values_NSKD))
    if kv.key_scales_NKS is None or kv.value_scales_NKS is None:
        return LayerKV(keys_NSKD, values_NSKD)
    scales = (_walled(x, torch.nan) for x in (kv.key_scales_NKS, kv.value_scales_NKS))
    return LayerKV(keys_NSKD, values_NSKD, 0, *scales)


def _walled(like: Tensor, fill: float) -> Tensor:
    """Laid out as `like`, before a page that kills whoever reads on."""
    flat = guarded((like.numel(),), like.dtype)
    return flat.as_strided(like.shape, like.stride()).fill_(fill)


def read(kv: LayerKV, table: list[int], length: int, what: str) -> Tensor:
    """What the cache holds of a request, "key" or "value", as float32 [length, K, D]."""
    cache_NSKD = kv.keys_NSKD if what == "key" else kv.values_NSKD
    scales_NKS = kv.key_scales_NKS if what == "key" else kv.value_scales_NKS
    stored_LKD = cache_NSKD[table].flatten(0, 1)[:length].float()
    if scales_NKS is None:
        return stored_LKD
    return stored_LKD * scales_NKS[table].transpose(1, 2).flatten(0, 1)[:length].unsqueeze(-1)


def _store(x_LKD: Tensor, table: list[int], kv: LayerKV, what: str) -> Tensor:
    """Write keys or values to a request's blocks; returns them as they can be read."""
    cache_NSKD = kv.keys_NSKD if what == "key" else kv.values_NSKD
    scales_NKS = kv.key_scales_NKS if what == "key" else kv.value_scales_NKS
    scale_LK = x_LKD.abs().amax(-1) / 127
    for position, x_KD in enumerate(x_LKD):
        slot = position % cache_NSKD.shape[1]
        block = table[position // cache_NSKD.shape[1]]
        if scales_NKS is None:
            cache_NSKD[block, slot] = x_KD.to(cache_NSKD.dtype)
        else:
            scales_NKS[block, :, slot] = scale_LK[position]
            codes_KD = (x_KD / scale_LK[position].unsqueeze(-1)).round()
            cache_NSKD[block, slot] = codes_KD.to(torch.int8)
    return read(kv, table, len(x_LKD), what)


def _shuffled_tables(lens: list[int], block_size: int, seed: int) -> list[list[int]]:
    counts = [-(-n // block_size) for n in lens]
    blocks = list(range(1, sum(counts) + 1))
    random.Random(seed).shuffle(blocks)
    return [[blocks.pop() for _ in range(count)] for count in counts]
