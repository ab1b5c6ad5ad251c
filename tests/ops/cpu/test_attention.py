"""The compiled attention against the definition in float64, and its bits in other schedules."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.ops import cpu
from tests.ops.cpu.paged import Requests, Shape, make_requests

pytestmark = pytest.mark.usefixtures("level")

SHAPES = {
    "plain": Shape(),
    "one head": Shape(num_heads=1, num_kv_heads=1, head_size=2),
    "odd half": Shape(num_heads=2, num_kv_heads=1, head_size=6, block_size=3),
    "tail of a register": Shape(num_heads=3, num_kv_heads=1, head_size=10, block_size=1),
    "five registers": Shape(num_heads=5, num_kv_heads=1, head_size=80, block_size=32),
    "six registers": Shape(num_heads=4, num_kv_heads=4, head_size=96, block_size=24),
    "eight heads share": Shape(num_heads=16, num_kv_heads=2, head_size=32, block_size=64),
    "large heads": Shape(num_heads=7, num_kv_heads=1, head_size=256),
    "narrow window": Shape(head_size=64, window=1),
    "window": Shape(num_heads=8, num_kv_heads=1, head_size=64, window=40),
    "window, small blocks": Shape(head_size=10, block_size=3, window=70),
    "odd window": Shape(num_heads=8, num_kv_heads=1, head_size=34, block_size=5, window=41),
}
LENS = [1, 150, 67, 16]


@cache
def unchanged_requests(shape: Shape, *lens: int) -> Requests:
    """Requests for tests that write nothing to them: every level's have the same."""
    return make_requests(shape, lens)


def chunks_of(lens: list[int], num_new: int) -> list[range | None]:
    """The last tokens of each request."""
    return [range(max(0, n - num_new), n) for n in lens]


def assert_right(
    requests: Requests, chunks: list[range | None], sinks_H: Tensor | None = None
) -> None:
    results = requests.attend(chunks, sinks_H)
    is_rounded = torch.bfloat16 in (requests.shape.dtype, requests.shape.cache)
    tolerance = 1e-2 if is_rounded else 2e-5
    for request, (chunk, result) in enumerate(zip(chunks, results, strict=True)):
        assert chunk is not None
        expected = requests.expected(request, chunk, sinks_H)
        torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("name", SHAPES)
def test_it_is_the_definition(name: str, cache: torch.dtype) -> None:
    requests = unchanged_requests(replace(SHAPES[name], cache=cache), *LENS)
    for num_new in (1, 5, 150):
        assert_right(requests, chunks_of(LENS, num_new))


@pytest.mark.parametrize("name", ["plain", "eight heads share", "window", "odd half"])
def test_bfloat16_queries_and_results(name: str) -> None:
    shape = replace(SHAPES[name], dtype=torch.bfloat16, cache=torch.bfloat16)
    assert_right(unchanged_requests(shape, *LENS), chunks_of(LENS, 20))


@pytest.mark.parametrize("name", ["plain", "tail of a register", "eight heads share", "window"])
@pytest.mark.parametrize("sinks", [torch.float32, torch.bfloat16])
def test_a_sink_takes_probability(name: str, sinks: torch.dtype) -> None:
    requests = unchanged_requests(SHAPES[name], *LENS)
    sinks_H = torch.linspace(-3, 6, requests.shape.num_heads).to(sinks)
    assert_right(requests, chunks_of(LENS, 20), sinks_H)


@pytest.mark.parametrize("window", [None, 1100])
def test_long_contexts_are_merged_from_parts(window: int | None) -> None:
    shape = Shape(window=window, num_heads=3, num_kv_heads=1)
    requests = unchanged_requests(shape, 2100, 1025, 1024)
    assert_right(requests, chunks_of([2100, 1025, 1024], 3), torch.tensor([0.0, 7.0, -7.0]))


def test_high_scores_do_not_overflow() -> None:
    requests = make_requests(Shape(), LENS)
    for q_THD in requests.queries:
        q_THD *= 60
    assert_right(requests, chunks_of(LENS, 20))


@pytest.mark.parametrize("name", ["plain", "five registers", "odd window"])
def test_rounded_weights_still_add_up_to_one(name: str) -> None:
    requests = make_requests(replace(SHAPES[name], cache=torch.bfloat16), LENS)
    requests.kv.values_NSKD.fill_(1.5)
    for result in requests.attend(chunks_of(LENS, 30)):
        torch.testing.assert_close(result, torch.full_like(result, 1.5), rtol=1e-6, atol=0)


