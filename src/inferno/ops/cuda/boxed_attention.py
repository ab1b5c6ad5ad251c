"""Attention of long chunks over a cache of large blocks: tiles of keys come by TMA descriptors.

Where a block has no fewer positions than a tile has keys, a tile lies in one run of memory: a box
of a matrix that has a row for each slot of each head. Hopper and Blackwell copy a box to shared
memory by one instruction of one thread, and a barrier there tells that it has come. By addresses,
each thread computes and asks for 16 bytes at a time. On SM90, for heads of 128 values, the loop
over keys has 917 instructions so, and 1109 by addresses (Triton 3.9; 3.6: 890 and 1110); on SM100
553 and 706. Registers and shared memory allow one block a multiprocessor either way.

A descriptor knows the bounds of the cache, not those of a request. So it loads only tiles all of
whose positions some row sees. The first tile of a window and the last of a chunk are loaded by
`attend_to_tile`, key by key: what lies beside their keys may be unwritten, and NaN.

Tiles and sums are those of `prefill_attention_kernel`, in its order, so bits are the same however a
tile came. Three tiles of keys and of values have room in shared memory: while one is multiplied,
two are on their way. Shape letters as in attention_kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inferno.ops.cuda.attention_kernels import (
    LOG2_E,
    LOWEST,
    attend_to_tile,
    find_item,
    lens_of,
    no_sums,
)


@triton.jit
def attend_to_box(
    q,
    best,
    total,
    sums,
    key_start,
    position,
    first_position,
    last_position,
    key_boxes,
    value_boxes,
    block_table,
    kv_head,
    num_kv_heads,
    block_shift,
    window,
    scale_log2,
    BLOCK_N: tl.constexpr,
):
    """Take in the keys of a whole tile, as `attend_to_tile` does; arguments as there.

    key_boxes, value_boxes  descriptors of boxes [N, D], in matrices of all slots.
    """
    block = tl.load(block_table + (key_start >> block_shift)).to(tl.int32)
    slot = (block * num_kv_heads + kv_head) << block_shift
    slot += key_start & ((1 << block_shift) - 1)
    k = key_boxes.load([slot, 0])
    scores = tl.zeros((q.shape[0], BLOCK_N), tl.float32)
    scores = tl.dot(q, tl.trans(k), scores, input_precision="ieee")
    if (key_start + BLOCK_N > first_position + 1) | (key_start <= last_position - window):
        distance = position[:, None] - (key_start + tl.arange(0, BLOCK_N))[None, :]
        scores = tl.where((distance >= 0) & (distance < window), scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1) * scale_log2)
    weights = tl.math.exp2(scores * scale_log2 - new_best[:, None])
    shrink = tl.math.exp2(best - new_best)
    total = total * shrink + tl.sum(weights, 1)
    v = value_boxes.load([slot, 0])
    shrunk = sums[0] * shrink[:, None]
    new_sums = tl.dot(weights.to(q.dtype), v, shrunk, input_precision="ieee")
    return new_best, total, (new_sums,)


@triton.jit(
    do_not_specialize=[
        "num_requests",
        "table_stride",
        "group_size",
        "num_kv_heads",
        "block_shift",
        "few_rows",
        "window",
        "num_sinks",
    ],
    do_not_specialize_on_alignment=["query_starts", "context_lens", "block_tables"],
)
def boxed_prefill_attention_kernel(
    q,
    out,
    keys,
    values,
    key_boxes,
    value_boxes,
    sinks,
    query_starts,
    context_lens,
    block_tables,
    q_stride_t,
    q_stride_h,
    out_stride_t,
    out_stride_h,
    table_stride,
    num_requests,
    group_size,
    num_kv_heads,
    block_shift,
    window,
    few_rows,
    num_sinks,
    scale_log2,
    HEAD_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute what `prefill_attention_kernel` does of unquantized heads of a power of two."""
    # The last tiles of a prompt see the most keys: begun first, they don't end last.
    item = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    request, tile, _ = find_item(
        *(item, query_starts, context_lens, num_requests),
        *(group_size, few_rows, window, BLOCK_M, "tiles"),
    )
    if request >= num_requests:
        return
    query_len, context_len = lens_of(request, request < num_requests, query_starts, context_lens)
    num_rows = query_len * group_size
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    last_row = tl.minimum(tile * BLOCK_M + BLOCK_M, num_rows) - 1
    start = context_len - query_len
    position = start + row // group_size
    first_position = start + tile * BLOCK_M // group_size
    last_position = start + last_row // group_size
    head = kv_head * group_size + row % group_size
    token = tl.load(query_starts + request) + row // group_size
    dim = tl.arange(0, HEAD_SIZE)
    is_row = row < num_rows
    x = tl.load(
        q + (token * q_stride_t + head * q_stride_h)[:, None] + dim[None, :],
        mask=is_row[:, None],
        other=0.0,
    )
    # A sink is a score that came before all keys, and brought no value.
    is_sink = is_row & (head < num_sinks)
    sink = tl.load(sinks + head, mask=is_sink, other=0.0).to(tl.float32) * LOG2_E
    best = tl.where(is_sink & (sink != float("-inf")), sink, LOWEST)
    total = tl.where(is_sink, 1.0, 0.0)
    sums = no_sums(BLOCK_M, HEAD_SIZE, 1)
    first_key = tl.maximum(first_position + 1 - window, 0)
    end_key = last_position + 1
    block_table = block_tables + request * table_stride
    # Tiles from `first_whole` to `end_whole` are whole. A short window may have none: then the one
    # or two that there are may be cut by both of its ends, and are met once all the same.
    first = first_key // BLOCK_N * BLOCK_N
    first_whole = tl.minimum((first_key + BLOCK_N - 1) // BLOCK_N * BLOCK_N, end_key)
    end_whole = tl.maximum(end_key // BLOCK_N * BLOCK_N, first_whole)
    # With two stages an edge's keys and values are copied to shared memory, not held in registers.
    for key_start in tl.range(first, first_whole, BLOCK_N, num_stages=2):
        best, total, sums = attend_to_tile(
            *((x,), best, total, sums),
            *(key_start, position, first_position, last_position, first_key, end_key),
            *(keys, values, keys, values, block_table),
            *(kv_head, num_kv_heads, block_shift, window, scale_log2),
            *(HEAD_SIZE, HEAD_SIZE, BLOCK_N, "", 1, 1, "ieee"),
        )
    for key_start in tl.range(first_whole, end_whole, BLOCK_N):
        best, total, sums = attend_to_box(
            *(x, best, total, sums),
            *(key_start, position, first_position, last_position),
            *(key_boxes, value_boxes, block_table),
            *(kv_head, num_kv_heads, block_shift, window, scale_log2, BLOCK_N),
        )
    for key_start in tl.range(end_whole, end_key, BLOCK_N, num_stages=2):
        best, total, sums = attend_to_tile(
            *((x,), best, total, sums),
            *(key_start, position, first_position, last_position, first_key, end_key),
            *(keys, values, keys, values, block_table),
            *(kv_head, num_kv_heads, block_shift, window, scale_log2),
            *(HEAD_SIZE, HEAD_SIZE, BLOCK_N, "", 1, 1, "ieee"),
        )
    tl.store(
        out + (token * out_stride_t + head * out_stride_h)[:, None] + dim[None, :],
        (sums[0] / total[:, None]).to(out.dtype.element_ty),
        mask=is_row[:, None],
    )
