"""Attention on a GPU beside PyTorch's own, and beside the limits of the chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from unittest import mock

import torch
import torch.nn.functional as F
from gpu_timing import Bench, Figure
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from inferno import ops
from inferno.ops import Batch, GroupTables, LayerKV
from inferno.ops.cuda import paged_attention

_BLOCK_SIZE = 16
_LARGE_BLOCK_SIZE = 128  # that of which whole tiles are loaded by TMA descriptors
_HEADS, _KV_HEADS, _HEAD_SIZE = 32, 8, 128
FORWARD_TOKENS, NAIVE_TOKENS, MEMORY_TOKENS = 16384, 2048, 8192
DECODE_REQUESTS, DECODE_CONTEXT = 64, 4096


def attention_figures(bench: Bench) -> Iterator[Figure]:
    """Yield the speed and memory of whole prompts."""
    num_tokens = FORWARD_TOKENS if bench.is_gpu else 32
    run, (q, k, v) = _problem(bench, 1, num_tokens, num_tokens)
    seconds = bench.seconds(run)
    # Half of the scores are hidden; two products of them with the heads' values.
    flops = 2 * 2 * _HEADS * _HEAD_SIZE * num_tokens**2 / 2
    name = f"forward, head {_HEAD_SIZE}, {num_tokens} tokens, causal"
    yield Figure(
        name,
        f"{flops / seconds / 1e12:.0f} TFLOP/s",
        round(flops / seconds / bench.limits.bf16_flops, 3),
        "of the bf16 product",
        0.55,
    )
    for backend, bar in ((SDPBackend.FLASH_ATTENTION, 1.0), (SDPBackend.CUDNN_ATTENTION, None)):
        peer = _peer_seconds(bench, q, k, v, backend)
        if peer is not None:
            yield Figure(
                name, f"{seconds * 1e3:.2f} ms", round(peer / seconds, 3), f"{backend.name}", bar
            )
    run, _ = _problem(bench, 1, num_tokens, num_tokens, _LARGE_BLOCK_SIZE)
    by_boxes = bench.seconds(run)
    with mock.patch.object(paged_attention, "is_boxed", return_value=False):
        by_addresses = bench.seconds(run)
    yield Figure(
        f"the same, blocks of {_LARGE_BLOCK_SIZE}",
        f"{by_boxes * 1e3:.2f} ms, without descriptors {by_addresses * 1e3:.2f} ms",
        round(seconds / by_boxes, 3),
        f"blocks of {_BLOCK_SIZE}",
    )
    num_tokens = NAIVE_TOKENS if bench.is_gpu else 32
    run, (q, k, v) = _problem(bench, 1, num_tokens, num_tokens)
    seconds, naive = bench.seconds(run), bench.seconds(lambda: _naive(q, k, v))
    yield Figure(
        f"forward, {num_tokens} tokens",
        f"{seconds * 1e3:.2f} ms",
        round(naive / seconds, 2),
        "naive SDPA",
        2.0,
    )
    num_tokens = MEMORY_TOKENS if bench.is_gpu else 32
    run, (q, k, v) = _problem(bench, 1, num_tokens, num_tokens)
    # Queries, keys, values and result count on both sides; the peer makes its result itself.
    given = sum(x.numel() * x.itemsize for x in (q, k, v))
    ours = given + q.numel() * q.itemsize + bench.peak_bytes(run)
    naive_bytes = given + bench.peak_bytes(lambda: _naive(q, k, v))
    yield Figure(
        f"memory, {num_tokens} tokens",
        f"{ours / 1e6:.0f} MB",
        round(naive_bytes / ours, 2),
        "naive SDPA's, over ours",
        2.0,
    )


def decode_attention_figures(bench: Bench) -> Iterator[Figure]:
    """Yield the bytes a second of one token of each of many requests."""
    requests, context = (DECODE_REQUESTS, DECODE_CONTEXT) if bench.is_gpu else (2, 64)
    for num_requests, bar in ((requests, 0.8), (1, None)):
        run, _ = _problem(bench, num_requests, 1, context)
        seconds = bench.seconds(run)
        num_bytes = 2 * num_requests * context * _KV_HEADS * _HEAD_SIZE * 2
        yield Figure(
            f"decode, batch {num_requests}, context {context}",
            f"{num_bytes / seconds / 1e12:.2f} TB/s, {seconds * 1e6:.0f} us",
            round(num_bytes / seconds / bench.limits.copy_bandwidth, 3),
            "of a copy",
            bar,
        )


def _problem(
    bench: Bench, num_requests: int, query_len: int, context: int, size: int = _BLOCK_SIZE
) -> tuple[Callable[[], Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Return our op over a filled cache, and the same as plain tensors [1, H, T, D] of request 0.

    Blocks have `size` positions. Those of a request lie apart, as in a cache that was long in use.
    """
    dtype = torch.bfloat16 if bench.is_gpu else torch.float16
    device = bench.device
    blocks = -(-context // size)
    kv = ops.empty_cache((num_requests * blocks + 1, size, _KV_HEADS, _HEAD_SIZE), dtype, device)
    kv.keys_NSKD.normal_()
    kv.values_NSKD.normal_()
    order = torch.randperm(num_requests * blocks, device=device) + 1
    tables_RB = order.view(num_requests, blocks)
    first = context - query_len
    positions_T = torch.arange(first, context, device=device).repeat(num_requests)
    rows_T = torch.arange(num_requests, device=device).repeat_interleave(query_len)
    batch = Batch(
        token_ids_T=torch.zeros_like(positions_T),
        positions_T=positions_T,
        query_lens=(query_len,) * num_requests,
        context_lens=(context,) * num_requests,
        query_starts_R=torch.tensor([0, *accumulate([query_len] * num_requests)], device=device),
        context_lens_R=torch.full((num_requests,), context, device=device),
        groups=(
            GroupTables(
                window=None,
                block_tables_RB=tables_RB,
                slots_T=tables_RB[rows_T, positions_T // size] * size + positions_T % size,
            ),
        ),
    )
    num_rows = num_requests * query_len
    q_THD = torch.randn(num_rows, _HEADS, _HEAD_SIZE, device=device).to(dtype)
    scale = _HEAD_SIZE**-0.5
    k, v = (_plain(part, tables_RB[0], context) for part in (kv.keys_NSKD, kv.values_NSKD))
    q = q_THD[:query_len].transpose(0, 1).unsqueeze(0).contiguous()
    return _attend(q_THD, batch, kv, scale), (q, k, v)


def _attend(q_THD: Tensor, batch: Batch, kv: LayerKV, scale: float) -> Callable[[], Tensor]:
    out = torch.empty_like(q_THD)

    def run() -> Tensor:
        with torch.inference_mode():
            return ops.attention(q_THD, batch, kv, scale=scale, out=out)

    return run


def _plain(cache_NSKD: Tensor, blocks_B: Tensor, context: int) -> Tensor:
    """Return one request's keys or values as [1, K, L, D]."""
    whole_LKD = cache_NSKD[blocks_B].flatten(0, 1)[:context]
    return whole_LKD.transpose(0, 1).unsqueeze(0).contiguous()


def _naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _peer_seconds(
    bench: Bench, q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend
) -> float | None:
    """Return the time of one of PyTorch's own, None where this PyTorch hasn't got it.

    Keys and values are repeated for it before, as not every one knows of shared heads.
    """
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))

    def run() -> Tensor:
        with sdpa_kernel(backend), torch.inference_mode():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    try:
        return bench.seconds(run)
    except RuntimeError:
        return None