SCHEDULED = {
    "plain": Shape(num_heads=4, num_kv_heads=2, head_size=32),
    "copied": Shape(num_heads=6, num_kv_heads=2, head_size=10, block_size=3),
    "many rows": Shape(num_heads=9, num_kv_heads=1, head_size=32, cache=torch.bfloat16),
    "int8": Shape(num_heads=4, num_kv_heads=1, head_size=16, block_size=32, cache=torch.int8),
    "window": Shape(num_heads=4, num_kv_heads=1, head_size=16, window=100, cache=torch.float16),
    "pairs": Shape(num_heads=4, num_kv_heads=2, head_size=64, cache=torch.bfloat16),
    "pairs, odd": Shape(
        num_heads=3, num_kv_heads=1, head_size=10, block_size=3, window=101, cache=torch.bfloat16
    ),
    "pairs, eight heads": Shape(
        num_heads=8, num_kv_heads=1, head_size=128, cache=torch.bfloat16, dtype=torch.bfloat16
    ),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_token_has_the_same_bits_in_any_schedule(name: str) -> None:
    requests = unchanged_requests(SCHEDULED[name], 1100, 90)
    sinks_H = torch.linspace(-1, 1, requests.shape.num_heads)
    chunk = range(1000, 1100)
    [whole, _] = requests.attend([chunk, range(90)], sinks_H)
    for start, stop in ((1000, 1001), (1001, 1004), (1004, 1030), (1030, 1099), (1099, 1100)):
        [alone] = requests.attend([range(start, stop), None], sinks_H)
        assert torch.equal(alone, whole[start - 1000 : stop - 1000])
        [with_others, _] = requests.attend([range(start, stop), range(80, 90)], sinks_H)
        assert torch.equal(with_others, alone)


@pytest.mark.parametrize("name", SCHEDULED)
def test_threads_do_not_change_bits(name: str) -> None:
    requests = unchanged_requests(SCHEDULED[name], 2500, 90)
    for chunks in ([range(2499, 2500), range(89, 90)], [range(2450, 2500), range(90)]):
        with _native.KernelContext(2):
            by_two = requests.attend([*chunks])
        with _native.KernelContext(1):
            by_one = requests.attend([*chunks])
        assert all(torch.equal(a, b) for a, b in zip(by_one, by_two, strict=True))


@pytest.mark.parametrize("name", ["plain", "copied", "pairs", "pairs, odd"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
@pytest.mark.parametrize("first", [149, 150])
def test_later_positions_have_no_part_in_earlier_ones(name: str, poison: float, first: int) -> None:
    requests = make_requests(SCHEDULED[name], [200])
    [before] = requests.attend([range(100, first)])
    size = requests.shape.block_size
    for position in range(first, 200):
        block = requests.tables[0][position // size]
        requests.kv.keys_NSKD[block, position % size] = poison
        requests.kv.values_NSKD[block, position % size] = poison
    [after] = requests.attend([range(100, 200)])
    assert torch.equal(before, after[: first - 100])
    assert after[first - 100 :].isnan().all()


@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [40, 41])
def test_a_window_forgets_what_was_before_it(window: int, cache: torch.dtype) -> None:
    requests = make_requests(replace(SHAPES["window"], window=window, cache=cache), [200])
    [before] = requests.attend([range(150, 200)])
    for position in range(151 - window):
        block, slot = requests.tables[0][position // 16], position % 16
        requests.kv.values_NSKD[block, slot] = torch.nan
    [after] = requests.attend([range(150, 200)])
    assert torch.equal(before, after)


@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_only_those_who_see_a_value_have_it(poison: float, cache: torch.dtype) -> None:
    requests = make_requests(replace(SHAPES["window"], window=40, cache=cache), [200])
    [before] = requests.attend([range(100, 200)])
    requests.kv.values_NSKD[requests.tables[0][130 // 16], 130 % 16] = poison
    [after] = requests.attend([range(100, 200)])
    assert torch.equal(before[:30], after[:30])
    assert not after[30:70].isfinite().any()
    assert torch.equal(before[70:], after[70:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_may_be_slices_and_nothing_beside_them_is_written(dtype: torch.dtype) -> None:
    shape = Shape(num_heads=3, num_kv_heads=1, head_size=10, dtype=dtype)
    requests = make_requests(shape, [50])
    batch = requests.batch([range(10, 50)])
    wide_TF = torch.randn(40, 50).to(dtype)
    wide_TF[:, 7:37] = requests.queries[0][10:].flatten(1)
    out_TF = torch.full((42, 44), 5.0, dtype=dtype)
    out_THD = out_TF[1:-1, 3:33].view(40, 3, 10)
    q_THD = wide_TF[:, 7:37].view(40, 3, 10)
    cpu.attention(q_THD, batch, requests.kv, scale=requests.scale, out=out_THD)
    [expected] = requests.attend([range(10, 50)])
    assert torch.equal(out_THD, expected)
    out_THD.fill_(5.0)
    assert (out_TF == 5).all()


def test_no_tokens_at_all() -> None:
    requests = make_requests(Shape(), [20])
    [nothing] = requests.attend([range(20, 20)])
    assert nothing.shape == (0, 4, 16)


def test_requests_without_tokens_are_passed_over() -> None:
    requests = make_requests(Shape(), [20, 30])
    batch = requests.batch([range(15, 20), range(25, 30)])
    padded = replace(
        batch,
        query_starts_R=torch.tensor([0, 5, 10, 10, 10]),
        context_lens_R=torch.tensor([20, 30, 0, 0]),
        groups=(
            replace(
                batch.groups[0],
                block_tables_RB=torch.cat([batch.groups[0].block_tables_RB] * 2),
            ),
        ),
    )
    q_THD = torch.cat([requests.queries[0][15:], requests.queries[1][25:]])
    results = [
        cpu.attention(q_THD, either, requests.kv, scale=requests.scale)
        for either in (batch, padded)
    ]
    assert torch.equal(*results)
