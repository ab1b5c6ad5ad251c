"""Kernels of attention over the paged cache: FlashAttention-2, and its split form for few queries.

Both kernels walk a request's keys in ascending positions, in tiles, with a softmax that is rescaled
when a tile raises the maximum (Dao, FlashAttention-2, arXiv:2307.08691). Heads that share a
key/value head are rows of one tile: row r of a request is its token r // G, head r % G of the
group, so keys and values are read once for the whole group.

prefill  one program takes a tile of rows and walks all of their keys.
decode   one program takes at most a tile of rows and the keys of one split (Dao et al.,
         Flash-Decoding, 2023); `combine_splits_kernel` then merges a row's splits in their order.

Programs find their work among the requests themselves, for a grid in a captured graph may depend on
shapes alone.

Keys and values are copied to shared memory asynchronously, 16 bytes at a time, by an address per
position. A TMA descriptor wants positions that lie together, and a block has 16 of them by default;
only SM100's can gather rows. `boxed_attention` has descriptors, for larger blocks. Triton's warp
specialization, if asked for, leaves such a loop as it is on SM90 and SM100 (3.9, with 4 and with 8
warps), so it isn't asked for.

Shape letters as in ops, and: G heads that share a key/value head, M rows of a tile, N keys of one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inferno.ops.cuda.dequantize import cached_elements
from inferno.ops.reference import flash

# Requests that are looked at together when a program searches for its own.
SEARCHED = tl.constexpr(128)
# Splits begin at multiples of so many positions, however many requests there are: short ones first,
# so that a short context has work for every multiprocessor, then longer ones, of which fewer
# partial results are to be merged.
SHORT_SPLIT = tl.constexpr(256)
NUM_SHORT = tl.constexpr(32)
LONG_SPLIT = tl.constexpr(1024)
# Splits that are merged at a time.
MERGED = tl.constexpr(16)
# Stands for minus infinity: the difference of two of them is a number.
LOWEST = tl.constexpr(-3.0e38)
LOG2_E = tl.constexpr(flash.LOG2_E)
# Kernels are not compiled anew for what changes from step to step, or from model to model: numbers
# that happen to be 1 or multiples of 16, and arrays that happen to begin at multiples of 16 bytes.


@triton.jit
def split_of(position):
    """Return the number of the split that a position lies in, for one position or a vector."""
    short = tl.minimum(position, SHORT_SPLIT * NUM_SHORT)
    return short // SHORT_SPLIT + (position - short) // LONG_SPLIT


@triton.jit
def split_start(split):
    short = tl.minimum(split, NUM_SHORT)
    return short * SHORT_SPLIT + (split - short) * LONG_SPLIT


@triton.jit
def splits_seen(query_len, context_len, window):
    """Return the first split that some token of a request sees, and the end of these splits."""
    first = tl.maximum(context_len - query_len + 1 - window, 0)
    return split_of(first), split_of(tl.maximum(context_len, 1) - 1) + 1


@triton.jit
def lens_of(request, is_request, query_starts, context_lens):
    """Return query and context lengths, of one request or of several."""
    begin = tl.load(query_starts + request, mask=is_request, other=0)
    end = tl.load(query_starts + request + 1, mask=is_request, other=0)
    context_len = tl.load(context_lens + request, mask=is_request, other=0)
    return (end - begin).to(tl.int32), context_len.to(tl.int32)


@triton.jit
def items_of(
    first_request,
    query_starts,
    context_lens,
    num_requests,
    group_size,
    few_rows,
    window,
    BLOCK_M: tl.constexpr,
    KIND: tl.constexpr,
):
    """Return how many items each of the next requests has, and its tokens if its rows are few.

    A request with `few_rows` at most is computed by splits, any other by tiles: its own number of
    rows decides, never another request.

    KIND  of items: "tiles" of requests with many rows; "splits" of each tile, or "tokens", of
          requests with few.
    """
    request = first_request + tl.arange(0, SEARCHED)
    query_len, context_len = lens_of(request, request < num_requests, query_starts, context_lens)
    num_rows = query_len * group_size
    num_tiles = (num_rows + BLOCK_M - 1) // BLOCK_M
    is_few = num_rows <= few_rows
    tokens = tl.where(is_few, query_len, 0)
    if KIND == "tiles":
        items = tl.where(is_few, 0, num_tiles)
    elif KIND == "splits":
        first, end = splits_seen(query_len, context_len, window)
        items = tl.where(is_few, num_tiles * (end - first), 0)
    else:
        tl.static_assert(KIND == "tokens")
        items = tokens
    return items, tokens


@triton.jit
def count_items(
    query_starts,
    context_lens,
    num_requests,
    group_size,
    few_rows,
    window,
    BLOCK_M: tl.constexpr,
    KIND: tl.constexpr,
):
    total = 0
    for first in range(0, num_requests, SEARCHED):
        items, _ = items_of(
            *(first, query_starts, context_lens, num_requests),
            *(group_size, few_rows, window, BLOCK_M, KIND),
        )
        total += tl.sum(items)
    return total


@triton.jit
def find_item(
    item,
    query_starts,
    context_lens,
    num_requests,
    group_size,
    few_rows,
    window,
    BLOCK_M: tl.constexpr,
    KIND: tl.constexpr,
):
    """Return an item's request, its number within the request, and the tokens of earlier requests.

    Only requests of few rows count for the tokens. Where there is no such item, the request is
    num_requests or more.
    """
    request = 0
    before = 0  # items of the requests before
    tokens_before = 0
    seen = 0
    for first in range(0, num_requests, SEARCHED):
        items, tokens = items_of(
            *(first, query_starts, context_lens, num_requests),
            *(group_size, few_rows, window, BLOCK_M, KIND),
        )
        ends = seen + tl.cumsum(items, 0)
        is_before = ends <= item
        request += tl.sum(is_before.to(tl.int32))
        before = tl.maximum(before, tl.max(tl.where(is_before, ends, 0)))
        tokens_before += tl.sum(tl.where(is_before, tokens, 0))
        seen += tl.sum(items)
    return request, item - before, tokens_before


@triton.jit
def split_dims(x_MD, PARTS: tl.constexpr):
    """Return [M, D / PARTS] of each PARTS-th dimension, from the first, the second, ... on."""
    if PARTS == 1:
        parts = (x_MD,)
    elif PARTS == 2:
        parts = tl.split(tl.reshape(x_MD, (x_MD.shape[0], x_MD.shape[1] // 2, 2)))
    else:
        tl.static_assert(PARTS == 4)
        x = tl.reshape(x_MD, (x_MD.shape[0], x_MD.shape[1] // 4, 2, 2))
        even, odd = tl.split(x)
        x0, x2 = tl.split(even)
        x1, x3 = tl.split(odd)
        parts = (x0, x1, x2, x3)  # type: ignore[assignment]
    return parts


@triton.jit
def join_dims(parts, PARTS: tl.constexpr):
    """Return what `split_dims` took apart."""
    shape: tl.constexpr = (parts[0].shape[0], parts[0].shape[1] * PARTS)
    if PARTS == 1:
        x_MD = parts[0]
    elif PARTS == 2:
        x_MD = tl.reshape(tl.join(parts[0], parts[1]), shape)
    else:
        even, odd = tl.join(parts[0], parts[2]), tl.join(parts[1], parts[3])
        x_MD = tl.reshape(tl.join(even, odd), shape)
    return x_MD


@triton.jit
def no_sums(ROWS: tl.constexpr, DIMS: tl.constexpr, PARTS: tl.constexpr):
    """Return sums of zero, in the parts that `split_dims` makes."""
    zeros = tl.zeros((ROWS, DIMS // PARTS), tl.float32)
    if PARTS == 1:
        sums = (zeros,)
    elif PARTS == 2:
        sums = (zeros, zeros)  # type: ignore[assignment]
    else:
        sums = (zeros, zeros, zeros, zeros)  # type: ignore[assignment]
    return sums


@triton.jit
def load_scales(scales, slot, is_key, COLUMNS: tl.constexpr):
    """Return the scales of slots, loaded once.

    With fewer scales than threads, the compiler (3.6) would have each thread load all scales that
    it multiplies by, into its registers. So there are more columns, of which one is loaded.
    """
    column = tl.arange(0, COLUMNS)[None, :]
    loaded = tl.load(scales + slot[:, None] + column, mask=is_key[:, None] & (column == 0), other=0)
    return tl.sum(loaded, 1)


@triton.jit
def attend_to_tile(
    q,
    best,
    total,
    sums,
    key_start,
    position,
    first_position,
    last_position,
    first_key,
    end_key,
    keys,
    values,
    key_scales,
    value_scales,
    block_table,
    kv_head,
    num_kv_heads,
    block_shift,
    window,
    scale_log2,
    HEAD_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FORMAT: tl.constexpr,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take in the keys from `key_start` on: new maximum, total and sums of the rows of q [M, D].

    position                        of each row; of the first and of the last row.
    first_key, end_key              what some row sees. Nothing else is read, for it may be
                                    unwritten; its scores are minus infinity.
    best, total, sums               maximum of a row's scores times log2(e), sum of its weights,
                                    weighted sum of values, float32.
    FORMAT, PARTS                   of the cache; keys and values are words of PARTS codes, and q
                                    and sums are in as many parts, as `split_dims` makes them.
    COLUMNS                         see `load_scales`.
    """
    key = key_start + tl.arange(0, BLOCK_N)
    is_key = (key >= first_key) & (key < end_key)
    block = tl.load(block_table + (key >> block_shift), mask=is_key, other=0).to(tl.int32)
    slot = ((block * num_kv_heads + kv_head) << block_shift) + (key & ((1 << block_shift) - 1))
    dim = tl.arange(0, BLOCK_D // PARTS)
    where = slot[:, None].to(tl.int64) * (HEAD_SIZE // PARTS) + dim[None, :]
    is_here = is_key[:, None]
    if HEAD_SIZE != BLOCK_D:
        is_here = is_here & (dim < HEAD_SIZE // PARTS)[None, :]
    dtype: tl.constexpr = q[0].dtype
    k = tl.load(keys + where, mask=is_here, other=0)
    scores = tl.zeros((q[0].shape[0], BLOCK_N), tl.float32)
    for part in tl.static_range(PARTS):
        k_part = tl.trans(cached_elements(k, part, FORMAT, dtype))
        scores = tl.dot(q[part], k_part, scores, input_precision=PRECISION)
    if FORMAT != "":
        scores *= load_scales(key_scales, slot, is_key, COLUMNS)[None, :]
    # Only tiles at the edge of what is visible are masked: most are not.
    if (key_start + BLOCK_N > first_position + 1) | (key_start <= last_position - window):
        distance = position[:, None] - key[None, :]
        scores = tl.where((distance >= 0) & (distance < window), scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1) * scale_log2)
    weights = tl.math.exp2(scores * scale_log2 - new_best[:, None])
    shrink = tl.math.exp2(best - new_best)
    total = total * shrink + tl.sum(weights, 1)
    v = tl.load(values + where, mask=is_here, other=0)
    # A weight times a small scale would leave float16's range; a value stays in it.
    are_values_scaled: tl.constexpr = FORMAT != "" and dtype == tl.float16
    if FORMAT != "":
        value_scale = load_scales(value_scales, slot, is_key, COLUMNS)
        if not are_values_scaled:
            weights *= value_scale[None, :]
    weights = weights.to(dtype)
    new_sums = ()
    for part in tl.static_range(PARTS):
        if are_values_scaled:
            v_part = cached_elements(v, part, FORMAT, tl.float32) * value_scale[:, None]
        else:
            v_part = cached_elements(v, part, FORMAT, dtype)
        shrunk = sums[part] * shrink[:, None]
        part_sums = tl.dot(weights, v_part.to(dtype), shrunk, input_precision=PRECISION)
        # Triton has no stars in tuples.
        new_sums = new_sums + (part_sums,)  # type: ignore[assignment]  # noqa: RUF005
    return new_best, total, new_sums


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
def prefill_attention_kernel(
    q,
    out,
    keys,
    values,
    key_scales,
    value_scales,
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
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FORMAT: tl.constexpr,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
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
    dim = tl.arange(0, BLOCK_D)
    is_here = (row < num_rows)[:, None] & (dim < HEAD_SIZE)[None, :]
    x = tl.load(
        q + (token * q_stride_t + head * q_stride_h)[:, None] + dim[None, :],
        mask=is_here,
        other=0.0,
    )
    # A sink is a score that came before all keys, and brought no value.
    is_sink = (row < num_rows) & (head < num_sinks)
    sink = tl.load(sinks + head, mask=is_sink, other=0.0).to(tl.float32) * LOG2_E
    best = tl.where(is_sink & (sink != float("-inf")), sink, LOWEST)
    total = tl.where(is_sink, 1.0, 0.0)
    sums = no_sums(BLOCK_M, BLOCK_D, PARTS)
    first_key = tl.maximum(first_position + 1 - window, 0)
    block_table = block_tables + request * table_stride
    for key_start in range(first_key // BLOCK_N * BLOCK_N, last_position + 1, BLOCK_N):
        best, total, sums = attend_to_tile(
            *(split_dims(x, PARTS), best, total, sums),
            *(key_start, position, first_position, last_position, first_key, last_position + 1),
            *(keys, values, key_scales, value_scales, block_table),
            *(kv_head, num_kv_heads, block_shift, window, scale_log2),
            *(HEAD_SIZE, BLOCK_D, BLOCK_N, FORMAT, PARTS, COLUMNS, PRECISION),
        )
    tl.store(
        out + (token * out_stride_t + head * out_stride_h)[:, None] + dim[None, :],
        (join_dims(sums, PARTS) / total[:, None]).to(out.dtype.element_ty),
        mask=is_here,
    )


@triton.jit(
    do_not_specialize=[
        "num_requests",
        "table_stride",
        "group_size",
        "num_kv_heads",
        "block_shift",
        "few_rows",
        "window",
        "first_kv_head",
        "end_kv_head",
        "max_splits",
    ],
    do_not_specialize_on_alignment=["query_starts", "context_lens", "block_tables"],
)
def decode_attention_kernel(
    q,
    partial_sums,
    partial_stats,
    keys,
    values,
    key_scales,
    value_scales,
    query_starts,
    context_lens,
    block_tables,
    q_stride_t,
    q_stride_h,
    table_stride,
    num_requests,
    group_size,
    num_kv_heads,
    first_kv_head,
    end_kv_head,
    max_splits,
    block_shift,
    window,
    few_rows,
    scale_log2,
    HEAD_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FORMAT: tl.constexpr,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    num_heads = end_kv_head - first_kv_head
    num_items = num_heads * count_items(
        *(query_starts, context_lens, num_requests, group_size, few_rows, window, BLOCK_M, "splits")
    )
    # Neighbours read the heads of one split side by side, for they lie side by side.
    for item in range(tl.program_id(0), num_items, tl.num_programs(0)):
        kv_head = first_kv_head + item % num_heads
        request, index, tokens_before = find_item(
            *(item // num_heads, query_starts, context_lens, num_requests),
            *(group_size, few_rows, window, BLOCK_M, "splits"),
        )
        query_len, context_len = lens_of(
            request, request < num_requests, query_starts, context_lens
        )
        num_rows = query_len * group_size
        num_tiles = (num_rows + BLOCK_M - 1) // BLOCK_M
        first_split, _ = splits_seen(query_len, context_len, window)
        tile = index % num_tiles
        split_index = index // num_tiles
        split = first_split + split_index
        row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        last_row = tl.minimum(tile * BLOCK_M + BLOCK_M, num_rows) - 1
        start = context_len - query_len
        position = start + row // group_size
        first_position = start + tile * BLOCK_M // group_size
        last_position = start + last_row // group_size
        head = kv_head * group_size + row % group_size
        token = tl.load(query_starts + request) + row // group_size
        dim = tl.arange(0, BLOCK_D)
        is_row = row < num_rows
        is_here = is_row[:, None] & (dim < HEAD_SIZE)[None, :]
        x = tl.load(
            q + (token * q_stride_t + head * q_stride_h)[:, None] + dim[None, :],
            mask=is_here,
            other=0.0,
        )
        best = tl.full((BLOCK_M,), LOWEST, tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
        sums = no_sums(BLOCK_M, BLOCK_D, PARTS)
        first_key = tl.maximum(first_position + 1 - window, split_start(split))
        end_key = tl.minimum(last_position + 1, split_start(split + 1))
        block_table = block_tables + request * table_stride
        for key_start in range(first_key // BLOCK_N * BLOCK_N, end_key, BLOCK_N):
            best, total, sums = attend_to_tile(
                *(split_dims(x, PARTS), best, total, sums),
                *(key_start, position, first_position, last_position, first_key, end_key),
                *(keys, values, key_scales, value_scales, block_table),
                *(kv_head, num_kv_heads, block_shift, window, scale_log2),
                *(HEAD_SIZE, BLOCK_D, BLOCK_N, FORMAT, PARTS, COLUMNS, PRECISION),
            )
        # Tokens of requests with few rows are counted from 0 on, for the others have no splits.
        few_token = (tokens_before + row // group_size).to(tl.int64)
        place = few_token * num_heads * group_size + head - first_kv_head * group_size
        place = place * max_splits + split_index
        tl.store(partial_stats + place * 2, best, mask=is_row)
        tl.store(partial_stats + place * 2 + 1, total, mask=is_row)
        sums_at = partial_sums + place[:, None] * HEAD_SIZE + dim[None, :]
        tl.store(sums_at, join_dims(sums, PARTS), mask=is_here)


@triton.jit(
    do_not_specialize=[
        "num_requests",
        "group_size",
        "first_head",
        "max_splits",
        "window",
        "few_rows",
        "num_sinks",
    ],
    do_not_specialize_on_alignment=["query_starts", "context_lens"],
)
def combine_splits_kernel(
    out,
    partial_sums,
    partial_stats,
    sinks,
    query_starts,
    context_lens,
    out_stride_t,
    out_stride_h,
    num_requests,
    group_size,
    first_head,
    max_splits,
    window,
    few_rows,
    num_sinks,
    HEAD_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merge the splits of one row in ascending order, MERGED at a time.

    Splits that are merged together begin at a multiple of MERGED, wherever the request's first
    split is: with a window the first split depends on the chunk's other tokens, and a row's bits
    must not.
    """
    request, index, _ = find_item(
        *(tl.program_id(0), query_starts, context_lens, num_requests),
        *(group_size, few_rows, window, 1, "tokens"),
    )
    if request >= num_requests:
        return
    token = tl.load(query_starts + request) + index
    head = first_head + tl.program_id(1)
    query_len, context_len = lens_of(request, request < num_requests, query_starts, context_lens)
    first_split, end_split = splits_seen(query_len, context_len, window)
    is_sink = head < num_sinks
    sink = tl.load(sinks + head, mask=is_sink, other=0.0).to(tl.float32) * LOG2_E
    best = tl.where(is_sink & (sink != float("-inf")), sink, LOWEST)
    total = tl.where(is_sink, 1.0, 0.0)
    dim = tl.arange(0, BLOCK_D)
    sums = tl.zeros((BLOCK_D,), tl.float32)
    row = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    for first in range(first_split // MERGED * MERGED, end_split, MERGED):
        split = first + tl.arange(0, MERGED)
        is_split = (split >= first_split) & (split < end_split)
        place = row * max_splits + split - first_split
        bests = tl.load(partial_stats + place * 2, mask=is_split, other=LOWEST)
        totals = tl.load(partial_stats + place * 2 + 1, mask=is_split, other=0.0)
        parts = tl.load(
            partial_sums + place[:, None] * HEAD_SIZE + dim[None, :],
            mask=is_split[:, None] & (dim < HEAD_SIZE)[None, :],
            other=0.0,
        )
        new_best = tl.maximum(best, tl.max(bests, 0))
        shrink = tl.math.exp2(best - new_best)
        weights = tl.math.exp2(bests - new_best)
        total = total * shrink + tl.sum(weights * totals, 0)
        sums = sums * shrink + tl.sum(weights[:, None] * parts, 0)
        best = new_best
    tl.store(
        out + token * out_stride_t + head * out_stride_h + dim,
        (sums / total).to(out.dtype.element_ty),
        mask=dim < HEAD_SIZE,
    )
