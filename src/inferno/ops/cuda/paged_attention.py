"""Attention over the paged cache on CUDA: which kernel computes a request, with which tiles.

A request of few rows (query tokens times the heads that share a key/value head) is computed by
splits of its keys, any other by whole rows; a step may have both. Its own number of rows decides.
Keys are walked in ascending positions, in tiles and splits that begin at fixed positions. So a
token's bits depend neither on the other requests of its batch, nor on the batch's size, nor on
whether the step was captured. They do depend on which of both kernels computed it: a token that was
computed in a short chunk may differ in its last bits from the same token in a long one. Within one
kernel, chunks may be cut anywhere. AttentionKind.INVARIANT has all requests computed by splits:
then a token's bits depend on its own request's earlier tokens alone.

Where blocks are large and the chip has TMA, long chunks load keys and values by its descriptors
(`is_boxed`), to the same bits.

Tiles were chosen by what the compiler says of registers and shared memory, and by bytes in flight;
none was measured on a GPU. The reference computes what the kernels don't take (`_takes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from inferno.ops import reference
from inferno.ops.batch import AttentionKind, Batch, LayerKV
from inferno.ops.cuda.attention_kernels import (
    LONG_SPLIT,
    MERGED,
    NUM_SHORT,
    SHORT_SPLIT,
    combine_splits_kernel,
    decode_attention_kernel,
    prefill_attention_kernel,
)
from inferno.ops.cuda.boxed_attention import boxed_prefill_attention_kernel
from inferno.ops.cuda.cache import QUANTIZED, is_laid_out
from inferno.ops.cuda.captured_graph import refuse_capture
from inferno.ops.cuda.chips import Chip, chip_of
from inferno.ops.cuda.norms import MAX_WIDTH
from inferno.ops.cuda.variants import Variant, Work
from inferno.ops.reference.flash import LOG2_E

HEAD_SIZES = (16, 32, 64, 80, 96, 128, 256)
_HALVES = (torch.bfloat16, torch.float16)
# Which caches meet which queries.
CACHED = {
    torch.bfloat16: (torch.bfloat16, *QUANTIZED),
    torch.float16: (torch.float16, *QUANTIZED),
    torch.float32: (torch.float32, *_HALVES, *QUANTIZED),
}
# Rows up to which a request is computed by splits: 16 tokens of a model with 4 heads a group. More
# rows would read its keys again for each tile of rows.
FEW_ROWS = 64
_BOXED_SIZES = (64, 128)
_NO_WINDOW = 1 << 30
_ANY_ROWS = 1 << 30  # every request has few rows then
_GROUP_OF_16 = 16  # heads that fit into the least tile of a tensor core
_TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
}
# Caches with scales, by their names in kernels; and what such codes are loaded as, by their number.
_FORMATS = {torch.int8: "int8", torch.float8_e4m3fn: "float8_e4m3"}
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
_MOST_WORKSPACE = 1 << 28  # bytes of partial results, unless one key/value head alone has more


@dataclass(frozen=True, slots=True)
class Tile:
    """The rows and keys of a tile, and the warps and stages that work on it.

    per_multiprocessor  how many programs a multiprocessor is given at once, where they are as many
                        as the chip holds.
    """

    rows: int
    keys: int
    num_warps: int
    num_stages: int
    per_multiprocessor: int = 1


# What the kernel that loads boxes is told of a tile; the rest has one value there.
_BOXED_CONSTANTS = ("HEAD_SIZE", "BLOCK_M", "BLOCK_N")
_COMBINING = Tile(rows=1, keys=MERGED.value, num_warps=4, num_stages=1)


def prefill_tile(chip: Chip, dtype: torch.dtype, cached: torch.dtype, head_size: int) -> Tile:
    """Choose the tile of long chunks: the largest whose sums and scores stay in registers.

    Loads of the block table and of what it points to take turns in the pipeline's stages, so five
    of them ask for keys and values two tiles ahead. One tile ahead would be too late: it would be
    asked for only when the scores of the tile before it have been summed up.
    """
    if dtype is torch.float32:
        return _float32_tile(cached, head_size, rows=32)
    is_quantized = cached in QUANTIZED
    if chip.has_warpgroups:
        # A key of 256 bytes that 128 rows share asks 20 bytes a cycle of the second cache at 60 %
        # of the tensor cores' rate, and it gives about 24: with fewer rows it would be the limit.
        # A quantized one asks half. Its codes become floats in registers, which have room for less.
        if head_size > 128:
            stages = 3 if chip.has_tensor_memory else 5
            return Tile(64, 32, 8, 5) if is_quantized else Tile(128, 32, 8, stages)
        # Scores that come from a memory of their own are copies in registers.
        return Tile(128, 64 if chip.has_tensor_memory or is_quantized else 128, 8, 5)
    if head_size > 128:
        # Of 64 rows, which are as many as a part of a head has values, each of eight warps would be
        # given 16, and four would repeat the others' products (`_num_parts`).
        return Tile(32, 32, 4, 3) if is_quantized else Tile(64, 32, 8, 3)
    return Tile(128, 64 if head_size <= 64 else 32, 8, 3 if is_quantized else 5)


def is_boxed(
    chip: Chip, dtype: torch.dtype, cached: torch.dtype, head_size: int, block_size: int
) -> bool:
    """Say whether long chunks load whole tiles of keys as boxes, by TMA descriptors.

    A tile must lie in one block, and be what the tensor cores multiply: 16-bit, as it was stored.
    Heads of 256 spill registers on SM100 then, and those of 80 and 96 a few on SM90.
    """
    return (
        chip.has_warpgroups
        and dtype in _HALVES
        and cached is dtype
        and head_size in _BOXED_SIZES
        and block_size >= prefill_tile(chip, dtype, cached, head_size).keys
    )


def decode_tile(
    chip: Chip, dtype: torch.dtype, cached: torch.dtype, head_size: int, group_size: int
) -> Tile:
    """Choose the tile of requests with few rows: keys and values of 32 KiB, quantized of 8.

    Five stages, of which the block table's take half, keep two such tiles on their way for each of
    two or three programs: 128 KiB of a multiprocessor, or 32 and more, where 24 KiB cover an H100's
    latency of 0.7 us. Larger tiles of a quantized cache would leave the registers.
    """
    if dtype is torch.float32:
        return _float32_tile(cached, head_size, rows=16)
    width = triton.next_power_of_2(head_size)
    rows = 16 if group_size <= _GROUP_OF_16 else 32
    if cached in QUANTIZED:
        keys = max(32, min(64, (1 << 12) // width))
        return Tile(rows, keys, 4, 5, 3 if rows == 16 and width <= 128 else 2)
    keys = min(128, (1 << 13) // width)
    return Tile(rows, keys, 4, 5, 2) if rows == 16 else Tile(rows, keys, 8, 5, 1)


def _float32_tile(cached: torch.dtype, head_size: int, *, rows: int) -> Tile:
    if cached is not torch.float32:
        return Tile(16, 32, 4, 3, 2)
    return Tile(rows, 32, 4, 3, 2) if head_size <= 64 else Tile(16, 16, 4, 3, 2)


def precision(dtype: torch.dtype, cached: torch.dtype) -> str:
    """Choose how float32 is multiplied; 16-bit types have one way only.

    Keys and values of fewer bits are what tf32 holds, so three products of tf32 lose none of them
    and 2^-21 of a query or weight; tensor cores make these.
    """
    return "tf32x3" if dtype is torch.float32 and cached is not dtype else "ieee"


def _num_parts(cached: torch.dtype, head_size: int, tile: Tile) -> int:
    """Return how many codes kernels load as one word, each of which is of another part of a head.

    The smallest product of tensor cores takes 16 values of a part. Triton divides a tile among its
    warps by rows, unless it has fewer of them than a part has values; then by values. A tile of 16
    rows can't be divided: all four warps would compute the same. So its parts have 32 values.
    """
    least = 32 if tile.rows == 16 else 16
    width = triton.next_power_of_2(head_size)
    return max(1, min(4, width // least)) if cached in QUANTIZED else 1


def _scale_columns(cached: torch.dtype, tile: Tile) -> int:
    """Return by how many a tile's keys are multiplied to be as many as threads."""
    return max(1, 32 * tile.num_warps // tile.keys) if cached in QUANTIZED else 1


def _words(cached: torch.dtype, head_size: int, tile: Tile) -> torch.dtype:
    """Return the type that a cache is seen as."""
    return _WORDS[_num_parts(cached, head_size, tile)] if cached in QUANTIZED else cached


def head_sizes(dtype: torch.dtype, cached: torch.dtype) -> tuple[int, ...]:
    """Return the head sizes that the kernels take."""
    if dtype is torch.float32 and cached is not dtype:  # larger ones leave the registers
        return tuple(size for size in HEAD_SIZES if size <= 128)
    return HEAD_SIZES


def num_splits(num_positions: int) -> int:
    """Return the number of splits of so many positions, by the rule of the kernels' `split_of`."""
    short: int = min(num_positions, SHORT_SPLIT.value * NUM_SHORT.value)
    splits: int = -(-short // SHORT_SPLIT.value) + -(-(num_positions - short) // LONG_SPLIT.value)
    return splits


def attention(
    q_THD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    scale: float,
    sinks_H: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    if not _takes(q_THD, batch, kv, scale, out):
        refuse_capture("attention that no kernel takes is computed for the lengths of one step")
        kv = _unquantized(kv)
        return reference.attention(q_THD, batch, kv, scale=scale, sinks_H=sinks_H, out=out)
    out_THD = torch.empty_like(q_THD) if out is None else out
    if q_THD.stride(-1) != 1:
        q_THD = q_THD.contiguous()
    if sinks_H is not None and sinks_H.dtype != q_THD.dtype:
        sinks_H = sinks_H.float().to(q_THD.dtype)
    call = _Call(q_THD, batch, kv, scale, sinks_H, out_THD)
    few, many = call.kinds()
    if many:
        call.prefill()
    if few:
        call.decode()
    return out_THD


def describe_attention(
    kind: AttentionKind,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
) -> str:
    described = reference.describe_attention(
        kind, dtype, kv_dtype, head_size=head_size, block_size=block_size
    )
    if kind.is_by_name:
        return described
    reason = _why_not(dtype, kv_dtype, head_size, block_size)
    if reason is not None:
        return f"{described}, as {reason}"
    taken = f"in Triton, as its kernels take {_name(dtype)} and heads of {head_size}"
    if kind is AttentionKind.INVARIANT:
        return f"flash by splits of keys, in one order for any number of rows, {taken}"
    told = f"flash, from {FEW_ROWS} rows of a group down by splits of its keys, {taken}"
    if is_boxed(_chip_in_force(), dtype, kv_dtype, head_size, block_size):
        told += f"; more rows load keys by TMA, as blocks have {block_size} positions"
    return told


def _chip_in_force() -> Chip:
    is_gpu = torch.cuda.is_available()
    return chip_of(torch.device(f"cuda:{torch.cuda.current_device()}" if is_gpu else "cpu"))


def _why_not(
    dtype: torch.dtype, kv_dtype: torch.dtype, head_size: int, block_size: int
) -> str | None:
    """Say why kernels don't compute such attention; None where they do."""
    if kv_dtype not in CACHED.get(dtype, ()):
        kinds = ", ".join(_name(one) for one in CACHED.get(dtype, ()))
        return f"keys and values are in {_name(kv_dtype)}, and kernels take {kinds}"
    sizes = head_sizes(dtype, kv_dtype)
    if head_size not in sizes:
        return f"heads have {head_size} values, and kernels take {', '.join(map(str, sizes))}"
    if block_size & (block_size - 1):
        return f"--block-size is {block_size}, and kernels take powers of two"
    return None


def why_not_invariant(
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    head_size: int,
    block_size: int,
    width: int,
) -> str | None:
    """Return what of a model PyTorch would compute, or None; all kernels sum in one order."""
    if dtype not in _HALVES:
        return "it takes --dtype bfloat16 or float16: PyTorch multiplies others"
    if width > MAX_WIDTH:
        return f"the model is {width} wide, and kernels take norms of {MAX_WIDTH} at most"
    return _why_not(dtype, kv_dtype, head_size, block_size)


def _takes(q_THD: Tensor, batch: Batch, kv: LayerKV, scale: float, out: Tensor | None) -> bool:
    slots, size = kv.keys_NSKD.shape[1], kv.keys_NSKD.shape[3]
    return (
        not batch.attention.is_by_name
        and kv.keys_NSKD.dtype in CACHED.get(q_THD.dtype, ())
        and size in head_sizes(q_THD.dtype, kv.keys_NSKD.dtype)
        and slots & (slots - 1) == 0
        and is_laid_out(kv)
        and scale > 0
        and (out is None or (out.stride(-1) == 1 and out.dtype is q_THD.dtype))
    )


def _unquantized(kv: LayerKV) -> LayerKV:
    """Return the same keys and values without scales, of all blocks: the reference knows no scales.

    This takes time and memory; it is for heads of sizes that no kernel takes.
    """
    if kv.key_scales_NKS is None or kv.value_scales_NKS is None:
        return kv
    keys_NSKD, values_NSKD = (
        stored_NSKD.float() * scales_NKS.transpose(1, 2).unsqueeze(-1)
        for stored_NSKD, scales_NKS in (
            (kv.keys_NSKD, kv.key_scales_NKS),
            (kv.values_NSKD, kv.value_scales_NKS),
        )
    )
    return LayerKV(keys_NSKD, values_NSKD, kv.group)


class _Call:
    """One call's tensors, and the launches that they need."""

    def __init__(
        self,
        q_THD: Tensor,
        batch: Batch,
        kv: LayerKV,
        scale: float,
        sinks_H: Tensor | None,
        out_THD: Tensor,
    ) -> None:
        self.batch, self.kv = batch, kv
        self.q_THD, self.out_THD = q_THD, out_THD
        _, self.block_size, self.num_kv_heads, self.head_size = kv.keys_NSKD.shape
        self.group_size = q_THD.shape[1] // self.num_kv_heads
        self.few_rows = max(FEW_ROWS, self.group_size)
        if batch.attention is AttentionKind.INVARIANT:
            self.few_rows = _ANY_ROWS
        tables = batch.groups[kv.group]
        self.tables_RB = tables.block_tables_RB
        self.window = tables.window or _NO_WINDOW
        self.chip = chip_of(q_THD.device)
        self.scale_log2 = scale * LOG2_E
        # The kernels want some address in any case.
        self.sinks, self.num_sinks = (q_THD, 0) if sinks_H is None else (sinks_H, len(sinks_H))

    def kinds(self) -> tuple[bool, bool]:
        """Say whether requests of few rows are to be computed, and whether others are.

        Of a step in fixed places only the shapes are known: it will be replayed for other requests.
        """
        if self.batch.is_fixed:
            longest = len(self.q_THD)
            if self.batch.longest_query is not None:
                longest = min(longest, self.batch.longest_query)
            return longest > 0, longest * self.group_size > self.few_rows
        rows = [query_len * self.group_size for query_len in self.batch.query_lens]
        return any(0 < n <= self.few_rows for n in rows), any(n > self.few_rows for n in rows)

    def prefill(self) -> None:
        kind = (self.chip, self.q_THD.dtype, self.kv.keys_NSKD.dtype, self.head_size)
        tile = prefill_tile(*kind)
        constants = self._constants(tile)
        kernel, cache = prefill_attention_kernel, self._cache(tile)
        if is_boxed(*kind, self.block_size):
            kernel, cache = boxed_prefill_attention_kernel, self._boxed_cache(tile)
            constants = {name: constants[name] for name in _BOXED_CONSTANTS}
        kernel[(self._num_tiles(tile.rows), self.num_kv_heads)](
            *(self.q_THD, self.out_THD, *cache, self.sinks, *self._requests()),
            *(*self.q_THD.stride()[:2], *self.out_THD.stride()[:2], self.tables_RB.stride(0)),
            *(len(self.batch.context_lens_R), self.group_size, self.num_kv_heads),
            *(self._block_shift(), self.window, self.few_rows, self.num_sinks, self.scale_log2),
            **constants,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )

    def decode(self) -> None:
        dtype, cached = self.q_THD.dtype, self.kv.keys_NSKD.dtype
        tile = decode_tile(self.chip, dtype, cached, self.head_size, self.group_size)
        num_tokens, num_requests = self._num_few_tokens(), len(self.batch.context_lens_R)
        max_splits = self._max_splits()
        num_programs = self.chip.num_multiprocessors * tile.per_multiprocessor
        num_items = self._num_items(tile.rows, max_splits)
        head_bytes = 4 * num_tokens * self.group_size * max_splits * (self.head_size + 2)
        num_heads = max(1, min(self.num_kv_heads, _MOST_WORKSPACE // head_bytes))
        num_partials = num_tokens * num_heads * self.group_size * max_splits
        partials = self.q_THD.new_empty(
            num_partials * (self.head_size + 2), dtype=torch.float32
        ).split((num_partials * self.head_size, num_partials * 2))
        for first in range(0, self.num_kv_heads, num_heads):
            end = min(first + num_heads, self.num_kv_heads)
            decode_attention_kernel[(min(num_programs, num_items * (end - first)),)](
                *(self.q_THD, *partials, *self._cache(tile), *self._requests()),
                *(*self.q_THD.stride()[:2], self.tables_RB.stride(0)),
                *(num_requests, self.group_size, self.num_kv_heads, first, end, max_splits),
                *(self._block_shift(), self.window, self.few_rows, self.scale_log2),
                **self._constants(tile),
                num_warps=tile.num_warps,
                num_stages=tile.num_stages,
            )
            combine_splits_kernel[(num_tokens, (end - first) * self.group_size)](
                *(self.out_THD, *partials, self.sinks, *self._requests()[:2]),
                *(*self.out_THD.stride()[:2], num_requests, self.group_size),
                *(first * self.group_size, max_splits, self.window, self.few_rows, self.num_sinks),
                HEAD_SIZE=self.head_size,
                BLOCK_D=triton.next_power_of_2(self.head_size),
                num_warps=_COMBINING.num_warps,
                num_stages=_COMBINING.num_stages,
            )

    def _num_tiles(self, rows: int) -> int:
        """Return the number of tiles of requests with many rows; in fixed places, the most."""
        if not self.batch.is_fixed:
            of_each = [query_len * self.group_size for query_len in self.batch.query_lens]
            return sum(-(-n // rows) for n in of_each if n > self.few_rows)
        num_rows = len(self.q_THD) * self.group_size
        most_requests = min(len(self.batch.context_lens_R), num_rows // (self.few_rows + 1))
        return num_rows // rows + most_requests

    def _num_items(self, rows: int, max_splits: int) -> int:
        """Return the number of tiles times splits of requests with few rows, or more than that."""
        if not self.batch.is_fixed:
            of_each = [query_len * self.group_size for query_len in self.batch.query_lens]
            return max_splits * sum(-(-n // rows) for n in of_each if n <= self.few_rows)
        num_tokens = len(self.q_THD)
        most_requests = min(len(self.batch.context_lens_R), num_tokens)
        return max_splits * (num_tokens * self.group_size // rows + most_requests)

    def _num_few_tokens(self) -> int:
        """Return the number of tokens of requests with few rows; in fixed places, the most."""
        most = self.few_rows // self.group_size
        if not self.batch.is_fixed:
            return sum(n for n in self.batch.query_lens if n <= most)
        return min(len(self.q_THD), len(self.batch.context_lens_R) * most)

    def _max_splits(self) -> int:
        """Return the most splits that a request may have, by the width of the tables alone."""
        by_tables = num_splits(self.tables_RB.shape[1] * self.block_size)
        # What the tokens of one request see, and a split that it begins in, and one it ends in.
        most_tokens = min(self.few_rows, len(self.q_THD))
        by_window: int = (self.window + most_tokens) // SHORT_SPLIT.value + 2
        return min(by_tables, by_window)

    def _cache(self, tile: Tile) -> tuple[Tensor, ...]:
        keys, values = self.kv.keys_NSKD, self.kv.values_NSKD
        words = _words(keys.dtype, self.head_size, tile)
        keys, values = keys.view(words), values.view(words)
        if self.kv.key_scales_NKS is None or self.kv.value_scales_NKS is None:
            return keys, values, keys, values
        return keys, values, self.kv.key_scales_NKS, self.kv.value_scales_NKS

    def _boxed_cache(self, tile: Tile) -> tuple[Tensor | TensorDescriptor, ...]:
        """Return keys and values, and both as matrices [N * K * S, D] of which boxes are loaded.

        Descriptors are made here, not in the kernel, which would want memory for them at each
        launch; a captured graph holds them among its launches' arguments.
        """
        size = self.head_size
        parts = (self.kv.keys_NSKD, self.kv.values_NSKD)
        boxes = (
            TensorDescriptor(part, [part.numel() // size, size], [size, 1], [tile.keys, size])
            for part in parts
        )
        return *parts, *boxes

    def _requests(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.batch.query_starts_R, self.batch.context_lens_R, self.tables_RB

    def _block_shift(self) -> int:
        return self.block_size.bit_length() - 1

    def _constants(self, tile: Tile) -> dict[str, int | bool]:
        return {
            "HEAD_SIZE": self.head_size,
            "BLOCK_D": triton.next_power_of_2(self.head_size),
            "BLOCK_M": tile.rows,
            "BLOCK_N": tile.keys,
            "FORMAT": _FORMATS.get(self.kv.keys_NSKD.dtype, ""),
            "PARTS": _num_parts(self.kv.keys_NSKD.dtype, self.head_size, tile),
            "COLUMNS": _scale_columns(self.kv.keys_NSKD.dtype, tile),
            "PRECISION": precision(self.q_THD.dtype, self.kv.keys_NSKD.dtype),
        }


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the kernels in all types, head sizes and tiles that are launched on a chip."""
    for dtype, head_size in product(CACHED, HEAD_SIZES):
        is_in_check = dtype is torch.bfloat16 and head_size == 128
        for cached in CACHED[dtype]:
            if head_size not in head_sizes(dtype, cached):
                continue
            is_plain = is_in_check and cached is dtype
            tile = prefill_tile(chip, dtype, cached, head_size)
            yield _variant(chip, prefill_attention_kernel, dtype, cached, head_size, tile, is_plain)
            if is_boxed(chip, dtype, cached, head_size, tile.keys):
                kernel = boxed_prefill_attention_kernel
                yield _variant(chip, kernel, dtype, cached, head_size, tile, is_plain)
            sizes = (1, _GROUP_OF_16 + 1)
            for tile in {decode_tile(chip, dtype, cached, head_size, size): None for size in sizes}:
                # Of bytes too: that they are loaded as wide as floats takes more.
                in_check = is_in_check and tile.rows == _GROUP_OF_16
                yield _variant(
                    chip, decode_attention_kernel, dtype, cached, head_size, tile, in_check
                )
        yield _variant(
            chip, combine_splits_kernel, dtype, dtype, head_size, _COMBINING, is_in_check
        )


def _variant(
    chip: Chip,
    kernel: Any,
    dtype: torch.dtype,
    cached: torch.dtype,
    head_size: int,
    tile: Tile,
    is_in_check: bool,
) -> Variant:
    is_quantized = cached in QUANTIZED
    scales = "*fp32:16" if is_quantized else _pointer(cached)
    stored = _pointer(_words(cached, head_size, tile))
    constants = {
        "HEAD_SIZE": head_size,
        "BLOCK_D": triton.next_power_of_2(head_size),
        "BLOCK_M": tile.rows,
        "BLOCK_N": tile.keys,
        "FORMAT": _FORMATS.get(cached, ""),
        "PARTS": _num_parts(cached, head_size, tile),
        "COLUMNS": _scale_columns(cached, tile),
        "PRECISION": precision(dtype, cached),
    }
    types = {
        **dict.fromkeys(("q", "out", "sinks"), _pointer(dtype)),
        **dict.fromkeys(("keys", "values"), stored),
        **dict.fromkeys(("key_scales", "value_scales"), scales),
        **dict.fromkeys(
            ("key_boxes", "value_boxes"), f"tensordesc<{_TYPES[dtype]}[{tile.keys}, {head_size}]>"
        ),
        **dict.fromkeys(("partial_sums", "partial_stats"), "*fp32:16"),
        **dict.fromkeys(("query_starts", "context_lens", "block_tables"), "*i64"),
        **dict.fromkeys(("q_stride_t", "q_stride_h", "out_stride_t", "out_stride_h"), "i32:16"),
        "scale_log2": "fp32",
    }
    names = kernel.arg_names
    is_combining = kernel is combine_splits_kernel
    row_bytes = head_size * (4 if is_combining else cached.itemsize)
    keys = SHORT_SPLIT.value if kernel is decode_attention_kernel else tile.keys
    return Variant(
        name=f"{kernel.__name__} {_name(dtype)} {_name(cached)} {head_size} {tile.rows}",
        kernel=kernel,
        signature={n: types.get(n, "i32") for n in names if n not in constants},
        constants={n: constants[n] for n in names if n in constants},
        chip=chip,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        # Of prefill, one tile of keys.
        work=Work(
            num_bytes=(1 if is_combining else 2) * keys * row_bytes,
            flops=0.0 if is_combining else 4.0 * tile.rows * keys * head_size,
        ),
        uses_tensor_cores=not is_combining and cached is not torch.float32,
        tile_rows=tile.rows,
        # Of float32 products are the limit: without tensor cores, or three for each.
        is_bound_by_memory=kernel is decode_attention_kernel and dtype in _HALVES,
        is_in_check=is_in_check,
    )


def _pointer(dtype: torch.dtype) -> str:
    return f"*{_TYPES[dtype]}:16"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
