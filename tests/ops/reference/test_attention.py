"""Paged attention against the definition in float64, with NaN in all unwritten slots."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno.ops.batch import AttentionKind, Batch, LayerKV
from inferno.ops.reference import paged_attention
from inferno.ops.reference.paged_attention import FLASH_FROM_SCORES, attention, is_flash
from tests.ops import oracle
from tests.ops.batches import make_batch

TOLERANCE = 1e-5
NUM_KV_HEADS, GROUP_SIZE, HEAD_SIZE = 2, 3, 5


@dataclass(frozen=True)
class Case:
    """Requests before they were paged: queries, and keys and values of all positions."""

    queries: list[Tensor]
    keys: list[Tensor]
    values: list[Tensor]
    batch: Batch
    kv: LayerKV
    window: int | None

    @property
    def q_THD(self) -> Tensor:
        return torch.cat(self.queries)

    def expected(self, scale: float, sinks_H: Tensor | None = None) -> Tensor:
        """The definition, request by request."""
        return torch.cat(
            [
                oracle.attend(
                    q, k, v,
                    scale=scale, window=self.window, sinks_H=sinks_H, query_start=len(k) - len(q),
                )
                for q, k, v in zip(self.queries, self.keys, self.values, strict=True)
            ]
        )  # fmt: skip


def make_case(
    lens: list[tuple[int, int]],
    *,
    seed: int = 0,
    block_size: int = 4,
    window: int | None = None,
    attention: AttentionKind = AttentionKind.AUTO,
    is_scattered: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Requests of (query_len, context_len) in a cache where all else is NaN.

    Positions that the window has left are NaN too, and blocks full of them are freed: entry 0.
    """
    torch.manual_seed(seed)
    sizes = [-(-context_len // block_size) for _, context_len in lens]
    free = list(range(1, sum(sizes) + 4))
    if is_scattered:
        random.Random(seed).shuffle(free)
    shape = (len(free) + 1, block_size, NUM_KV_HEADS, HEAD_SIZE)
    kv = LayerKV(torch.full(shape, torch.nan).to(dtype), torch.full(shape, torch.nan).to(dtype))
    queries, keys, values, tables = [], [], [], []
    for (query_len, context_len), size in zip(lens, sizes, strict=True):
        first = 0 if window is None else max(0, context_len - query_len + 1 - window)
        table = [free.pop(0) for _ in range(size)]
        queries.append(torch.randn(query_len, NUM_KV_HEADS * GROUP_SIZE, HEAD_SIZE).to(dtype))
        k, v = torch.randn(2, context_len, NUM_KV_HEADS, HEAD_SIZE).to(dtype)
        for position in range(first, context_len):
            block, slot = table[position // block_size], position % block_size
            kv.keys_NSKD[block, slot], kv.values_NSKD[block, slot] = k[position], v[position]
        num_freed = first // block_size
        tables.append([0] * num_freed + table[num_freed:])
        keys.append(k)
        values.append(v)
    query_lens, context_lens = zip(*lens, strict=True)
    batch = make_batch(
        query_lens, context_lens, tables, block_size=block_size, window=window, attention=attention
    )
    return Case(queries, keys, values, batch, kv, window)


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    assert actual.shape == expected.shape
    assert (actual.double() - expected.double()).abs().max() <= tolerance


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    chunks = st.tuples(st.integers(1, 20) | st.just(1), st.integers(0, 40))
    return {
        "lens": [(new, new + old) for new, old in draw(st.lists(chunks, min_size=1, max_size=6))],
        "seed": draw(st.integers(0, 999)),
        "block_size": draw(st.integers(1, 17)),
        "window": draw(st.none() | st.integers(1, 30)),
        "attention": draw(st.sampled_from(AttentionKind)),
        "is_scattered": draw(st.booleans()),
    }


@settings(deadline=None, max_examples=60)
@given(case=cases(), has_sinks=st.booleans(), copied_tokens=st.sampled_from([1, 16, 512]))
def test_any_mixture_of_chunks_is_attended_as_the_definition_says(
    case: dict[str, Any], has_sinks: bool, copied_tokens: int
) -> None:
    made = make_case(**case)
    sinks = torch.randn(NUM_KV_HEADS * GROUP_SIZE) if has_sinks else None
    with mock.patch.object(paged_attention, "COPIED_TOKENS", copied_tokens):
        attended = attention(made.q_THD, made.batch, made.kv, scale=0.4, sinks_H=sinks)
    assert_near(attended, made.expected(0.4, sinks))


@pytest.mark.parametrize("kind", [AttentionKind.REFERENCE, AttentionKind.FLASH])
def test_long_prompts_agree_with_pytorch(kind: AttentionKind) -> None:
    case = make_case([(300, 300)], block_size=16, attention=kind)
    expected = F.scaled_dot_product_attention(
        case.queries[0].transpose(0, 1),
        case.keys[0].transpose(0, 1).repeat_interleave(GROUP_SIZE, 0),
        case.values[0].transpose(0, 1).repeat_interleave(GROUP_SIZE, 0),
        is_causal=True,
    )
    attended = attention(case.q_THD, case.batch, case.kv, scale=HEAD_SIZE**-0.5)
    assert_near(attended, expected.transpose(0, 1))


def test_neighbours_in_the_batch_change_no_bit() -> None:
    lens = [(1, 9), (7, 30), (1, 41), (3, 3)]
    case = make_case(lens)
    attended = attention(case.q_THD, case.batch, case.kv, scale=0.4)
    together = torch.split(attended, list(case.batch.query_lens))
    for request, (query_len, context_len) in enumerate(lens):
        table = case.batch.groups[0].block_tables_RB[request].tolist()
        alone = make_batch([query_len], [context_len], [table], block_size=4)
        by_itself = attention(case.queries[request], alone, case.kv, scale=0.4)
        assert torch.equal(by_itself, together[request])


def test_blocks_in_a_row_and_scattered_ones_give_the_same() -> None:
    lens = [(1, 33), (9, 20)]
    in_a_row, scattered = make_case(lens, is_scattered=False), make_case(lens)
    view = attention(in_a_row.q_THD, in_a_row.batch, in_a_row.kv, scale=0.4)
    copy = attention(scattered.q_THD, scattered.batch, scattered.kv, scale=0.4)
    assert_near(copy, view, 1e-6)


def test_two_requests_may_share_the_blocks_of_their_prefix() -> None:
    case = make_case([(1, 9)])
    table = case.batch.groups[0].block_tables_RB[0].tolist()
    batch = make_batch([1, 1], [9, 8], [table, table[:2]], block_size=4)
    attended = attention(case.q_THD.repeat(2, 1, 1), batch, case.kv, scale=0.4)
    shorter = oracle.attend(
        case.queries[0], case.keys[0][:8], case.values[0][:8], scale=0.4, query_start=7
    )
    assert_near(attended, torch.cat([case.expected(0.4), shorter]))


def test_a_padded_row_reads_scratch_and_harms_no_other() -> None:
    case = make_case([(1, 9)])
    table = case.batch.groups[0].block_tables_RB[0].tolist()
    batch = make_batch([1, 1], [9, 1], [table, [0]], block_size=4)
    attended = attention(case.q_THD.repeat(2, 1, 1), batch, case.kv, scale=0.4)
    assert_near(attended[:1], case.expected(0.4))


def test_the_result_goes_where_it_is_asked_to() -> None:
    case = make_case([(2, 9), (1, 4)])
    out = torch.empty_like(case.q_THD)
    assert attention(case.q_THD, case.batch, case.kv, scale=0.4, out=out) is out
    assert_near(out, case.expected(0.4))


def test_each_layer_reads_the_tables_of_its_own_group() -> None:
    case, other = make_case([(1, 9)]), make_case([(1, 9)], window=3, is_scattered=False)
    batch = make_batch([1], [9], [[0, 0, 0]], block_size=4)
    groups = (batch.groups[0], case.batch.groups[0], other.batch.groups[0])
    both = replace(batch, groups=groups)
    for group, expected in ((1, case), (2, other)):
        kv = LayerKV(expected.kv.keys_NSKD, expected.kv.values_NSKD, group)
        assert_near(attention(expected.q_THD, both, kv, scale=0.4), expected.expected(0.4))


@pytest.mark.parametrize("kind", [AttentionKind.REFERENCE, AttentionKind.FLASH])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(kind: AttentionKind, dtype: torch.dtype) -> None:
    case = make_case([(1, 30), (20, 35)], attention=kind, dtype=dtype)
    attended = attention(case.q_THD, case.batch, case.kv, scale=0.4)
    assert attended.dtype is dtype
    expected = case.expected(0.4)
    assert ((attended - expected).abs() <= torch.finfo(dtype).eps * expected.abs() + 1e-5).all()


def test_long_chunks_are_flashed_and_decoding_is_not() -> None:
    assert is_flash(AttentionKind.AUTO, FLASH_FROM_SCORES)
    assert not is_flash(AttentionKind.AUTO, FLASH_FROM_SCORES - 1)
    assert is_flash(AttentionKind.FLASH, 1)
    assert not is_flash(AttentionKind.REFERENCE, 10**9)
