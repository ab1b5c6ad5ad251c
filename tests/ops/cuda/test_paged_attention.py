"""Attention on CUDA against the definition in float64, and its bits in other schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import cuda, reference
from inferno.ops.batch import AttentionKind, Batch, LayerKV
from inferno.ops.cuda import attention_kernels, boxed_attention, chips, paged_attention
from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.dequantize import cached_elements, float8_bits
from tests.ops import oracle
from tests.ops.batches import make_batch
from tests.ops.cuda.interpreted_products import in_order

pytestmark = pytest.mark.gpu

CODES = {torch.int8: 127, torch.float8_e4m3fn: 448}
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the heads and of the cache."""

    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    block_size: int = 16
    window: int | None = None
    dtype: torch.dtype = torch.float32
    cached: torch.dtype = torch.float32


class Requests:
    """Queries of all positions, and a cache with their keys and values; the rest of it is NaN."""

    def __init__(self, shape: Shape, lens: Sequence[int], device: torch.device) -> None:
        self.shape, self.device = shape, device
        random = torch.Generator().manual_seed(0)
        counts = [-(-n // shape.block_size) for n in lens]
        blocks = torch.split(torch.randperm(sum(counts), generator=random) + 1, counts)
        self.tables: list[list[int]] = [each.tolist() for each in blocks]
        heads = (shape.num_kv_heads, shape.head_size)
        with device:
            self.kv = cuda.empty_cache((1 + sum(counts), shape.block_size, *heads), shape.cached)
        for cache in (self.kv.keys_NSKD, self.kv.values_NSKD):
            if shape.cached is torch.int8:
                cache.fill_(99)
            else:  # 0x7f is a NaN in float8 as well
                cache.view(torch.uint8).fill_(0x7F)
                if cache.dtype.itemsize > 1:
                    cache.fill_(math.nan)
        for scales in (self.kv.key_scales_NKS, self.kv.value_scales_NKS):
            if scales is not None:
                scales.fill_(math.nan)
        made = [torch.randn(3, n, shape.num_heads, heads[1], generator=random) for n in lens]
        self.queries = [x[0].to(device, shape.dtype) for x in made]
        self.keys, self.values = (
            [self._store(x[which, :, : heads[0]], i, which) for i, x in enumerate(made)]
            for which in (1, 2)
        )

    def _store(self, x_LKD: Tensor, request: int, which: int) -> Tensor:
        """Write keys (1) or values (2); returns them as they can be read."""
        cache_NSKD = (self.kv.keys_NSKD, self.kv.values_NSKD)[which - 1]
        scales_NKS = (self.kv.key_scales_NKS, self.kv.value_scales_NKS)[which - 1]
        position = torch.arange(len(x_LKD))
        block = torch.tensor(self.tables[request])[position // self.shape.block_size]
        slot = position % self.shape.block_size
        if scales_NKS is None:
            stored_LKD = x_LKD.to(cache_NSKD.dtype)
            cache_NSKD[block, slot] = stored_LKD.to(self.device)
            return stored_LKD.float()
        scales_LK = x_LKD.abs().amax(-1) / CODES[cache_NSKD.dtype]
        codes_LKD = x_LKD / scales_LK.unsqueeze(-1)
        if cache_NSKD.dtype is torch.int8:
            codes_LKD = codes_LKD.round()
        stored_LKD = codes_LKD.to(cache_NSKD.dtype)
        bytes_NSKD = cache_NSKD.view(torch.uint8)  # float8 can't be indexed everywhere
        bytes_NSKD[block, slot] = stored_LKD.view(torch.uint8).to(self.device)
        scales_NKS[block, :, slot] = scales_LK.to(self.device)
        return stored_LKD.float() * scales_LK.unsqueeze(-1)

    def batch(self, chunks: Sequence[range | None]) -> Batch:
        """A step that computes these positions of each request, of other requests none."""
        here = [(i, chunk) for i, chunk in enumerate(chunks) if chunk is not None]
        batch = make_batch(
            [len(chunk) for _, chunk in here],
            [chunk.stop for _, chunk in here],
            [self._table(i, chunk) for i, chunk in here],
            block_size=self.shape.block_size,
            window=self.shape.window,
        )
        [group] = batch.groups
        table = group.block_tables_RB.to(self.device)
        return replace(
            batch,
            query_starts_R=batch.query_starts_R.to(self.device),
            context_lens_R=batch.context_lens_R.to(self.device),
            groups=(replace(group, block_tables_RB=table),),
        )

    def _table(self, request: int, chunk: range) -> list[int]:
        """A request's blocks; 0, which holds NaN, where the window has left them."""
        window = self.shape.window or chunk.stop
        first_block: int = max(0, chunk.start - window + 1) // self.shape.block_size
        return [0] * first_block + self.tables[request][first_block:]

    def queries_of(self, chunks: Sequence[range | None]) -> Tensor:
        return torch.cat(
            [q[c.start : c.stop] for q, c in zip(self.queries, chunks, strict=True) if c]
        )

    def attend(self, chunks: Sequence[range | None], sinks_H: Tensor | None = None) -> list[Tensor]:
        """The kernels' results, request by request."""
        out_THD = cuda.attention(
            *(self.queries_of(chunks), self.batch(chunks), self.kv),
            scale=self.scale,
            sinks_H=sinks_H,
        )
        return list(torch.split(out_THD, [len(chunk) for chunk in chunks if chunk is not None]))

    def expected(self, request: int, chunk: range, sinks_H: Tensor | None = None) -> Tensor:
        """The definition, in float64."""
        return oracle.attend(
            self.queries[request][chunk.start : chunk.stop].cpu(),
            self.keys[request][: chunk.stop],
            self.values[request][: chunk.stop],
            scale=self.scale,
            window=self.shape.window,
            sinks_H=None if sinks_H is None else sinks_H.cpu(),
            query_start=chunk.start,
        )

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.shape.head_size)


def assert_right(
    requests: Requests,
    chunks: Sequence[range],
    results: Sequence[Tensor],
    sinks_H: Tensor | None = None,
    tolerance: float | None = None,
) -> None:
    tolerance = tolerance or TOLERANCE[requests.shape.dtype]
    for request, (chunk, result) in enumerate(zip(chunks, results, strict=True)):
        expected = requests.expected(request, chunk, sinks_H)
        torch.testing.assert_close(
            result.cpu().double(),
            expected,
            rtol=tolerance,
            atol=tolerance,
            msg=f"{request}: {chunk}",
        )


def half(**others: Any) -> Shape:
    return Shape(dtype=torch.float16, cached=torch.float16, **others)


SHAPES = {
    "float32": Shape(),
    "float16": half(head_size=64),
    "one head": Shape(num_heads=1, num_kv_heads=1),
    "three heads share": half(num_heads=3, num_kv_heads=1, head_size=32),
    "18 heads share": half(num_heads=18, num_kv_heads=1),
    "heads of 80": half(head_size=80),
    "heads of 96": Shape(head_size=96, num_kv_heads=4),
    "heads of 96 in float16": half(head_size=96),
    "heads of 128": half(head_size=128, num_kv_heads=1),
    "heads of 256": half(head_size=256, num_kv_heads=1),
    "blocks of 8": Shape(block_size=8),
    "blocks of 64": half(block_size=64),
    "narrow window": Shape(window=1),
    "window": Shape(window=40, block_size=8),
    "window in float16": half(head_size=64, window=61),
    "int8": Shape(dtype=torch.float16, cached=torch.int8, head_size=64),
    "int8 for float32": Shape(cached=torch.int8),
    "float8": Shape(dtype=torch.float16, cached=torch.float8_e4m3fn),
    "float8 for float32": Shape(cached=torch.float8_e4m3fn, window=33),
    "float16 for float32": Shape(cached=torch.float16),
    "int8, words of four": Shape(dtype=torch.float16, head_size=80, cached=torch.int8),
    "float8, words of four": Shape(head_size=64, dtype=torch.float16, cached=torch.float8_e4m3fn),
    "int8, heads of 128": Shape(dtype=torch.float16, head_size=128, cached=torch.int8),
    "float8, heads of 96": Shape(dtype=torch.float16, head_size=96, cached=torch.float8_e4m3fn),
    "float8, words of two": Shape(head_size=64, cached=torch.float8_e4m3fn),
}
# A long chunk, rows of a few tokens, a whole short prompt, and one token after a long context.
CHUNKS = (range(3, 40), range(60, 64), range(1), range(129, 130))


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_the_definition(name: str, device: torch.device) -> None:
    requests = Requests(SHAPES[name], [chunk.stop for chunk in CHUNKS], device)
    assert_right(requests, CHUNKS, requests.attend(CHUNKS))


@pytest.mark.parametrize("cached", CODES)
def test_tiles_of_chips_without_warpgroups(
    cached: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter stands for a chip with warpgroups, whose tiles of such heads are higher."""
    monkeypatch.setattr(paged_attention, "chip_of", lambda device: CHIPS[0])
    shape = Shape(dtype=torch.float16, cached=cached, head_size=256, num_kv_heads=1)
    requests = Requests(shape, [chunk.stop for chunk in CHUNKS], device)
    assert_right(requests, CHUNKS, requests.attend(CHUNKS))


def test_bfloat16(device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("the interpreter multiplies no bfloat16")
    for cached in paged_attention.CACHED[torch.bfloat16]:
        shape = Shape(dtype=torch.bfloat16, cached=cached, head_size=128)
        requests = Requests(shape, [chunk.stop for chunk in CHUNKS], device)
        assert_right(requests, CHUNKS, requests.attend(CHUNKS))


@triton.jit
def codes_kernel(
    words: Any, out: Any, SLOT: tl.constexpr, FORMAT: tl.constexpr, COUNT: tl.constexpr
) -> None:
    i = tl.arange(0, COUNT)
    if FORMAT == "bits":  # the interpreter multiplies no bfloat16
        found = float8_bits(tl.load(words + i), SLOT, 4).to(tl.bfloat16, bitcast=True)
    else:
        found = cached_elements(tl.load(words + i), SLOT, FORMAT, out.dtype.element_ty)
    tl.store(out + i, found)


@pytest.mark.parametrize("cached", CODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_code_in_every_place_of_a_word(
    cached: torch.dtype, dtype: torch.dtype, device: torch.device
) -> None:
    codes = torch.arange(256, device=device).to(torch.uint8)
    if cached is torch.float8_e4m3fn:
        codes = codes[codes & 0x7F != 0x7F]  # no cache holds NaN: its scale does
        codes = torch.cat((codes, codes[:2]))
    for size, words in ((1, torch.int8), (2, torch.int16), (4, torch.int32)):
        for slot in range(size):
            # Neighbours of other bits, which must leave no trace.
            parts = codes[:, None].repeat(1, size) ^ 0x5A
            parts[:, slot] = codes
            found = torch.empty(256, dtype=dtype, device=device)
            format = "int8" if cached is torch.int8 else "float8_e4m3"
            is_scaled = format == "int8" or dtype is not torch.bfloat16
            given = (parts.view(words).flatten(), found, slot, format if is_scaled else "bits", 256)
            codes_kernel[(1,)](*given)
            expected = codes.view(cached).float()
            assert torch.equal(found.float() * (1.0 if is_scaled else 2.0**120), expected)


@pytest.mark.parametrize("name", ["three heads share", "window"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_sink_takes_probability(name: str, dtype: torch.dtype, device: torch.device) -> None:
    chunks = (range(38), range(40, 41))
    requests = Requests(SHAPES[name], [38, 41], device)
    sinks_H = torch.linspace(-3, 6, requests.shape.num_heads).to(device, dtype)
    assert_right(requests, chunks, requests.attend(chunks, sinks_H), sinks_H)


@pytest.mark.parametrize("window", [None, 8400])
def test_long_contexts_are_merged_from_splits(window: int | None, device: torch.device) -> None:
    requests = Requests(half(num_heads=1, num_kv_heads=1, window=window), [9500], device)
    chunk = range(9498, 9500)
    sinks_H = torch.tensor([2.0], device=device)
    assert_right(requests, [chunk], requests.attend([chunk], sinks_H), sinks_H)


@pytest.mark.parametrize("chunk", [range(100, 180), range(179, 180)], ids=["prefill", "decode"])
def test_a_sink_of_minus_infinity_takes_nothing(chunk: range, device: torch.device) -> None:
    """Not even beside keys that are all masked: those of a tile that the window is leaving."""
    requests = Requests(half(head_size=64, window=20), [chunk.stop], device)
    sinks_H = torch.tensor([-math.inf, 0.5, -math.inf, -1e30], device=device)
    assert_right(requests, [chunk], requests.attend([chunk], sinks_H), sinks_H)


def test_high_scores_do_not_overflow(device: torch.device) -> None:
    chunks = (range(38), range(40, 41))
    requests = Requests(Shape(), [38, 41], device)
    for q_THD in requests.queries:
        q_THD *= 60
    assert_right(requests, chunks, requests.attend(chunks), tolerance=3e-4)


def test_small_values_in_int8_do_not_vanish_in_float16(device: torch.device) -> None:
    requests = Requests(SHAPES["int8"], [90, 64], device)
    chunks = (range(20, 90), range(63, 64))
    before = requests.attend(chunks)
    assert requests.kv.value_scales_NKS is not None
    requests.kv.value_scales_NKS.mul_(2.0**-10)
    for shrunk, result in zip(requests.attend(chunks), before, strict=True):
        expected = result.float() / 2**10
        torch.testing.assert_close(shrunk.float(), expected, rtol=4e-3, atol=2e-7)


def test_queries_may_be_a_part_of_a_product(device: torch.device) -> None:
    requests = Requests(SHAPES["three heads share"], [chunk.stop for chunk in CHUNKS], device)
    q_THD = requests.queries_of(CHUNKS)
    product = torch.full((len(q_THD), 2 * q_THD[0].numel() + 64), math.nan, device=device).half()
    part_THD = product[:, 32 : 32 + q_THD[0].numel()].view(q_THD.shape)
    part_THD.copy_(q_THD)
    out_THD = torch.full_like(product, 7)[:, : q_THD[0].numel()].view(q_THD.shape)
    result = cuda.attention(
        part_THD, requests.batch(CHUNKS), requests.kv, scale=requests.scale, out=out_THD
    )
    assert result is out_THD
    assert torch.equal(out_THD, torch.cat(requests.attend(CHUNKS)))


@pytest.mark.parametrize("name", ["float32", "window in float16"])
def test_a_step_in_fixed_places_has_the_same_bits(name: str, device: torch.device) -> None:
    """Only its shapes may be looked at; its tensors go on with requests of no tokens."""
    requests = Requests(SHAPES[name], [chunk.stop for chunk in CHUNKS], device)
    batch = requests.batch(CHUNKS)
    [group] = batch.groups
    starts, lens, tables = batch.query_starts_R, batch.context_lens_R, group.block_tables_RB
    fixed = replace(
        batch,
        query_lens=(),
        context_lens=(),
        query_starts_R=torch.cat((starts, starts[-1:].expand(130))),
        context_lens_R=torch.cat((lens, lens.new_zeros(130))),
        groups=(replace(group, block_tables_RB=torch.nn.functional.pad(tables, (0, 20, 0, 130))),),
        is_fixed=True,
    )
    q_THD = requests.queries_of(CHUNKS)
    padded_THD = torch.cat((q_THD, torch.full_like(q_THD[:9], math.nan)))
    result = cuda.attention(padded_THD, fixed, requests.kv, scale=requests.scale)
    assert torch.equal(result[: len(q_THD)], torch.cat(requests.attend(CHUNKS)))


def test_a_step_in_fixed_places_of_one_token_each_launches_no_kernel_of_prompts(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs would find nothing to do, in each layer of each step of many requests."""
    requests = Requests(Shape(), [n % 7 + 1 for n in range(40)], device)
    chunks = [range(n % 7, n % 7 + 1) for n in range(40)]
    expected = torch.cat(requests.attend(chunks))
    fixed = replace(requests.batch(chunks), is_fixed=True, longest_query=1)
    q_THD = requests.queries_of(chunks)
    assert len(q_THD) * 2 > paged_attention.FEW_ROWS
    with monkeypatch.context() as patch:
        patch.setattr(paged_attention, "prefill_attention_kernel", None)
        found = cuda.attention(q_THD, fixed, requests.kv, scale=requests.scale)
    assert torch.equal(found, expected)


def test_a_step_of_no_tokens(device: torch.device) -> None:
    requests = Requests(Shape(), [5], device)
    for is_fixed in (False, True):
        batch = replace(requests.batch([range(5, 5)]), query_lens=(0,), is_fixed=is_fixed)
        q_THD = requests.queries[0][:0]
        result = cuda.attention(q_THD, batch, requests.kv, scale=1.0)
        assert result.shape == q_THD.shape


def test_partial_results_are_made_for_some_heads_at_a_time_where_they_are_large(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = Requests(Shape(num_heads=6, num_kv_heads=3), [300, 20], device)
    chunks = (range(299, 300), range(18, 20))
    whole = requests.attend(chunks)
    monkeypatch.setattr(paged_attention, "_MOST_WORKSPACE", 0)
    assert all(torch.equal(a, b) for a, b in zip(requests.attend(chunks), whole, strict=True))


SCHEDULED = ("float32", "three heads share", "window in float16", "int8")


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_token_has_the_same_bits_alone_and_among_others(name: str, device: torch.device) -> None:
    requests = Requests(SHAPES[name], [chunk.stop for chunk in CHUNKS], device)
    together = requests.attend(CHUNKS)
    for request, chunk in enumerate(CHUNKS):
        alone: list[range | None] = [None] * len(CHUNKS)
        alone[request] = chunk
        assert torch.equal(requests.attend(alone)[0], together[request])


@pytest.mark.parametrize("name", SCHEDULED)
def test_chunks_of_one_kernel_may_be_cut_anywhere(name: str, device: torch.device) -> None:
    """Long chunks against a longer one; speculated tokens against one at a time."""
    requests = Requests(SHAPES[name], [260], device)
    with in_order():  # what multiplies for the interpreter may round a row by its place in a tile
        [whole] = requests.attend([range(190, 260)])
        [part] = requests.attend([range(225, 260)])
        assert torch.equal(part, whole[35:])
        [few] = requests.attend([range(255, 258)])
        for position in range(255, 258):
            [one] = requests.attend([range(position, position + 1)])
            assert torch.equal(one[0], few[position - 255])


@pytest.mark.parametrize("name", ["float32", "three heads share", "window in float16"])
def test_keys_are_walked_in_one_order_alone_and_among_others(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded proof: the tiles of keys that each row meets, and where its splits end."""
    if device.type == "cuda":
        pytest.skip("compiled kernels keep no records")
    requests = Requests(SHAPES[name], [chunk.stop for chunk in CHUNKS], device)
    together = _walks(requests, CHUNKS, monkeypatch)
    for request, chunk in enumerate(CHUNKS):
        chunks: list[range | None] = [None] * len(CHUNKS)
        chunks[request] = chunk
        [(table, walk)] = _walks(requests, chunks, monkeypatch).items()
        assert walk == together[table]
        for _, _, (first_key, end_key), starts in walk:
            assert starts == sorted(starts)
            assert starts[0] <= first_key < end_key


Walk = list[tuple[int, int, tuple[int, int], list[int]]]


def _walks(
    requests: Requests, chunks: Sequence[range | None], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[int, ...], Walk]:
    """By a request's blocks: of each program head, first position, bounds of keys, and tiles."""
    walks: dict[tuple[int, ...], Walk] = {}
    batch = requests.batch(chunks)
    tables = {row.data_ptr(): tuple(row.tolist()) for row in batch.groups[0].block_tables_RB}
    # The width of a table, and so its padding, depends on the others.
    whole = {key: tuple(block for block in table if block) for key, table in tables.items()}
    original = attention_kernels.attend_to_tile

    def number(x: Any) -> int:
        return int(x.handle.data.item() if hasattr(x, "handle") else x)

    def record(*args: Any) -> Any:
        key_start, first_position, first_key, end_key = (number(args[i]) for i in (4, 6, 8, 9))
        table, head = number(args[14]), number(args[15])
        walk = walks.setdefault(whole[table], [])
        where = (head, first_position, (first_key, end_key))
        if key_start <= first_key:
            walk.append((*where, []))
        assert walk[-1][:3] == where, "a program is done before the next begins"
        walk[-1][3].append(key_start)
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(attention_kernels, "attend_to_tile", record)
        cuda.attention(requests.queries_of(chunks), batch, requests.kv, scale=requests.scale)
    return {table: sorted(walk) for table, walk in walks.items()}


BOXED = {
    "heads of 64": half(head_size=64, block_size=128),
    "heads of 128": half(head_size=128, block_size=128, num_kv_heads=1),
    "blocks of two tiles": half(head_size=64, block_size=256, num_heads=2, num_kv_heads=1),
    "window": half(head_size=64, block_size=128, window=150, num_heads=2, num_kv_heads=1),
    "window of a tile": half(head_size=64, block_size=128, window=128),
    "short window": half(head_size=64, block_size=128, window=61, num_kv_heads=1),
    "three heads share": half(head_size=64, block_size=128, num_heads=3, num_kv_heads=1),
}
# Chunks that end within a tile and at its end, one that begins a prompt, and one of few rows.
LONG_CHUNKS = (range(262, 300), range(214, 256), range(40), range(300, 301))


@pytest.mark.parametrize(
    ("name", "capability"), [*((name, 90) for name in BOXED), ("window", 100)], ids=str
)
def test_tiles_that_are_loaded_as_boxes_have_the_same_bits(
    name: str, capability: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SM100 a tile has 64 keys, so that blocks of 128 have two."""
    if device.type == "cuda" and chips.chip_of(device).capability != capability:
        pytest.skip("another chip than is here")
    chip = next(each for each in CHIPS if each.capability == capability)
    monkeypatch.setattr(paged_attention, "chip_of", lambda device: chip)
    requests = Requests(BOXED[name], [chunk.stop for chunk in LONG_CHUNKS], device)
    num_heads = requests.shape.num_heads
    sinks_H = torch.linspace(-3, 6, num_heads).to(device, torch.float16) if num_heads < 4 else None
    with counted_boxes() as num_boxes:
        by_boxes = requests.attend(LONG_CHUNKS, sinks_H)
    assert_right(requests, LONG_CHUNKS, by_boxes, sinks_H)
    if device.type != "cuda":
        assert (sum(num_boxes) > 0) is (name != "short window")
    monkeypatch.setattr(paged_attention, "is_boxed", lambda *_: False)
    by_addresses = requests.attend(LONG_CHUNKS, sinks_H)
    assert all(torch.equal(a, b) for a, b in zip(by_boxes, by_addresses, strict=True))


@contextmanager
def counted_boxes() -> Iterator[list[int]]:
    """Yield a list that gets a 1 for each tile that the interpreter loads as a box."""
    found: list[int] = []
    original = boxed_attention.attend_to_box

    def counted(*args: Any) -> Any:
        found.append(1)
        return original(*args)

    with mock.patch.object(boxed_attention, "attend_to_box", counted):
        yield found


def test_chunks_whose_tiles_are_boxes_may_be_cut_anywhere(device: torch.device) -> None:
    """A tile is the last of one chunk, loaded by addresses, and a box of the next."""
    requests = Requests(BOXED["window"], [300], device)
    with in_order():
        [whole] = requests.attend([range(190, 300)])
        for part in (range(190, 240), range(240, 300)):
            [found] = requests.attend([part])
            assert torch.equal(found, whole[part.start - 190 : part.stop - 190])


def test_nothing_beside_the_keys_that_are_seen_is_read(device: torch.device) -> None:
    """What lies before a window in its first tile may be unwritten, as what comes after the end."""
    requests = Requests(BOXED["window"], [300], device)
    chunk, first_seen = range(262, 300), 262 + 1 - 150
    [expected] = requests.attend([chunk])
    for cache_NSKD in (requests.kv.keys_NSKD, requests.kv.values_NSKD):
        cache_NSKD[requests.tables[0][0], :first_seen] = math.nan
    [found] = requests.attend([chunk])
    assert torch.equal(found, expected)


def test_boxes_are_for_chips_with_tma_and_tiles_that_lie_in_a_block() -> None:
    half_types = (torch.float16, torch.float16)
    for chip in CHIPS:
        keys = paged_attention.prefill_tile(chip, *half_types, 128).keys
        for block_size in (16, keys // 2, keys, 2 * keys):
            expected = chip.capability in (90, 100) and block_size >= keys
            found = paged_attention.is_boxed(chip, *half_types, 128, block_size)
            assert found is expected
        for kind in (
            (torch.float16, torch.int8, 128),
            (torch.float32, torch.float32, 128),
            (torch.float32, torch.float16, 128),
            (torch.float16, torch.float16, 256),
        ):
            assert not paged_attention.is_boxed(chip, *kind, 1024)


def test_other_heads_and_caches_are_left_to_the_reference(device: torch.device) -> None:
    for shape in (Shape(head_size=10), Shape(block_size=3), Shape(head_size=10, cached=torch.int8)):
        requests = Requests(shape, [20], device)
        chunk = range(20)
        assert_right(requests, [chunk], requests.attend([chunk]))


def test_all_at_once_and_flash_by_name_are_the_reference(device: torch.device) -> None:
    requests = Requests(Shape(), [20], device)
    for kind in (AttentionKind.REFERENCE, AttentionKind.FLASH):
        batch = replace(requests.batch([range(20)]), attention=kind)
        arguments = (requests.queries[0], batch, requests.kv)
        expected = reference.attention(*arguments, scale=1.0)
        assert torch.equal(cuda.attention(*arguments, scale=1.0), expected)


def test_unquantized_caches_have_no_scales(device: torch.device) -> None:
    with device:
        kv: LayerKV = cuda.empty_cache((3, 16, 2, 64), torch.float16)
        quantized = cuda.empty_cache((3, 16, 2, 64), torch.float8_e4m3fn)
    assert kv.key_scales_NKS is None
    assert kv.keys_NSKD.shape == (3, 16, 2, 64)
    assert kv.keys_NSKD.stride() == (2 * 16 * 64, 64, 16 * 64, 1)
    assert quantized.value_scales_NKS is not None
    assert quantized.value_scales_NKS.shape == (3, 2, 16)


@pytest.mark.parametrize(
    ("kind", "kv_dtype", "sizes", "said"),
    [
        ("auto", torch.bfloat16, (128, 16), "in Triton, as its kernels take bfloat16 and heads of"),
        ("invariant", torch.int8, (64, 16), "one order for any number of rows, in Triton, as its"),
        (
            "auto",
            torch.bfloat16,
            (128, 128),
            "; more rows load keys by TMA, as blocks have 128 pos",
        ),
        ("auto", torch.bfloat16, (72, 16), "as heads have 72 values, and kernels take 16, "),
        ("auto", torch.bfloat16, (128, 24), "as --block-size is 24, and kernels take powers of"),
        ("auto", torch.float32, (128, 16), "as keys and values are in float32, and kernels take"),
    ],
)
def test_what_computes_attention_is_told_with_the_reason(
    kind: str, kv_dtype: torch.dtype, sizes: tuple[int, int], said: str
) -> None:
    head_size, block_size = sizes
    found = cuda.describe_attention(
        AttentionKind(kind), torch.bfloat16, kv_dtype, head_size=head_size, block_size=block_size
    )
    assert said in found
    by_name = cuda.describe_attention(
        AttentionKind.FLASH, torch.bfloat16, kv_dtype, head_size=head_size, block_size=block_size
    )
    assert "Triton" not in by_name
