"""Blocks are handed out, shared, cached and given back as the tables say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inferno.engine.kv.block_manager import BlockManager, BlockTables
from inferno.errors import InvalidRequest
from tests.engine.simulation import chained_digest

TOKENS = tuple(range(100, 140))


def computed(
    blocks: BlockManager, tokens: Sequence[int], salt: str = "", *, chunk: int = 1000
) -> BlockTables:
    """Tables of a sample that has computed all these tokens, a chunk at a time."""
    tables = blocks.new_tables(blocks.new_root(salt))
    for start in range(0, len(tokens), chunk):
        end = min(start + chunk, len(tokens))
        blocks.slide(tables, start)
        blocks.allocate(tables, end)
        blocks.commit(tables, tokens, end)
    return tables


def num_hit(blocks: BlockManager, tokens: Sequence[int], salt: str = "") -> int:
    """Tokens that a newcomer would find in the cache."""
    tables = blocks.new_tables(blocks.new_root(salt))
    return blocks.find_prefix(tables, tokens, len(tokens) - 1).num_tokens


def forget(blocks: BlockManager, group: int, tokens: Sequence[int]) -> None:
    """Drop one block from the cache, as if it had been evicted."""
    digest = chained_digest("", tuple(tokens), blocks.block_size)
    block = blocks.pool._cached.pop((group, digest))
    del blocks.pool._keys[block]


def test_all_blocks_but_the_scratch_block_are_handed_out_once() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    tables = blocks.new_tables(blocks.new_root(""))
    blocks.allocate(tables, 40)
    assert sorted(tables.groups[0]) == list(range(1, 11))
    assert blocks.pool.num_available == 0


def test_a_table_grows_by_what_is_missing() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4, windows=(None, 8))
    tables = blocks.new_tables(blocks.new_root(""))
    assert blocks.num_new_blocks(tables, 4) == 2
    blocks.allocate(tables, 4)
    assert blocks.num_new_blocks(tables, 4) == 0
    assert blocks.num_new_blocks(tables, 5) == 2
    assert blocks.num_new_blocks(tables, 9) == 4


def test_released_blocks_are_available_again() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    tables = computed(blocks, TOKENS)
    blocks.release(tables)
    assert blocks.pool.num_available == 10
    assert tables.num_held == 0


def test_a_block_given_back_twice_is_our_own_mistake() -> None:
    blocks = BlockManager(num_blocks=2, block_size=4)
    block = blocks.pool.take()
    blocks.pool.give_back(block)
    with pytest.raises(AssertionError, match="more often than held"):
        blocks.pool.give_back(block)


def test_a_computed_prefix_is_found_but_never_the_last_token() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    computed(blocks, TOKENS[:12])
    assert num_hit(blocks, TOKENS[:13]) == 12
    assert num_hit(blocks, TOKENS[:12]) == 8
    assert num_hit(blocks, TOKENS[:9]) == 8
    assert num_hit(blocks, TOKENS[:1]) == 0


def test_a_block_is_found_only_once_it_is_full_and_computed() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    tables = blocks.new_tables(blocks.new_root(""))
    blocks.allocate(tables, 8)
    assert num_hit(blocks, TOKENS) == 0
    blocks.commit(tables, TOKENS, 3)
    assert num_hit(blocks, TOKENS) == 0
    blocks.commit(tables, TOKENS, 7)
    assert num_hit(blocks, TOKENS) == 4


def test_equal_tokens_after_another_beginning_are_another_block() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    computed(blocks, TOKENS[:8])
    assert num_hit(blocks, (*TOKENS[4:8], *TOKENS[4:8], 7)) == 0
    assert num_hit(blocks, (1, 2, 3, 4, *TOKENS[4:8], 7)) == 0


def test_another_salt_finds_nothing() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    computed(blocks, TOKENS[:8], salt="alice")
    assert num_hit(blocks, TOKENS, salt="alice") == 8
    assert num_hit(blocks, TOKENS, salt="bob") == 0
    assert num_hit(blocks, TOKENS) == 0


def test_a_salt_may_hold_half_a_surrogate_pair() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    computed(blocks, TOKENS[:8], salt="\ud800")
    assert num_hit(blocks, TOKENS, salt="\ud800") == 8


def test_keys_are_sha256_over_parent_and_tokens() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    computed(blocks, TOKENS[:8], salt="alice")
    for end in (4, 8):
        assert blocks.pool.find((0, chained_digest("alice", TOKENS[:end], 4))) is not None


def test_without_the_prefix_cache_only_samples_of_one_request_share() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4, enable_prefix_cache=False)
    root = blocks.new_root("")
    first, second = blocks.new_tables(root), blocks.new_tables(root)
    blocks.allocate(first, 8)
    blocks.commit(first, TOKENS, 8)
    assert blocks.find_prefix(second, TOKENS, 20).num_tokens == 8
    assert num_hit(blocks, TOKENS) == 0


def test_shared_blocks_stay_in_use_until_the_last_holder_leaves() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    first = computed(blocks, TOKENS[:9])
    second = blocks.new_tables(blocks.new_root(""))
    prefix = blocks.find_prefix(second, TOKENS, 20)
    assert blocks.num_in_use(prefix) == 2
    blocks.share(second, prefix)
    assert second.groups[0] == first.groups[0][:2]
    blocks.release(first)
    assert blocks.pool.num_available == 8
    blocks.release(second)
    assert blocks.pool.num_available == 10


def test_of_two_equal_blocks_the_first_stays_cached() -> None:
    blocks = BlockManager(num_blocks=10, block_size=4)
    first = computed(blocks, TOKENS[:4])
    second = computed(blocks, TOKENS[:4])
    third = blocks.new_tables(blocks.new_root(""))
    assert first.groups[0] != second.groups[0]
    assert blocks.find_prefix(third, TOKENS, 20).groups[0] == first.groups[0]
    blocks.release(first)
    blocks.release(second)
    for _ in range(9):
        blocks.pool.take()
    assert num_hit(blocks, TOKENS) == 4  # the second's block was free, not cached
    blocks.pool.take()
    assert num_hit(blocks, TOKENS) == 0


def test_cached_blocks_outlive_their_holder_until_room_is_needed() -> None:
    blocks = BlockManager(num_blocks=4, block_size=4)
    blocks.release(computed(blocks, TOKENS[:8]))
    assert num_hit(blocks, TOKENS) == 8
    blocks.release(computed(blocks, range(4)))
    assert num_hit(blocks, TOKENS) == 8
    computed(blocks, range(50, 66))
    assert num_hit(blocks, TOKENS) == 0


def test_the_least_recently_used_chain_is_evicted_first_and_its_tail_before_its_head() -> None:
    blocks = BlockManager(num_blocks=6, block_size=4)
    blocks.release(computed(blocks, TOKENS[:12]))
    blocks.release(computed(blocks, range(12)))
    held = blocks.new_tables(blocks.new_root("other"))
    hits = []
    for num_tokens in range(4, 28, 4):
        blocks.allocate(held, num_tokens)
        hits.append((num_hit(blocks, TOKENS), num_hit(blocks, range(20))))
    assert hits == [(8, 12), (4, 12), (0, 12), (0, 8), (0, 4), (0, 0)]


def test_a_hit_makes_a_chain_recently_used() -> None:
    blocks = BlockManager(num_blocks=2, block_size=4)
    blocks.release(computed(blocks, TOKENS[:4]))
    blocks.release(computed(blocks, range(4)))
    again = blocks.new_tables(blocks.new_root(""))
    blocks.share(again, blocks.find_prefix(again, TOKENS, 20))
    blocks.release(again)
    computed(blocks, range(50, 54))
    assert num_hit(blocks, TOKENS) == 4
    assert num_hit(blocks, range(20)) == 0


@pytest.mark.parametrize("window", range(1, 12))
def test_a_window_keeps_exactly_the_blocks_that_the_next_token_sees(window: int) -> None:
    blocks = BlockManager(num_blocks=20, block_size=3, windows=(window,))
    tables = blocks.new_tables(blocks.new_root(""))
    for position in range(30):
        blocks.slide(tables, position)
        blocks.allocate(tables, position + 1)
        kept = {index for index, block in enumerate(tables.groups[0]) if block}
        visible = range(max(0, position - window + 1), position + 1)
        assert kept == {seen // 3 for seen in visible}
    assert blocks.pool.num_available == 20 - len(kept)


@pytest.mark.parametrize("windows", [(1,), (1, 1), (2,), (None, 1)])
def test_a_prefix_that_nobody_computed_is_not_cached(windows: tuple[int | None, ...]) -> None:
    blocks = BlockManager(num_blocks=40, block_size=3, windows=windows)
    assert num_hit(blocks, TOKENS) == 0
    computed(blocks, TOKENS[:9], salt="alice")
    assert num_hit(blocks, TOKENS) == 0
    assert num_hit(blocks, TOKENS, salt="alice") == 9


@pytest.mark.parametrize("window", range(2, 14))
def test_a_windowed_prefix_needs_exactly_the_blocks_that_the_next_token_sees(window: int) -> None:
    for missing in range(10):
        blocks = BlockManager(num_blocks=20, block_size=3, windows=(window,))
        tables = computed(blocks, TOKENS[:30])
        blocks.release(tables)
        forget(blocks, 0, TOKENS[: 3 * missing + 3])
        fitting = [
            length
            for length in range(0, 31, 3)
            if missing not in {seen // 3 for seen in range(max(0, length - window + 1), length)}
        ]
        assert num_hit(blocks, TOKENS[:31]) == max(fitting)


def test_a_prefix_is_as_long_as_its_shortest_group_allows() -> None:
    blocks = BlockManager(num_blocks=60, block_size=4, windows=(None, 5, 9))
    blocks.release(computed(blocks, TOKENS, chunk=4))
    assert num_hit(blocks, (*TOKENS[:24], 1, 2)) == 24
    for end, expected in ((24, 20), (12, 20), (20, 16), (16, 8)):
        forget(blocks, 1, TOKENS[:end])
        assert num_hit(blocks, (*TOKENS[:24], 1, 2)) == expected


def test_a_shared_window_starts_with_scratch_entries() -> None:
    blocks = BlockManager(num_blocks=30, block_size=4, windows=(None, 6))
    first = computed(blocks, TOKENS[:20])
    second = blocks.new_tables(blocks.new_root(""))
    blocks.share(second, blocks.find_prefix(second, TOKENS, 20))
    assert second.groups[0] == first.groups[0]
    assert second.groups[1] == [0, 0, 0, *first.groups[1][3:]]
    assert second.num_held == 5 + 2
    blocks.release(second)
    blocks.release(first)
    assert blocks.pool.num_available == 30


@pytest.mark.parametrize("windows", [(None,), (1,), (4,), (7,), (None, 5), (3, 9, None)])
@pytest.mark.parametrize("block_size", [1, 2, 3, 5])
@pytest.mark.parametrize("max_chunk", [1, 2, 7, 50])
def test_the_peak_is_never_exceeded(
    windows: tuple[int | None, ...], block_size: int, max_chunk: int
) -> None:
    for num_tokens in (1, 2, 13, 40):
        blocks = BlockManager(400, block_size, windows)
        peak = blocks.num_peak_blocks(num_tokens, max_chunk)
        for first in range(1, min(max_chunk, num_tokens) + 1):
            tables = blocks.new_tables(blocks.new_root(""))
            held = []
            for start in [0, *range(first, num_tokens, max_chunk)]:
                blocks.slide(tables, start)
                blocks.allocate(tables, min(start + max_chunk if start else first, num_tokens))
                held.append(tables.num_held)
            assert max(held) <= peak <= -(-num_tokens // block_size) * len(windows)
            blocks.release(tables)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="num_blocks must be at least 1, not 0"):
        BlockManager(num_blocks=0, block_size=16)
    with pytest.raises(InvalidRequest, match="block_size must be at least 1, not -1"):
        BlockManager(num_blocks=4, block_size=-1)
